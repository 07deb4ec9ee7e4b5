"""How late the last block of a launch of few tokens is."""

import numpy as np
import pytest

from prunecast.kernels.late_blocks import LATE_AFTER_CYCLES, Lateness, late_cycles

SCALE, START = 140.0, 505.0
FREE = Lateness(SCALE, 0.0, START)


def test_the_last_of_equal_blocks_is_late_with_their_number_and_the_root_of_their_time() -> None:
    ends = np.full(64, START + LATE_AFTER_CYCLES)
    assert late_cycles(ends, FREE) == pytest.approx(SCALE * np.log(64))
    assert late_cycles(START + 4.0 * (ends - START), FREE) == pytest.approx(2.0 * SCALE * np.log(64))


def test_it_is_what_the_largest_of_gumbel_variates_is_above_their_mode() -> None:
    ends = START + LATE_AFTER_CYCLES - np.array([0.0, 50.0, 300.0, 2000.0])
    draws = ends + np.random.default_rng(2).gumbel(0.0, SCALE, (200_000, 4))
    mean = float(draws.max(axis=1).mean()) - SCALE * np.euler_gamma - ends.max()
    assert late_cycles(ends, FREE) == pytest.approx(mean, abs=2.0)


def test_what_the_launch_has_of_it_counts_once() -> None:
    ends = np.full(128, START + LATE_AFTER_CYCLES)
    assert late_cycles(ends, Lateness(SCALE, 110.0, START)) == pytest.approx(30.0 * np.log(128))
    assert late_cycles(ends, Lateness(SCALE, 150.0, START)) == 0.0


def test_one_long_block_an_idle_gpu_and_other_kernels_wait_for_nobody() -> None:
    ends = np.array([9000.0, 0.0, 600.0])
    assert late_cycles(ends, FREE) == pytest.approx(0.0, abs=1e-9)
    assert late_cycles(np.zeros(4), FREE) == 0.0
    assert late_cycles(np.full(8, 9000.0), Lateness(0.0, 0.0, 0.0)) == 0.0


def test_longer_blocks_never_end_a_launch_sooner() -> None:
    ends = np.random.default_rng(3).uniform(1000.0, 4000.0, 96)
    for counted in (0.0, 60.0):
        lateness = Lateness(SCALE, counted, START)
        before = ends.max() + late_cycles(ends, lateness)
        for i in range(96):
            longer = ends.copy()
            longer[i] += 200.0
            assert longer.max() + late_cycles(longer, lateness) >= before - 1e-9
