"""Warps that share issue slots and the port of shared memory."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunecast.models.in_turns import in_turns_cycles

CYCLES = st.floats(1.0, 1000.0)


def _cycles(alone: float, issue: float, shared: float, warps: int = 16) -> float:
    one = [np.array([value]) for value in (alone, issue, shared)]
    return float(in_turns_cycles(*one, warps=warps, partitions=4)[0])


def test_a_warp_alone_takes_what_it_takes() -> None:
    assert _cycles(500.0, 200.0, 100.0, warps=1) == pytest.approx(500.0)


def test_two_warps_and_one_server() -> None:
    """Waiting w and being served s take c = w + s / (1 - s / c); with w = s = 1 that is (3 + 5^0.5) / 2."""
    assert _cycles(2.0, 0.0, 1.0, warps=2) == pytest.approx((3.0 + 5.0**0.5) / 2.0, rel=1e-5)


@given(CYCLES, CYCLES, CYCLES, st.sampled_from([4, 8, 16, 32]))
def test_between_the_busiest_server_and_all_in_turn(
    wait: float, issue: float, shared: float, warps: int
) -> None:
    cycles = _cycles(wait + issue + shared, issue, shared, warps)
    busiest = max(issue * warps / 4, shared * warps, wait + issue + shared)
    in_turn = wait + issue * warps / 4 + shared * warps
    assert busiest * (1 - 1e-6) <= cycles <= in_turn * (1 + 1e-6)


@given(CYCLES, CYCLES, CYCLES)
def test_more_warps_take_no_less(wait: float, issue: float, shared: float) -> None:
    alone = wait + issue + shared
    found = [_cycles(alone, issue, shared, warps) for warps in (4, 8, 12, 16)]
    assert all(later >= earlier * (1 - 1e-6) for earlier, later in pairwise(found))


def test_forms_of_one_token() -> None:
    """4096 x 4096 at 75 and 50 %, 64x8 w16 d4, 64 blocks: 2.9 us for four k16s of a warp at 1.81 GHz (0008).

    A warp issues 232 instructions for one, uses the port for 68 cycles, and waits for its own instructions
    for 470, for the port's answers and the tensor pipe's for 64.
    """
    assert _cycles(470.0 + 64.0 + 232.0 + 68.0, 232.0, 68.0) == pytest.approx(2.9e-6 * 1.81e9 / 4, rel=0.05)
