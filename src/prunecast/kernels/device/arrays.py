"""Check the arrays of a call, identically for all operators, before anything is launched.

An operator passes its requirements (`OperandSpec`) and a launch function to `multiply`. Misaligned rows are
copied only in this module.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.kernels.device.frameworks import Framework, Given, framework_of
from prunecast.kernels.device.launch import Place
from prunecast.plan.kernel_plan import DTYPE_BYTES, KernelPlan
from prunecast.plan.misaligned import copied_row_bytes

_NAMES = {"fp16": ("float16",), "bf16": ("bfloat16", "uint16"), "fp32": ("float32",)}
"""Dtype of a plan -> names of the array dtypes that are accepted; uint16 holds the bits of bf16."""

Run = Callable[[Place, Place, int], None]
"""Function that enqueues the product of B into C, both aligned and padded, on the stream of a handle."""


class OperandSpec(NamedTuple):
    """Requirements on the arrays of one operator: C (m, n) = A (m, k) @ B (k, n)."""

    m: int
    k: int
    n: int
    dtype: str
    """Dtype of the plan."""
    device: int
    align_bytes: int = 16
    """Required alignment of rows; a row is read in whole groups of this many bytes. 1 if any
    alignment works."""

    @property
    def item_bytes(self) -> int:
        """Bytes of an element of B and C."""
        return DTYPE_BYTES[self.dtype]

    @property
    def padded_n(self) -> int:
        """Number of tokens of a row, rounded up to whole groups of `align_bytes`."""
        group = max(self.align_bytes // self.item_bytes, 1)
        return -(-self.n // group) * group

    @property
    def copied_n(self) -> int:
        """Row stride of a copy, in tokens; at least `padded_n`."""
        return copied_row_bytes(self.padded_n, self.item_bytes) // self.item_bytes


class StagingBuffers:
    """Device buffers that an operator keeps for copies in padded rows.

    A captured CUDA graph writes to the same addresses in every replay, so the operator must keep its buffers.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str, str], Any] = {}

    def buffer(self, name: str, framework: Framework, like: Any, rows: int, columns: int) -> Any:
        """Return the buffer `name`, (rows, columns), in the framework and dtype of `like`.

        It is allocated and zeroed in the first call; later calls return the same buffer.
        """
        key = (name, framework.name, str(like.dtype))
        if key not in self._kept:
            # Zero the buffer once: kernels multiply the padding of B, which must be finite
            self._kept[key] = framework.empty(like, rows, columns)
            framework.view(self._kept[key])[...] = 0
        return self._kept[key]


def multiply(wanted: OperandSpec, buffers: StagingBuffers, b: Any, out: Any, run: Run) -> Any:
    """Check B and `out`, copy them to aligned rows if necessary, call `run`, and return C.

    If the rows of B are aligned and padded, B is read in place; the padding may contain any values.

    Parameters
    ----------
    wanted : requirements on B and C
    buffers : buffers of the operator, for the copies
    b : (K, N), row-major, in the plan's dtype, on the operator's device; a CuPy array or a torch tensor
    out : None, or C (M, N) of the same framework
    run : function that enqueues the product

    Returns
    -------
    `out`, or a new array (M, N) of the framework of `b`, whose rows are aligned and may be padded

    Raises
    ------
    BadInput : a dtype, shape, layout or device differs from `wanted`; nothing was launched
    """
    framework = framework_of("B", b)
    given = framework.describe("B", b)
    check_given("B", given, wanted, wanted.k)
    written_in_place = out is not None and _may_be_written(_describe_out(framework, out, wanted), wanted)
    with framework.stream(b):  # copies and product follow the caller's earlier work, also of torch
        if not _may_be_read(given, wanted):
            copy = buffers.buffer("B", framework, b, wanted.k, wanted.copied_n)[:, : wanted.n]
            framework.copy(copy, b)
            given = framework.describe("B", copy)
        if out is None:
            tokens = wanted.n if wanted.n == wanted.padded_n else wanted.copied_n
            c = framework.empty(b, wanted.m, tokens)[:, : wanted.n]
        elif written_in_place:
            c = out
        else:
            c = buffers.buffer("C", framework, out, wanted.m, wanted.copied_n)[:, : wanted.n]
        run(_place(given), _place(framework.describe("C", c)), current_stream())
        if out is None or written_in_place:
            return c
        framework.copy(out, c)
        return out


