"""`TileOperator`: the tile kernel on wgmma, in all compiled variants.

One variant, the token form, has 256 rows of weights by 128 tokens per block, with tokens as the 64-row
operand of wgmma (`tile_tokens_sm90.cu`). It runs with single blocks, or with clusters of two blocks that
share their weights by multicast.

C is stored with TMA through tensor maps, which the driver encodes.
"""

import ctypes
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.kernels.device.compile_inputs import CompileInputs, CompileOptions, plan_defines
from prunecast.kernels.device.launch import LaunchError, answer_of, driver
from prunecast.kernels.device.operator import Call, KernelOperator
from prunecast.kernels.device.packing import Slab
from prunecast.kernels.device.tile_stages import Packed
from prunecast.kernels.tile.config import TOKEN_FORM, compiled_config
from prunecast.kernels.tile.cuda.work_image import TILE_ARGS, list_records, stage_slab
from prunecast.plan.kernel_plan import KernelPlan

MOST_MAPS = 256
"""Maximum number of tensor maps that an operator caches. Kind: choice, of 128 bytes each."""
_TYPES = {None: 1, "fp16": 6, "bf16": 9, "fp8": 0}
"""Use of a tensor map -> its CU_TENSOR_MAP_DATA_TYPE. The key is the dtype of C for reduce-add, `fp8` for
loads, and None for plain stores; the values are _UINT16, _FLOAT16, _BFLOAT16 and _UINT8.

Kind: definition, CUDA driver API.
"""
_SWIZZLES = {32: 1, 64: 2, 128: 3}
"""Bytes in a row of a box -> CU_TENSOR_MAP_SWIZZLE_32B, _64B or _128B. Kind: definition, CUDA driver API."""


class Box(NamedTuple):
    """Size of a TMA box of a row-major matrix: `rows`, and `tokens`, the elements along the contiguous
    dimension.
    """

    rows: int
    tokens: int


class TensorMap(NamedTuple):
    """Tensor map of a matrix, as the driver encodes it."""

    address: int
    """Host address of the map, 64-byte aligned."""
    map: npt.NDArray[np.uint8]
    """(128,) uint8."""


def encode_boxes(
    pointer: int, row_bytes: int, *, rows: int, tokens: int, box: Box, dtype: str | None = None
) -> TensorMap:
    """Return the tensor map of a row-major matrix of 16-bit or fp8 elements, with the given box.

    Parameters
    ----------
    pointer : device address, 16-byte aligned
    row_bytes : row stride, a multiple of 16
    rows, tokens : size of the matrix; tokens are contiguous
    box : its rows have 32, 64 or 128 bytes; the swizzle has the same width
    dtype : dtype of the values if TMA adds them to the matrix (reduce-add); `fp8` for an fp8 matrix; None if
        16-bit values are stored

    Raises
    ------
    LaunchError : the driver rejects the arguments; the message has its error number
    """
    # The driver requires tensor maps that are aligned to 64 bytes
    room = np.zeros(192, np.uint8)
    first = -room.ctypes.data % 64
    found = room[first : first + 128]
    status = answer_of(
        driver().cuTensorMapEncodeTiled,
        ctypes.c_void_p(found.ctypes.data),
        _TYPES[dtype],
        2,
        ctypes.c_void_p(pointer),
        (ctypes.c_uint64 * 2)(tokens, rows),
        (ctypes.c_uint64 * 1)(row_bytes),
        (ctypes.c_uint32 * 2)(box.tokens, box.rows),
        (ctypes.c_uint32 * 2)(1, 1),
        0,
        _SWIZZLES[box.tokens * (1 if dtype == "fp8" else 2)],
        0,
        0,
    )
    if status != 0:
        raise LaunchError(
            f"cuTensorMapEncodeTiled answers {status} for {rows} x {tokens}, rows {row_bytes} bytes apart"
        )
    return TensorMap(found.ctypes.data, found)


def tensor_maps(
    *, rows: int, tokens: int, box: Box, dtype: str | None = None
) -> Callable[[int, int], TensorMap]:
    """Return the function of pointer and row stride that encodes the maps of matrices of one shape.

    Allocators reuse a few addresses, so each of the last `MOST_MAPS` maps is encoded once.
    """
    encode = partial(encode_boxes, rows=rows, tokens=tokens, box=box, dtype=dtype)
    return lru_cache(MOST_MAPS)(encode)


SOURCES = Path(__file__).parent
TOKEN_SOURCE = "tile_tokens_sm90.cu"
CLUSTERS = (1, 2)
"""Supported numbers of blocks per cluster. Kind: choice, the compile tests build both."""


def _check_form(plan: KernelPlan) -> None:
    """Raise `BadInput` for plans that this kernel does not run."""
    if plan.tensor != "wgmma" or plan.inner is not None or plan.kernel == "dense":
        raise BadInput(f"{plan.kernel}: the tile kernel runs tile maps on wgmma, the plan has {plan.tensor}")
    if plan.dtype == "fp8":
        raise BadInput(f"{plan.kernel}: operands in fp8 have scales, so prunecast.torch runs them")
    if plan.dtype not in ("fp16", "bf16"):
        raise BadInput(f"{plan.kernel}: the tile kernel takes fp16 or bf16, the plan has {plan.dtype}")
    compiled_config(plan)
    _check_cluster(plan)


