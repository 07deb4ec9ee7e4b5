"""Waves of blocks that begin together wait for the rows of B of all their first k-steps."""

import numpy as np
import pytest

from prunecast.models.chip import _sm_ends
from prunecast.models.loops import queued

ENDS = _sm_ends(np.array([250.0]), 50.0)
"""An SM that works for 200 cycles after 50 cycles without data."""
HALVES = np.full(2, 0.5)


@pytest.mark.parametrize(
    ("reads", "first_rows", "cycles"),
    [
        (80.0, 0.0, 50 + 2 * 100),
        (80.0, 0.25, 50 + 2 * (100 + 10)),
        (400.0, 0.25, 50 + 2 * 200),  # DRAM is always busy and delivers first rows within its time
    ],
)
def test_a_wave_lasts_its_work_after_the_first_rows(reads: float, first_rows: float, cycles: float) -> None:
    found = queued(ENDS, reads, 0.0, HALVES, HALVES, np.inf, first_rows)
    assert found == pytest.approx(cycles)
