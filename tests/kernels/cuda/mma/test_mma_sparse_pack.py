"""2:4 weights of the mma tile kernel: read back by lanes and places, they are what was kept."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prunecast.errors import BadInput
from prunecast.kernels.device.packing import packed_weights
from prunecast.kernels.device.tile_stages import tile_stages
from prunecast.kernels.tile.cuda.mma.operator import MmaOperator
from prunecast.kernels.tile.cuda.mma.pack import rows_at_once, sparse_fragment_slab
from prunecast.patterns.element_map import element_map_from_mask
from prunecast.patterns.tiling import dense_tile_map
from prunecast.plan.kernel_plan import BlockShape
from tests.kernels.cuda.mma.mma_plans import plan_of, ragged_map
from tests.kernels.cuda.packed import PackedStages, packed_stages
from tests.kernels.cuda.sparse.layouts import elements_in

Bits = npt.NDArray[np.uint16]


def stage_weights(stage: Bits, shape: BlockShape) -> Bits:
    """(block_m, block_k): a stage as the instruction decompresses it.

    PTX ISA, mma.sp.m16n8k32: lane 4 g + q, word w has kept values 2 q + 8 (w div 2) and the next of row
    g + 8 (w mod 2); their places are in lanes 2 s and 2 s + 1, s the selector, by eight values.
    """
    depths, fragment_count = shape.block_k // 32, shape.block_m // 16
    by_lane = stage[: shape.block_m * shape.block_k // 2].reshape(depths, fragment_count, 32, 4, 2)
    words = stage[shape.block_m * shape.block_k // 2 :].view(np.uint32)
    dense = np.zeros((shape.block_m, shape.block_k), np.uint16)
    for depth, fragment, lane, w, second in np.ndindex(by_lane.shape):
        g, q = divmod(lane, 4)
        value = 2 * q + 8 * (w // 2) + second
        holder = 2 * depth + value // 8
        word = int(words[(fragment * 8 + g) * 2 * depths + holder])
        place = word >> (16 * (w % 2) + 2 * (value % 8)) & 3
        column = 32 * depth + 4 * (value // 2) + place
        row = 16 * fragment + g + 8 * (w % 2)
        assert dense[row, column] == 0
        dense[row, column] = by_lane[depth, fragment, lane, w, second]
    return dense


def unpacked(packed: PackedStages, shape: BlockShape, size: tuple[int, int]) -> Bits:
    """(M, K): every weight that lies in some stage, at its row and column of A."""
    found = np.zeros(size, np.uint16)
    for t in range(packed.rows.shape[0]):
        for stage in range(packed.stage_start[t], packed.stage_start[t + 1]):
            dense = stage_weights(packed.weights[stage].ravel(), shape)
            columns = packed.columns[stage].T.reshape(-1)
            rows = packed.rows[t]
            assert not dense[rows < 0].any()
            assert not dense[:, columns < 0].any()
            found[np.ix_(rows[rows >= 0], columns[columns >= 0])] = dense[np.ix_(rows >= 0, columns >= 0)]
    return found


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 150),
    st.integers(1, 40),
    st.sampled_from([(32, 128, 32), (16, 256, 32), (32, 64, 64), (16, 256, 64)]),
)
def test_unpacking_gives_back_what_was_kept(seed: int, k: int, m: int, shape: tuple[int, int, int]) -> None:
    """Of a whole matrix in tiles of the block's height, two, one or none of every four neighbours."""
    form, rng = BlockShape(*shape), np.random.default_rng(seed)
    tiles = dense_tile_map(m, k, form.block_m)
    inner = elements_in(tiles, seed % 1000)
    bits = rng.integers(1, 65536, (m, k)).astype(np.uint16)
    stages = tile_stages(tiles, form.block_m, form.block_k)
    weights = packed_weights(bits, tiles, stages, sparse_fragment_slab(form.block_m, form.block_k), inner)
    columns = stages.columns_by_thread(rows_at_once(form.block_n))
    packed = PackedStages(weights, columns, stages.rows, stages.stage_start)
    assert np.array_equal(unpacked(packed, form, (m, k)), bits * inner.mask())


@pytest.mark.parametrize("gpu", ["b200", "rtx-3090"])
def test_unpacking_ragged_tiles_gives_back_what_was_kept(gpu: str) -> None:
    """Shuffled rows, a short tile, rows in no tile, tiles of 0, 1, 15 to 17 and up to 700 columns."""
    plan = plan_of(ragged_map(32), 72, (32, 128), gpu=gpu, sparse=True)
    bits = np.random.default_rng(1).integers(1, 65536, (plan.m, plan.k)).astype(np.uint16)
    packed = packed_stages(MmaOperator, plan, bits)
    assert np.array_equal(unpacked(packed, plan.shape, bits.shape), bits * plan.inner.mask())
    assert packed.weights[0].nbytes == -(-(plan.shape.block_m * plan.shape.block_k * 9 // 8) // 128) * 128


def test_the_null_stage_is_zero_has_places_that_ascend_and_names_no_column() -> None:
    plan = plan_of(ragged_map(64), 72, (64, 64), sparse=True)
    packed = packed_stages(MmaOperator, plan, np.full((plan.m, plan.k), 7, np.uint16))
    null = packed.weights[packed.null_stage].ravel()
    assert not stage_weights(null, plan.shape).any()
    assert (null[64 * 32 :] == 0xEEEE).all()  # third and fourth of every four
    assert (packed.columns[packed.null_stage] == -1).all()


def test_a_word_has_16_columns_of_two_rows() -> None:
    kept = np.zeros((16, 64), np.bool_)
    kept[3, [16, 17]] = True  # row g 3, word 1: places 0 and 1 of its first four columns
    kept[11, [30, 31]] = True  # row g + 8: 2 and 3 of its last four
    whole = dense_tile_map(16, 64, 16)
    inner = element_map_from_mask(kept, "2:4")
    slab, stages = sparse_fragment_slab(16, 64), tile_stages(whole, 16, 64)
    image = packed_weights(np.zeros((16, 64), np.uint16), whole, stages, slab, inner)
    words = image[0].ravel()[16 * 32 :].view(np.uint32)
    assert words[3 * 4 + 1] == 0xEEEE_EEE4
    assert (np.delete(words, 3 * 4 + 1) == 0xEEEE_EEEE).all()


def test_items_begin_at_steps_of_the_plan() -> None:
    plan = plan_of(ragged_map(64), 200, (64, 128), blocks=7, sparse=True)
    assert plan.shape.block_k == 64
    start = MmaOperator.records(plan).arrays["start"]
    steps = np.maximum(-(-(plan.work.k_stop - plan.work.k_start) // 64), 1)
    assert start[plan.blocks] == steps.sum()
    within = plan.work._replace(k_start=plan.work.k_start + 32 * (plan.work.k_start > 0))
    with pytest.raises(BadInput, match="multiples of 64 columns"):
        MmaOperator.records(replace(plan, work=within))


def test_elements_that_are_not_two_of_four_are_refused() -> None:
    plan = plan_of(ragged_map(64), 72, (64, 64), sparse=True)
    full = element_map_from_mask(np.ones((plan.m, plan.k), np.bool_), "dense")
    with pytest.raises(BadInput, match="more than two of four"):
        packed_stages(MmaOperator, replace(plan, inner=full), np.zeros((plan.m, plan.k), np.uint16))
