"""What must hold for every plan, checked the slow way."""

from collections import defaultdict

import numpy as np

from prunecast.plan.kernel_plan import KernelPlan, Schedule

__all__ = ["check_plan"]


def check_plan(plan: KernelPlan) -> None:
    """Assert the laws of a work list against the tiles it is made for."""
    check_outputs(plan)
    check_parts(plan)
    checb_access(plan)
    assert 32 * sum(program.warps for program in plan.programs) == plan.resources.threads


def check_outputs(plan: KernelPlan) -> None:
    """Every (row, token) of a tile is written exactly once, and nothing else is written."""
    written = np.zeros((plan.m, plan.n), int)
    work, tiles = plan.work, plan.tiles
    for i in np.flatnonzero(work.owner):
        rows = tiles.row_index[tiles.row_start[work.tile[i]] : tiles.row_start[work.tile[i] + 1]]
        written[rows, work.token_start[i] : work.token_stop[i]] += 1
    expected = np.zeros_like(written)
    expected[tiles.row_index] = 1
    np.testing.assert_array_equal(written, expected)


def check_parts(plan: KernelPlan) -> None:
    """The k ranges of the parts of a tile follow one another and cover what it keeps."""
    work = plan.work
    outputs = defaultdict(list)
    for i in range(plan.item_count):
        outputs[work.tile[i], work.token_start[i], work.token_stop[i]].append(i)
    groups = []
    for (tile, _, _), items in outputs.items():
        items.sort(key=lambda i: work.part[i])
        assert [work.part[i] for i in items] == list(range(len(items)))
        assert {int(work.parts[i]) for i in items} == {len(items)}
        edges = [0, *(work.k_stop[i] for i in items)]
        assert [work.k_start[i] for i in items] == edges[:-1]
        assert edges[-1] == plan.tiles.kept_per_tile[tile]
        assert all(work.k_start[i] % plan.shape.block_k == 0 for i in items)
        assert len({int(work.group[i]) for i in items}) == 1
        assert (work.group[items[0]] >= 0) == (len(items) > 1)
        groups += [int(work.group[items[0]])] if len(items) > 1 else []
    assert sorted(groups) == list(range(len(groups)))


def checb_access(plan: KernelPlan) -> None:
    """In no list does a part that hands its sums over stand behind an owner that may wait for it."""
    work = plan.work
    lists = [range(plan.item_count)]
    if plan.schedule is Schedule.STATIC:
        lists = [range(work.block_start[b], work.block_start[b + 1]) for b in range(plan.blocks)]
    for items in lists:
        owner_seen = False
        for i in items:
            owner_seen |= bool(work.group[i] >= 0 and work.owner[i])
            assert not (owner_seen and not work.owner[i])
