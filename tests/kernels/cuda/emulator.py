"""The tile kernel in numpy, item by item, from the images that the device gets."""

import numpy as np
import numpy.typing as npt

from prunecast.kernels.device.tile_stages import Packed
from prunecast.kernels.tile.cuda.work_image import OWNER, PART
from prunecast.plan.kernel_plan import KernelPlan
from tests.kernels.cuda.packed import PackedStages

FloatArray = npt.NDArray[np.float64]


def run_images(plan: KernelPlan, packed: PackedStages, work: Packed, b: FloatArray) -> FloatArray:
    """C (M, N); elements that no item writes stay NaN. Weights are the bits of fp16."""
    c = np.full((plan.m, plan.n), np.nan)
    items, splits = work.arrays["items"], work.arrays["splits"]
    partials = np.full((np.count_nonzero(splits[:, 3] == PART), *plan.shape[:2]), np.nan)
    arrived = np.zeros(np.count_nonzero(splits[:, 3] == OWNER), np.int64)
    order = np.argsort(splits[:, 3] == OWNER, kind="stable")  # owners wait for the rest
    for i in order:
        sums = _multiply(packed, items[i], b, plan.shape.block_n)
        slot, parts, group, action = splits[i]
        if action == PART:
            partials[slot] = sums
            arrived[group] += 1
            continue
        if action == OWNER:
            assert arrived[group] == parts
            sums = sums + partials[slot : slot + parts].sum(axis=0)
        _store(c, sums, packed.rows[items[i, 2]], int(items[i, 3]))
    return c


def _multiply(packed: PackedStages, item: npt.NDArray[np.int32], b: FloatArray, block_n: int) -> FloatArray:
    first, word, _, token = (int(x) for x in item)
    real, last_k16 = word & 0xFFFFFF, word >> 24 & 7
    steps = max(real, 2)
    sums = np.zeros((packed.rows.shape[1], block_n))
    for step in range(steps):
        stage = first + step if step < real else packed.null_stage
        k = 16 * (last_k16 if step + 1 == steps else 4)
        sums += (_weights(packed, stage) @ _tokens(packed, stage, b, token, block_n, k))[:, :block_n]
    return sums


def _weights(packed: PackedStages, stage: int) -> FloatArray:
    swizzled = packed.weights[stage].view(np.float16).reshape(-1, 8, 8)
    row, chunk = np.ogrid[: swizzled.shape[0], :8]
    return swizzled[row, chunk ^ (row % 8)].reshape(-1, 64).astype(np.float64)


def _tokens(packed: PackedStages, stage: int, b: FloatArray, token: int, block_n: int, k: int) -> FloatArray:
    """(64, block_n): zeros where no row of B is named, and beyond the last multiplied group."""
    gathered = np.zeros((64, block_n))
    for place in range(k):
        column = packed.columns[stage, place % 16, place // 16]
        if column >= 0:
            row = b[column, token : token + block_n]
            gathered[place, : row.size] = row
    return gathered


def _store(c: FloatArray, sums: FloatArray, rows: npt.NDArray[np.int32], token: int) -> None:
    width = min(sums.shape[1], c.shape[1] - token)
    for place, row in enumerate(rows):
        if row >= 0:
            assert np.isnan(c[row, token]), "an element of C is written twice"
            c[row, token : token + width] = sums[place, :width]