def check_given(name: str, given: Given, wanted: OperandSpec, rows: int) -> None:
    """Raise `BadInput` unless an array is (rows, `wanted.n`), row-major, and has the wanted dtype and device.

    `name` is the name of the array in the message.
    """
    names, shape, item = _NAMES[wanted.dtype], (rows, wanted.n), wanted.item_bytes
    if given.dtype not in names:
        raise BadInput(f"{name} must be {' or '.join(names)}, got {given.dtype}")
    if given.shape != shape:
        raise BadInput(f"{name} must have shape {shape}, got {given.shape}")
    if given.device != wanted.device:
        where = "the host" if given.device < 0 else f"device {given.device}"
        raise BadInput(f"{name} must lie on device {wanted.device}, where the weights are, got {where}")
    in_order = wanted.n == 1 or given.strides[1] == item
    apart = rows == 1 or given.strides[0] >= wanted.n * item
    if not (in_order and apart):
        raise BadInput(f"{name} must be row-major without overlaps, got strides of {given.strides} bytes")


def check_weights(
    plan: KernelPlan, weights: npt.NDArray[np.floating[Any]], bias: npt.NDArray[np.floating[Any]] | None
) -> None:
    """Raise `BadInput` unless weights (M, K) and bias (M,), if any, are floating-point NumPy arrays."""
    for name, array, shape in (("weights", weights, (plan.m, plan.k)), ("bias", bias, (plan.m,))):
        if array is None:
            continue
        if not isinstance(array, np.ndarray):
            raise BadInput(f"{name} must be a NumPy array, got {type(array).__name__}")
        if array.shape != shape:
            raise BadInput(f"{name} must have shape {shape}, got {array.shape}")
        if array.dtype.kind != "f" and array.dtype.name != "bfloat16":
            raise BadInput(f"{name} must be floating-point, got {array.dtype.name}")


def _describe_out(framework: Framework, out: Any, wanted: OperandSpec) -> Given:
    other = framework_of("C", out)
    if other.name != framework.name:
        raise BadInput(f"C must be of {framework.name} like B, got an array of {other.name}")
    given = other.describe("C", out)
    check_given("C", given, wanted, wanted.m)
    return given


def _is_aligned(given: Given, wanted: OperandSpec) -> bool:
    """Return True if the first row and the row stride have the alignment that the kernel needs."""
    return given.strides[0] % wanted.align_bytes == 0 and given.pointer % wanted.align_bytes == 0


def _may_be_written(given: Given, wanted: OperandSpec) -> bool:
    """Return True if the kernel can write C in place. It must not write after the tokens of a row, because
    this memory may belong to other data.
    """
    return _is_aligned(given, wanted) and wanted.n == wanted.padded_n


def _may_be_read(given: Given, wanted: OperandSpec) -> bool:
    """Return True if B can be read in place.

    The values that the kernel reads after the tokens of a row only affect the padding of C, but the memory
    must be allocated, in the last row too. C of another operator fulfils this.
    """
    row_bytes = wanted.padded_n * wanted.item_bytes
    ends = (wanted.k - 1) * given.strides[0] + row_bytes
    padded = given.strides[0] >= row_bytes and ends <= given.room_bytes
    return _is_aligned(given, wanted) and (wanted.n == wanted.padded_n or padded)


def _place(given: Given) -> Place:
    return Place(given.pointer, given.strides[0])


def current_stream() -> int:
    """Return the handle of CuPy's current stream."""
    import cupy as cp

    return int(cp.cuda.get_current_stream().ptr)