def box_of(plan: KernelPlan, *, gated: bool = False) -> Box:
    """Return the box of C that a warp stores with one TMA instruction if its rows are contiguous.

    Parameters
    ----------
    gated : True if C is the gated unit of gate and up, whose rows interleave in A (GLU in `activation.cuh`)
    """
    if compiled_config(plan).tokens_first:
        return Box(rows=32, tokens=64)
    staging_of_warp = min(plan.shape.block_m * plan.shape.block_n, 32768) // 8
    return Box(rows=8 if gated else 16, tokens=64 if staging_of_warp >= 2048 else 32)


def token_box_of(plan: KernelPlan) -> Box:
    """Return the box for C of shape (tokens, M). Its `rows` are tokens, and its `tokens` are 64 rows of A."""
    return Box(rows=16 if compiled_config(plan).tokens_first else box_of(plan).tokens, tokens=64)


def _check_cluster(plan: KernelPlan) -> None:
    """Raise `BadInput` for clusters that no variant of the kernel supports."""
    if plan.cluster != 1 and plan.shape[:2] != TOKEN_FORM:
        raise BadInput(
            f"{plan.kernel}: blocks of {tuple(plan.shape)} run alone, the plan has {plan.cluster} together"
        )
    if plan.cluster not in CLUSTERS:
        raise BadInput(f"{plan.kernel}: clusters have 1 or 2 blocks, the plan's have {plan.cluster}")


def tile_inputs(plan: KernelPlan, form: Mapping[str, int], options: CompileOptions) -> CompileInputs:
    """Return the inputs of the compiler for a plan. `form` contains the additional preprocessor macros of the
    kernel variant.
    """
    is_token_form = compiled_config(plan).tokens_first
    own = {
        "BLOCK_M": plan.shape.block_m,
        "BLOCK_N": plan.shape.block_n,
        "STAGES": plan.resources.stages,
        **({"CLUSTER": plan.cluster} if is_token_form else {}),
        **form,
    }
    source = SOURCES / (TOKEN_SOURCE if is_token_form else "tile_sm90.cu")
    registers = plan.resources.registers_per_thread
    return CompileInputs(source, "tile_sm90", {**own, **plan_defines(plan, **options)}, registers)


class TileOperator(KernelOperator):
    """Compiled plan of the wgmma tile kernel on one device."""

    name, writes_tokens, maps = "the wgmma tile kernel", True, 1
    heads = "items"

    @staticmethod
    def compile_inputs(plan: KernelPlan, **options: Unpack[CompileOptions]) -> CompileInputs:
        """Return the source, preprocessor macros and expected registers per thread of the kernel of a plan.
        Raise BadInput if this kernel cannot run the plan.
        """
        _check_form(plan)
        return tile_inputs(plan, {}, options)

    @staticmethod
    def slab(plan: KernelPlan) -> Slab:
        """Return the order in which a k-step of packed weights holds the elements of its tile of A."""
        return stage_slab(plan.shape.block_m)

    @classmethod
    def records(cls, plan: KernelPlan) -> Packed:
        """Return the device arrays and launch argument of a plan, without weights, bias and B. Raise BadInput
        in the same cases as `list_records`.
        """
        return list_records(plan, TILE_ARGS, cls.stages(plan))

    def __init__(self, plan: KernelPlan, packed: Packed, **options: Any) -> None:
        super().__init__(plan, packed, **options)
        self.output = options.get("output", plan.dtype)
        self._is_gated, self._adds = bool(self.changes.get("GLU")), self.changes.get("RESIDUAL")
        self._is_token_major = bool(self.changes.get("TOKEN_MAJOR"))
        self._box = token_box_of(plan) if self._is_token_major else box_of(plan, gated=self._is_gated)
        self._maps: dict[tuple[int, int], Callable[[int, int], TensorMap]] = {}

    def write(self, call: Call) -> None:
        """Write the addresses and sizes of a call into the kernel's parameter struct, and select the tensor
        maps of C.
        """
        super().write(call)
        rows = self.plan.c_rows // 2 if self._is_gated else self.plan.c_rows
        sizes = (call.c_tokens, rows) if self._is_token_major else (rows, call.tokens)
        found = self._maps.get(sizes)
        if found is None:
            dtype = self.output if self._adds else None
            found = self._maps[sizes] = tensor_maps(
                rows=sizes[0], tokens=sizes[1], box=self._box, dtype=dtype
            )
        self._map_of, self._c_row_bytes = found, call.c_row_bytes

    def place(self, b: int, c: int) -> None:
        """Write the addresses of B and C into the kernel's parameter struct, and set the tensor map of C."""
        words = self._words
        words[self._b], words[self._c] = b, c
        self._launch.point(1, self._map_of(c, self._c_row_bytes).address)
