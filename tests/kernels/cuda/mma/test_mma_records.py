"""Images of the mma tile kernel: every kept weight in its lane, every k-step in its block."""

from dataclasses import replace

import numpy as np
import pytest

from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.kernels.device.tile_stages import tile_stages
from prunecast.kernels.tile.cuda.mma.operator import MmaOperator
from prunecast.kernels.tile.cuda.mma.pack import rows_at_once
from prunecast.kernels.tile.cuda.mma.records import (
    FIRST_STEP,
    LAST_STEP,
    OWNER,
    PART,
    PLACE_SHIFT,
)
from tests.kernels.cuda.mma.mma_plans import KEPT, plan_of, ragged_map
from tests.kernels.cuda.packed import packed_stages

A100 = load_gpu("a100-sxm4-80gb")


@pytest.mark.parametrize("form", [(64, 64), (32, 256), (128, 128)])
def test_every_kept_weight_lies_where_its_lane_reads_it(form: tuple[int, int]) -> None:
    """Lane 4 g + q, word w: row g + 8 (w mod 2), column 2 q + 8 (w div 2) and the next (PTX ISA, mma)."""
    plan = plan_of(ragged_map(form[0]), 200, form)
    tiles = plan.tiles
    bits = np.random.default_rng(1).integers(1, 65535, (tiles.m, tiles.k)).astype(np.uint16)
    packed = packed_stages(MmaOperator, plan, bits)
    by_lane = packed.weights.reshape(-1, 2, form[0] // 16, 32, 8)
    found = np.zeros_like(bits)
    at_once = rows_at_once(form[1])
    for t in range(tiles.tile_count):
        for stage in range(packed.stage_start[t], packed.stage_start[t + 1]):
            for place in np.ndindex(by_lane.shape[1:]):
                k16, fragment, lane, element = place
                word, second = divmod(element, 2)
                row = packed.rows[t, 16 * fragment + lane // 4 + 8 * (word % 2)]
                k = 16 * k16 + 2 * (lane % 4) + 8 * (word // 2) + second
                column = packed.columns[stage, k % at_once, k // at_once]
                value = by_lane[stage][place]
                if row >= 0 and column >= 0:
                    found[row, column] = value
                else:
                    assert value == 0
        if KEPT[t] > 64:
            break
    rows = tiles.row_index[: tiles.row_start[t + 1]]
    assert np.array_equal(found[rows], (bits * tiles.mask())[rows])
    assert not packed.weights[packed.null_stage].any()
    assert (packed.columns[packed.null_stage] == -1).all()


@pytest.mark.parametrize("blocks", [0, 7])
def test_steps_are_those_of_the_work_list(blocks: int) -> None:
    plan = plan_of(ragged_map(64), 200, (64, 128), blocks=blocks)
    packed = MmaOperator.stages(plan)
    records = MmaOperator.records(plan)
    work = plan.work
    seen = 0
    for block in range(plan.blocks):
        at = records.arrays["start"][block]
        for i in range(work.block_start[block], work.block_start[block + 1]):
            count = max(-(-(work.k_stop[i] - work.k_start[i]) // 32), 1)
            own = records.arrays["steps"][at : at + count]
            empty = work.k_stop[i] == work.k_start[i]
            first = packed.null_stage if empty else packed.stage_start[work.tile[i]] + work.k_start[i] // 32
            assert own[:, 0].tolist() == list(range(first, first + count))
            assert (own[:, 1] == work.token_start[i]).all()
            assert (own[:, 2] == work.tile[i]).all()
            assert [bool(w & FIRST_STEP) for w in own[:, 3]] == [True] + [False] * (count - 1)
            assert [bool(w & LAST_STEP) for w in own[:, 3]] == [False] * (count - 1) + [True]
            _check_split(plan, records, i, int(own[-1, 3]))
            at += count
            seen += 1
        assert at == records.arrays["start"][block + 1]
    assert seen == plan.item_count


def _check_split(plan, records, i: int, what: int) -> None:
    work = plan.work
    wanted = 0 if work.parts[i] == 1 else OWNER if work.owner[i] else PART
    assert what & (OWNER | PART) == wanted
    if wanted:
        slot, others, group, unused = records.arrays["splits"][what >> PLACE_SHIFT]
        assert unused == 0
        assert (others, group) == (work.parts[i] - 1, work.group[i])
        parts = np.flatnonzero(work.group == work.group[i])
        slots = {
            int(work.part[j]): records.arrays["splits"][_place(work, j)][0]
            for j in parts
            if not work.owner[j]
        }
        first = min(slots.values())
        assert slots == {part: first + part - 1 for part in slots}
        assert slot == (first if work.owner[i] else slots[int(work.part[i])])


def _place(work, i: int) -> int:
    return int((work.parts[:i] > 1).sum())


def test_blocks_behind_the_plans_write_rows_in_no_tile() -> None:
    plan = plan_of(ragged_map(64), 200, (64, 128), blocks=7)
    packed = MmaOperator.stages(plan)
    records = MmaOperator.records(plan)
    extra = records.arrays["steps"][records.arrays["start"][plan.blocks] :]
    assert records.blocks == plan.blocks + 2  # five rows, twice 128 tokens
    assert extra[:, 0].tolist() == [packed.null_stage] * 2
    assert extra[:, 1].tolist() == [0, 128]
    alone = set(range(plan.m)) - set(plan.tiles.row_index.tolist())
    assert set(records.arrays["rows"][extra[0, 2]].tolist()) == alone | {-1}


def test_plans_that_the_kernel_cannot_walk_are_refused() -> None:
    plan = plan_of(ragged_map(64), 200, (64, 128))
    short = plan.work._replace(token_stop=np.minimum(plan.work.token_stop, plan.work.token_start + 64))
    with pytest.raises(BadInput, match="must take 128 tokens"):
        MmaOperator.records(replace(plan, work=short))


def test_weights_of_another_shape_and_tall_tiles_are_refused() -> None:
    plan = plan_of(ragged_map(64), 200, (64, 64))
    with pytest.raises(BadInput, match="map's shape"):
        packed_stages(MmaOperator, plan, np.zeros((3, 3), np.uint16))
    with pytest.raises(BadInput, match="64 rows does not fit"):
        tile_stages(plan.tiles, 32, 32)
