"""Waves wait for the rows of B of their first k-steps, and for L2 and DRAM in turn."""

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


@pytest.mark.parametrize(
    ("reads", "behind_l2", "cycles"),
    [
        (0.0, 350.0, 50 + 300),  # L2 alone
        (300.0, 0.0, 50 + 225 + 100),  # DRAM brings three quarters of the reads in the first half of the work
        (300.0, 350.0, 50 + 225 + 150),  # L2 delays the second half, in which DRAM idles
        (300.0, 200.0, 50 + 225 + 100),  # L2 is faster than the SM
    ],
)
def test_l2_limits_parts_in_which_dram_reads_little(reads: float, behind_l2: float, cycles: float) -> None:
    early = np.array([0.75, 0.25])
    found = queued(ENDS, reads, 0.0, HALVES, early, np.inf, 0.0, behind_l2)
    assert found == pytest.approx(cycles)
