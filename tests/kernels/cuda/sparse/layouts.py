"""Maps of 2:4 weights inside ragged tiles, plans of the sparse kernel, and its images read back."""

import numpy as np
import numpy.typing as npt

from prunecast.hardware import load_gpu
from prunecast.kernels import KernelPlan
from prunecast.kernels.device.tile_stages import Packed
from prunecast.kernels.tile.config import wgmma_configs
from prunecast.kernels.tile.tile_plan import items_of, tile_plan
from prunecast.patterns import ElementMap, TileMap
from prunecast.patterns.element_map import element_map_from_mask
from prunecast.plan.assignment import assign_hardware, assign_longest_first, split_items
from tests.kernels.cuda.packed import PackedStages
from tests.kernels.cuda.plans import ragged_map

GPU = load_gpu("h200-sxm")
FORMS = ((256, 128), (256, 64), (128, 256), (128, 128), (128, 64))


def elements_in(tiles: TileMap, seed: int = 0) -> ElementMap:
    """Two, one or no random element of every four neighbours in a tile's list, by row."""
    rng = np.random.default_rng(seed)
    mask = np.zeros((tiles.m, tiles.k), np.bool_)
    for t in range(tiles.tile_count):
        rows = tiles.row_index[tiles.row_start[t] : tiles.row_start[t + 1]]
        columns = tiles.column_index[tiles.column_start[t] : tiles.column_start[t + 1]]
        fours = -(-columns.size // 4)
        rank = rng.random((rows.size, fours, 4)).argsort(axis=2)
        kept = rank < rng.choice([0, 1, 2, 2, 2], (rows.size, fours))[:, :, None]
        mask[np.ix_(rows, columns)] = kept.reshape(rows.size, -1)[:, : columns.size]
    return element_map_from_mask(mask, tiles.pattern)


def plan_of(
    n: int,
    form: tuple[int, int],
    *,
    dtype: str = "fp16",
    blocks: int = 0,
    k: int = 300,
    slices: int = 1,
    shuffled: bool = True,
) -> KernelPlan:
    """Ragged tiles; one item per block, or a persistent grid of `blocks` blocks, tiles cut into up to so many
    slices.
    """
    tiles = ragged_map(form[0], k=k, shuffled=shuffled)
    configs = wgmma_configs(GPU, dtype, "sparse-wgmma")
    config = next(v for v in configs if v.shape[:2] == form)
    items = items_of(tiles, config, n, GPU)
    steps = -(-items.k_stop // 64)
    items = split_items(items, np.clip(steps, 1, slices), 64)
    cost = (items.k_stop - items.k_start).astype(np.int64) + 64
    assigned = assign_longest_first(items, cost, blocks) if blocks else assign_hardware(items)
    return tile_plan("2:4", tiles, n, config, assigned, GPU, b_access="gather", inner=elements_in(tiles))


def run_images(
    plan: KernelPlan, packed: PackedStages, work: Packed, b: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """C (M, N) item by item, as the kernel walks them; elements that no item writes stay NaN."""
    c = np.full((plan.m, plan.n), np.nan)
    block_m, block_n = plan.shape[:2]
    for first, word, tile, token in work.arrays["items"].tolist():
        real = word & 0xFFFFFF
        sums = np.zeros((block_m, block_n))
        for step in range(max(real, 2)):
            stage = first + step if step < real else packed.null_stage
            tokens = np.zeros((64, block_n))
            for place in range(64):
                column = packed.columns[stage, place % 16, place // 16]
                if column >= 0:
                    row = b[column, token : token + block_n]
                    tokens[place, : row.size] = row
            sums += stage_weights(packed.weights[stage].ravel().view(np.uint8), block_m) @ tokens
        width = min(block_n, plan.n - token)
        for place, row in enumerate(packed.rows[tile].tolist()):
            if row >= 0:
                assert np.isnan(c[row, token]), "an element of C is written twice"
                c[row, token : token + width] = sums[place, :width]
    return c


def stage_weights(stage: npt.NDArray[np.uint8], block_m: int) -> npt.NDArray[np.float64]:
    """(block_m, 64): weights of a stage as the hardware decompresses them."""
    values = stage[: 64 * block_m].view(np.float16).reshape(block_m, 4, 8)
    words = stage[64 * block_m :].view(np.uint32)
    groups = block_m // 128
    row, kept = np.ogrid[:block_m, :32]
    consumer, group, inside = row // (64 * groups), row // 64 % groups, row % 64
    thread = inside // 16 * 32 + inside % 8 * 4 + kept // 8
    shift = inside % 16 // 8 * 16 + kept % 8 * 2
    place = words[(consumer * 128 + thread) * groups + group] >> shift.astype(np.uint32) & 3
    column = 4 * (kept // 2) + place.astype(np.int64)
    assert all(np.unique(columns).size == 32 for columns in column), "two values in one place"
    dense = np.zeros((block_m, 64))
    dense[row, column] = values[row, (kept // 8) ^ (row // 2 % 4), kept % 8]
    return dense
