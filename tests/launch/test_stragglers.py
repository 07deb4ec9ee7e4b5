"""How late the last block of a launch of few tokens is."""

import numpy as np
import pytest

from prunecast.hardware import load_gpu
from prunecast.launch.overlap import Straggler, straggler_credit_cycles, straggler_cycles

SHARE, MOST, START = 0.018, 250.0, 505.0
SLOW_CYCLES = load_gpu("h200-sxm").slow_sm_cycles
FREE = Straggler(SHARE, MOST, 0.0, START)


def test_the_last_of_equal_blocks_is_late_with_their_number_and_their_time_up_to_a_bound() -> None:
    for own, scale in ((25.0, 0.45), (5000.0, 90.0), (10_000.0, 180.0), (60_000.0, MOST)):
        assert straggler_cycles(np.full(64, START + own), FREE) == pytest.approx(scale * np.log(64))


def test_it_is_what_the_largest_of_gumbel_variates_is_above_their_mode() -> None:
    ends = START + 10_000.0 - np.array([0.0, 50.0, 300.0, 2000.0])
    draws = ends + np.random.default_rng(2).gumbel(0.0, 180.0, (200_000, 4))
    mean = float(draws.max(axis=1).mean()) - 180.0 * np.euler_gamma - ends.max()
    assert straggler_cycles(ends, FREE) == pytest.approx(mean, abs=2.0)


def test_what_the_launch_has_of_it_counts_once() -> None:
    ends = np.full(128, START + 10_000.0)
    assert straggler_cycles(ends, Straggler(SHARE, MOST, 110.0, START)) == pytest.approx(70.0 * np.log(128))
    assert straggler_cycles(ends, Straggler(SHARE, MOST, 190.0, START)) == 0.0


def test_one_long_block_an_idle_gpu_and_other_kernels_wait_for_nobody() -> None:
    ends = np.array([9000.0, 0.0, 600.0])
    assert straggler_cycles(ends, FREE) == pytest.approx(0.0, abs=1e-9)
    assert straggler_cycles(np.zeros(4), FREE) == 0.0
    assert straggler_cycles(np.full(8, 9000.0), Straggler(0.0, 0.0, 0.0, 0.0)) == 0.0


def test_longer_blocks_never_end_a_launch_sooner() -> None:
    ends = np.random.default_rng(3).uniform(1000.0, 4000.0, 96)
    for counted in (0.0, 60.0):
        straggler = Straggler(SHARE, MOST, counted, START)
        before = ends.max() + straggler_cycles(ends, straggler)
        for i in range(96):
            longer = ends.copy()
            longer[i] += 200.0
            assert longer.max() + straggler_cycles(longer, straggler) >= before - 1e-9


def test_equal_blocks_have_it_in_their_constants():
    assert straggler_credit_cycles(np.full((1, 128), 5000.0), SLOW_CYCLES) == pytest.approx(0.0)
    assert straggler_credit_cycles(np.zeros((1, 0)), SLOW_CYCLES) == 0.0


def test_one_long_block_among_many_is_seldom_the_slow_one():
    ends = np.full(128, 1000.0)
    ends[7] = 9000.0
    assert straggler_credit_cycles(ends[None], SLOW_CYCLES) == pytest.approx(SLOW_CYCLES * np.log(128))
    ends[:4] = 9000.0
    assert straggler_credit_cycles(ends[None], SLOW_CYCLES) == pytest.approx(SLOW_CYCLES * np.log(128 / 5))


def test_longer_blocks_never_end_a_launch_sooner_with_the_credit():
    rng = np.random.default_rng(3)
    ends = rng.uniform(1000.0, 4000.0, 96)
    before = ends.max() - straggler_credit_cycles(ends[None], SLOW_CYCLES)
    for i in range(96):
        longer = ends.copy()
        longer[i] += 200.0
        assert longer.max() - straggler_credit_cycles(longer[None], SLOW_CYCLES) >= before


@pytest.mark.parametrize(("blocks", "least", "most"), [(64, 300, 500), (128, 500, 890)])
def test_the_slowest_block_ends_as_late_as_stamps_say(blocks, least, most):
    """Largest less median end of equal blocks (`gpu_trace --short`, H200, 2026-11-21)."""
    draws = np.random.default_rng(5).gumbel(0.0, SLOW_CYCLES, (2000, blocks))
    late = float((draws.max(axis=1) - np.median(draws, axis=1)).mean())
    assert least <= late <= most
