"""`BalancedOperator`: the balanced kernel, and the packing of its plans.

Packed records belong to windows of columns, not to work items, because every group of rows processes all
windows.
"""

from pathlib import Path
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.kernels.balanced.kernel import TOKENS, matrix_layout, ring_bytes
from prunecast.kernels.balanced.layout import (
    LANES,
    WARPS,
    BalancedLayout,
    VectorLayout,
    choose_rest,
    vector_layout,
)
from prunecast.kernels.device.arrays import OperandSpec
from prunecast.kernels.device.compile_inputs import CompileInputs, CompileOptions, end_defines
from prunecast.kernels.device.launch import argument_record
from prunecast.kernels.device.operator import Call, KernelOperator
from prunecast.kernels.device.packing import PackingMap, gather, to_bits
from prunecast.kernels.device.tile_stages import Packed
from prunecast.patterns.element_map import ElementMap
from prunecast.plan.kernel_plan import DTYPE_BYTES, KernelPlan

SOURCES = Path(__file__).parent
_HALF = {"fp32": 0, "fp16": 1, "bf16": 2}
"""Dtype -> value of the macro `HALF`. Kind: CUDA source, `element.cuh`."""


def _elements_of(plan: KernelPlan) -> ElementMap:
    if plan.kernel != "balanced" or plan.inner is None:
        raise BadInput(f"the balanced kernel runs balanced plans, got {plan.kernel}")
    return plan.inner


MATRIX_ARGS = argument_record(
    "records windows b c bias clock",
    "b_row_bytes c_row_bytes",
    "m k tokens window_count split_windows slot_words",
)
"""Layout of `MatrixArgs` in matrix.cu."""
VECTOR_ARGS = argument_record("values indices b c bias clock", "b_step c_step", "m k chunks places")
"""Layout of `VectorArgs` in vector.cu."""
Floats = npt.NDArray[np.floating[Any]]


