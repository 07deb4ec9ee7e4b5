"""The slowest SM, and how many may be it."""

import numpy as np
import pytest

from prunecast.hardware import load_gpu
from prunecast.launch.slow_sms import cycles_of_unequal

SLOW_CYCLES = load_gpu("h200-sxm").slow_sm_cycles


def test_equal_blocks_have_it_in_their_constants():
    assert cycles_of_unequal(np.full(128, 5000.0), SLOW_CYCLES) == pytest.approx(0.0)
    assert cycles_of_unequal(np.zeros(0), SLOW_CYCLES) == 0.0


def test_one_long_block_among_many_is_seldom_the_slow_one():
    ends = np.full(128, 1000.0)
    ends[7] = 9000.0
    assert cycles_of_unequal(ends, SLOW_CYCLES) == pytest.approx(SLOW_CYCLES * np.log(128))
    ends[:4] = 9000.0
    assert cycles_of_unequal(ends, SLOW_CYCLES) == pytest.approx(SLOW_CYCLES * np.log(128 / 5))


def test_longer_blocks_never_end_a_launch_sooner():
    rng = np.random.default_rng(3)
    ends = rng.uniform(1000.0, 4000.0, 96)
    before = ends.max() - cycles_of_unequal(ends, SLOW_CYCLES)
    for i in range(96):
        longer = ends.copy()
        longer[i] += 200.0
        assert longer.max() - cycles_of_unequal(longer, SLOW_CYCLES) >= before


@pytest.mark.parametrize(("blocks", "least", "most"), [(64, 300, 500), (128, 500, 890)])
def test_the_slowest_block_ends_as_late_as_stamps_say(blocks, least, most):
    """Largest less median end of equal blocks (`gpu_trace --short`, H200, 2026-11-21)."""
    draws = np.random.default_rng(5).gumbel(0.0, SLOW_CYCLES, (2000, blocks))
    late = float((draws.max(axis=1) - np.median(draws, axis=1)).mean())
    assert least <= late <= most
