"""Where blocks of one-token launches lie when several of them are on the GPU at once."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from prunecast.choice import fastest_plan
from prunecast.hardware import load_gpu
from prunecast.hardware.occupancy import occupancy
from prunecast.hardware.placement import (
    SETTLED,
    block_places,
    burst_placements,
    expected_places,
    resident_share,
)
from prunecast.launch import launch_context
from prunecast.patterns import ElementMap, element_map_from_columns
from tests.naive.from_plan import burst_depths, unequal_places
from tests.naive.records import Item

H200 = load_gpu("h200-sxm")


@pytest.mark.parametrize(
    ("blocks", "fit", "shared_sms"),
    [(64, 3, 4), (128, 3, 4), (64, 2, 4), (128, 2, 4), (120, 2, 12), (96, 2, 36), (24, 2, 0), (64, 1, 0)],
)
def test_what_whole_launches_leave_over_lies_together(blocks: int, fit: int, shared_sms: int) -> None:
    """Seen by clock stamps on an H200, 2026-11-21, where they are 64, 120 and 128."""
    places = expected_places((1,) * blocks, fit, 132)
    on_sm = np.bincount((np.arange(blocks) if places is None else places) % 132, minlength=132)
    assert on_sm.sum() == blocks
    assert np.count_nonzero(on_sm == fit) == (shared_sms if fit > 1 else blocks)
    assert np.count_nonzero(on_sm == 1) == blocks - (fit * shared_sms if fit > 1 else 0)


def sparse_map(m: int, k: int) -> ElementMap:
    columns = np.tile(np.arange(0, k, 8), m)
    return element_map_from_columns(np.arange(m + 1) * (k // 8), columns, k, "unstructured")


def test_a_launch_context_says_where_the_blocks_of_a_plan_lie() -> None:
    """With 40 registers a thread three blocks fit on an SM, of what `resources` allow one."""
    plan = fastest_plan("balanced", sparse_map(1024, 1024), 1, "fp16", H200)
    context = launch_context(plan, H200)
    assert plan.item_count == plan.blocks == 64
    fit = context.fit.blocks_per_sm
    assert occupancy(plan.resources, H200).blocks_per_sm == 1 < fit == context.crowd
    assert context.places is not None
    assert len(set(context.places)) == 64
    assert list(context.places[: 4 * fit] % 132) == [0, 1, 2, 3] * fit


def test_blocks_of_many_launches_at_once_come_to_lie_in_pairs() -> None:
    for blocks, on_sms in ((32, [1, 2]), (48, [1, 3])):
        places = expected_places((1,) * blocks, 3, 132)
        assert places is not None
        assert list(np.unique(np.bincount(places % 132))) == on_sms


@pytest.mark.parametrize(
    ("columns", "fit", "sms"),
    [((9, 9, 7, 5, 5, 3, 2), 2, 6), ((5, 4, 3, 2, 1, 1, 1, 1, 1), 3, 7), (tuple(range(20, 0, -1)), 2, 14)],
)
def test_unequal_blocks_lie_as_the_slow_twin_says(columns: tuple[int, ...], fit: int, sms: int) -> None:
    items = [Item(tile=i, k_count=kept) for i, kept in enumerate(columns)]
    places = block_places(columns, fit, sms).tolist()
    assert {place: items[i] for i, place in enumerate(places)} == unequal_places(items, fit, sms)


def test_the_heaviest_blocks_do_not_lie_together() -> None:
    """Of 128 blocks two to an SM, four SMs have two; the longest block ends last and leaves its SM to another
    launch's longest one, beside which an early one lies (stamps of unequal tiles).
    """
    columns = (1000, *range(500, 373, -1))
    places = block_places(columns, 2, 132)
    sm = places % 132
    beside = [c for c, s in zip(columns[1:], sm[1:], strict=True) if s == sm[0]]
    assert 120 <= len(set(sm.tolist())) < 128
    assert sum(beside) < 500


@pytest.mark.parametrize(
    ("blocks", "fit"), [(16, 4), (24, 3), (25, 4), (32, 4), (40, 3), (48, 3), (60, 2), (130, 3)]
)
def test_placements_of_a_burst_are_ways_to_lie(blocks: int, fit: int) -> None:
    """Each block has its own place; equal blocks lie alone but for some SMs that are full to one depth."""
    placements = burst_placements(blocks, fit, 132)
    assert not placements or sum(one.share for one in placements) == pytest.approx(1.0)
    assert len(placements) != 1
    depths = []
    for share, places in placements:
        assert 0.05 <= share < 0.8
        on_sm = np.arange(blocks) if places is None else places % 132
        lie = np.bincount(on_sm, minlength=132)
        if places is not None:
            assert len(set(places.tolist())) == blocks
            assert 0 <= places.min() <= places.max() < fit * 132
        assert lie.sum() == blocks
        assert set(lie.tolist()) - {0, 1, int(lie.max())} == set()
        depths.append(int(lie.max()))
    assert depths == sorted(set(depths))


@pytest.mark.parametrize(
    ("blocks", "fit", "sms"),
    [
        (3, 4, 8),
        (6, 4, 20),
        (7, 3, 16),
        (9, 4, 12),
        (9, 4, 20),
        (11, 4, 20),
        (12, 2, 30),
        (12, 4, 20),
        (14, 4, 30),
    ],
)
def test_placements_of_a_burst_are_as_often_as_the_slow_twin_says(blocks: int, fit: int, sms: int) -> None:
    """The SMs with most blocks have theirs first, in turns; each of the others has one."""
    often = burst_depths(blocks, fit, sms)
    if max(share for share, _ in often.values()) >= SETTLED:
        assert burst_placements(blocks, fit, sms) == ()
        return
    found = burst_placements(blocks, fit, sms)
    assert [one.share for one in found] == pytest.approx([share for share, _ in often.values()])
    for (depth, (_, full)), one in zip(often.items(), found, strict=True):
        shared = round(full) if depth > 1 else 0
        assert (one.places is None) == (depth == 1)
        places = np.arange(blocks) if one.places is None else one.places
        together = [block % shared for block in range(shared * depth)] if shared else []
        alone = range(shared, shared + blocks - shared * depth)
        assert (places % sms).tolist() == [*together, *alone]


@given(
    columns=st.lists(st.integers(1, 100), min_size=1, max_size=30),
    fit=st.integers(1, 4),
    sms=st.integers(2, 12),
)
def test_blocks_have_places_of_their_own_where_they_all_fit(columns, fit, sms):
    blocks = len(columns)
    assume(blocks <= fit * sms)
    places = block_places(tuple(columns), fit, sms)
    assert places.size == len(set(places.tolist())) == blocks
    assert 0 <= places.min() <= places.max() < fit * sms
    known = expected_places(tuple(columns), fit, sms)
    on_sm = np.bincount(places % sms, minlength=sms)
    assert on_sm.max() <= fit
    # Told only where some SM has a block more than if blocks had filled SMs in turn
    assert known is None or places.max() >= min(blocks, sms)


@given(
    columns=st.lists(st.integers(1, 100), min_size=1, max_size=20),
    fit=st.integers(1, 3),
    sms=st.integers(2, 12),
    start=st.floats(0.0, 2000.0),
)
def test_the_share_of_blocks_that_start_early_is_a_share(columns, fit, sms, start):
    share = [
        resident_share(tuple(columns), fit, sms, column_cycles=10.0, start_cycles=cycles)
        for cycles in (0.0, start, 1e9)
    ]
    assert all(0.0 <= one <= 1.0 for one in share)
    assert share == sorted(share, reverse=True)  # who must start earlier finds fewer slots