def vector_arrays(
    elements: ElementMap, layout: VectorLayout, rows: int, weights: Floats, dtype: str
) -> dict[str, npt.NDArray[Any]]:
    """Return the packed arrays that `vector.cu` reads: `values` and `indices`, each of shape (row groups,
    chunks, rows of a warp, 32 lanes, 4).

    A row group is the `rows` rows of a warp; a chunk has four elements per lane. `indices` are positions in
    the lane's bank of shared memory, as uint8 or uint16. Padding has the value 0 and the position
    `layout.places`, where the bank holds zero. Weights that `elements` does not keep are not read.
    """
    column = elements.column_index.astype(np.int64)
    row = np.repeat(np.arange(elements.m), elements.kept_per_row)
    lane = column // layout.segment % LANES
    place = column // (LANES * layout.segment) * layout.segment + column % layout.segment
    order = np.lexsort((place, lane, row))
    row, lane, place, column = row[order], lane[order], place[order], column[order]
    slot = row * LANES + lane
    counts = np.bincount(slot, minlength=elements.m * LANES)
    in_slot = np.arange(slot.size) - (np.cumsum(counts) - counts)[slot]
    shape = (-(-elements.m // rows), layout.chunks, rows, LANES, 4)
    indices = np.full(shape, layout.places, f"u{layout.index_bytes}")
    rows_of, columns_of = np.full(shape, elements.m), np.full(shape, elements.k)
    at = (row // rows, in_slot // 4, row % rows, lane, in_slot % 4)
    indices[at], rows_of[at], columns_of[at] = place, row, column
    places = PackingMap.of_places(rows_of, columns_of)
    values = gather(np.pad(to_bits(weights, dtype), (0, 1)), places, np)
    # NumPy's indexing may return an array that is not C-contiguous
    return {"values": np.ascontiguousarray(values), "indices": indices}


def matrix_arrays(
    elements: ElementMap, layout: BalancedLayout, weights: Floats, dtype: str
) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays that `matrix.cu` reads: `records` (words, 4) uint32, and `windows` (groups, windows,
    2) int32.

    There is one record for each group of 16 rows and window, a sequence of 16-byte words. First are 8 words
    of values for each pair of dense columns, rows ascending. Next are the values of the rest (the elements
    outside the dense columns), in the order [row of a quarter of the warp][pair of elements][quarter][element
    of the pair]. Then follow the positions of the rest in the same order, 16 bits each, and the positions of
    the dense columns. Positions are byte offsets from the start of the window in shared memory. Padding has
    the value 0 and the position of the zeros after the window.

    `windows` contains the first word of each record and its number of pairs of dense columns. Values are
    fp32, rounded to the dtype. Weights that `elements` does not keep are not read.
    """
    from prunecast.kernels.balanced.loops import write_records

    words = layout.words.astype(np.int64)
    start = (np.cumsum(words) - words.ravel()).reshape(words.shape)
    positions = np.zeros((int(words.sum()), 4), np.uint32)
    rows_of, columns_of = np.full(positions.shape, elements.m), np.full(positions.shape, elements.k)
    column_bytes = TOKENS * DTYPE_BYTES[dtype]
    kept, sizes = (elements.row_start, elements.column_index, elements.m), (layout.window, words.shape[1])
    write_records(*kept, *sizes, layout.rest, column_bytes, start, positions, rows_of, columns_of)
    places = PackingMap.of_places(rows_of, columns_of)
    values = gather(np.pad(rounded(weights, dtype), (0, 1)), places, np)
    windows = np.stack((start, (layout.dense + 1) // 2), axis=2).astype(np.int32)
    # No 32-bit word has both a value and positions: one of the two arrays is zero there, so OR merges them
    records = np.ascontiguousarray(values).view(np.uint32) | positions
    return {"records": records, "windows": np.ascontiguousarray(windows)}


def rounded(weights: Floats, dtype: str) -> Floats:
    """Return `weights` rounded to `dtype`, in fp32."""
    bits = to_bits(weights, dtype)
    if dtype == "bf16":
        return (bits.astype(np.uint32) << 16).view(np.float32)
    return bits.view(np.float16 if dtype == "fp16" else np.float32).astype(np.float32)


class BalancedOperator(KernelOperator):
    """Compiled plan of the balanced kernel on one device. With one token, B and C need no alignment."""

    name = "the balanced kernel"

    @staticmethod
    def compile_inputs(plan: KernelPlan, **options: Unpack[CompileOptions]) -> CompileInputs:
        """Return the source, preprocessor names and registers with which the kernel is compiled for a plan.
        Raise BadInput if this kernel cannot run the plan.
        """
        elements, shape, config = _elements_of(plan), plan.shape, plan.config
        ends = end_defines(options.get("activation", "none"), bias=options.get("bias", False))
        defines = {"HALF": _HALF[plan.dtype], **ends}
        if plan.n == 1:
            name, vector = "vector", vector_layout(elements)
            defines |= {"ROWS": shape.block_m // WARPS, "SEGMENT": vector.segment}
            defines |= {"INDEX_BYTES": vector.index_bytes}
        else:
            name = "matrix"
            defines |= {"WINDOW": config.window, "SPLITS": config.splits}
            defines |= {"REST_PAIRS": choose_rest(elements, config.window) // 2}
            defines |= {"PLAN_THREADS": plan.resources.threads}
            defines |= {"PLAN_SHARED_BYTES": ring_bytes(config.window, config.splits, plan.dtype)}
        return CompileInputs(
            SOURCES / f"{name}.cu",
            f"balanced_{name}",
            {**defines, **(options.get("changes") or {})},
            plan.resources.registers_per_thread,
            fewer=True,
            any_arch=True,
        )

    @staticmethod
    def pack(plan: KernelPlan, weights: Floats) -> Packed:
        """Return the device arrays and launch argument of a plan, with `weights` (M, K) rounded to the plan's
        dtype.

        Raises
        ------
        BadInput : the plan has no elements
        """
        elements, config = _elements_of(plan), plan.config
        args = np.zeros(1, VECTOR_ARGS if plan.n == 1 else MATRIX_ARGS)
        args["m"], args["k"] = plan.m, plan.k
        if plan.n == 1:
            vector = vector_layout(elements)
            args["chunks"], args["places"] = vector.chunks, vector.places
            arrays = vector_arrays(elements, vector, plan.shape.block_m // WARPS, weights, plan.dtype)
            return Packed(arrays, args, plan.item_count)
        layout = matrix_layout(elements, config.window)
        arrays = matrix_arrays(elements, layout, weights, plan.dtype)
        windows = arrays["windows"].shape[1]
        args["tokens"] = OperandSpec(plan.m, plan.k, plan.n, plan.dtype, 0).padded_n
        args["window_count"], args["split_windows"] = windows, -(-windows // config.splits)
        args["slot_words"] = int(layout.words.max())
        return Packed(arrays, args, plan.item_count)

    @classmethod
    def runs_on(cls, plan: KernelPlan) -> range:
        """Return the range of compute capabilities, times ten, on which the plan runs: 7.5 and up, because
        the kernel uses only CUDA cores.
        """
        return range(75, 1000)

    @classmethod
    def align_bytes(cls, plan: KernelPlan) -> int:
        """Return the alignment in bytes that rows of B and C need: 16, or 1 (none) for one token."""
        return 1 if plan.n == 1 else 16

    def write(self, call: Call) -> None:
        """Write the addresses and sizes of a call into the kernel's parameter struct.

        With one token, the row strides of B and C are in elements instead of bytes.
        """
        super().write(call)
        if self.plan.n == 1:
            item_bytes = DTYPE_BYTES[self.plan.dtype]
            self._args["b_step"] = call.b_row_bytes // item_bytes
            self._args["c_step"] = call.c_row_bytes // item_bytes
