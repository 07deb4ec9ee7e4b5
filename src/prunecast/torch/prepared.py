"""A call like one before it: what shapes and strides decide is kept, addresses and the stream are asked for.

For the host an eager call is over when its launches are enqueued. To check an input and to describe it to
CuPy and to the driver took 100 us and more, several times what small products take. Here nothing is left of
it but what can differ between calls of equal shapes, strides, dtypes and devices.

A row of B (features, tokens) is all tokens of one feature. Kernels multiply whole groups of 8 tokens, and are
fastest where rows begin with a line of L2, which holds 64. What stands behind the tokens of a row is never
seen in C.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch

from prunecast.hardware.spec import LINE_BYTES
from prunecast.kernels import Operator
from prunecast.kernels.device.launch import Place
from prunecast.kernels.device.transpose.transpose import (
    ALIGN_BYTES,
    PreparedTranspose,
    Rows,
    may_transpose,
    transpose_rows,
)
from prunecast.plan.misaligned import ROW_BYTES, copied_row_bytes

ELEMENT_BYTES = 2
"""fp16 and bf16."""
LINE_TOKENS = LINE_BYTES // ELEMENT_BYTES


def padded_tokens(tokens: int, step: int) -> int:
    """Tokens of a row that holds `tokens`: 8, 16, 32 or 64, then the next multiple of `step`."""
    if tokens <= LINE_TOKENS:
        return copied_row_bytes(tokens, ELEMENT_BYTES) // ELEMENT_BYTES
    return -(-tokens // step) * step


def planned_tokens(b: torch.Tensor, step: int) -> int:
    """Tokens that a plan for B has: just its own where it can be read as it lies, or else `padded_tokens`."""
    tokens = int(b.shape[1])
    padded = padded_tokens(tokens, step)
    if has_room(b, padded):
        return padded
    return tokens if has_room(b, tokens) and tokens * ELEMENT_BYTES % ROW_BYTES == 0 else padded


def in_rows(b: torch.Tensor, tokens: int) -> torch.Tensor:
    """B with rows of so many tokens: B itself where they lie like that, or else a copy with zeros behind."""
    features, own = b.shape
    if has_room(b, tokens):
        return b.as_strided((features, tokens), (b.stride(0), 1))
    copy = b.new_empty((features, tokens))
    if not _transposed(b, copy):
        copy[:, :own] = b
        copy[:, own:] = 0
    return copy


def _transposed(b: torch.Tensor, to: torch.Tensor) -> bool:
    """Whether B (features, tokens), whose features lie side by side, has been turned into rows on its GPU."""
    x, rows = side_by_side(b), Rows(to.data_ptr(), to.stride(0) * ELEMENT_BYTES, *to.shape)
    if b.is_cuda and x is not None and may_transpose(x, rows):
        stream = torch.cuda.current_stream(b.device).cuda_stream
        with torch.cuda.device(b.device):
            transpose_rows(x, rows, device=b.device.index, stream=stream)
        return True
    return False


def side_by_side(b: torch.Tensor) -> Rows | None:
    """X (tokens, features) of B (features, tokens), where the features of a token lie side by side."""
    features, tokens = b.shape
    if b.element_size() != ELEMENT_BYTES or b.stride(0) != 1:
        return None
    row = int(b.stride(1)) if tokens > 1 else features  # no other token says how far apart they are
    return Rows(int(b.data_ptr()), row * ELEMENT_BYTES, tokens, features)


def has_room(b: torch.Tensor, tokens: int) -> bool:
    """Whether rows begin where kernels can begin, so many tokens apart at least, the last one too."""
    row, size_bytes = int(b.stride(0)), int(b.untyped_storage().nbytes())
    ends = int(b.storage_offset()) + (len(b) - 1) * row + tokens
    aligned = row * ELEMENT_BYTES % ROW_BYTES == 0 and int(b.data_ptr()) % ROW_BYTES == 0
    in_order = int(b.stride(1)) == 1 or b.shape[1] == 1
    return aligned and in_order and row >= tokens and ends * ELEMENT_BYTES <= size_bytes


try:
    from torch._C import _cuda_getCurrentRawStream as current_stream
except ImportError:  # torch that was built without CUDA

    def current_stream(device: int) -> int:  # type: ignore[misc]
        """Handle of torch's current stream of a device."""
        return int(torch.cuda.current_stream(device).cuda_stream)


Copy = Callable[[torch.Tensor, torch.Tensor, int], None]
"""Enqueues X into new rows of B, on torch's current stream, whose handle it is told."""


class Reading(NamedTuple):
    """How a kernel comes to B (features, tokens) of X."""

    planned: int
    """Tokens of the plan, and of a row of C."""
    row_bytes: int
    """Bytes from a row of B to the next."""
    copy: Copy | None
    """None where B is X, read as it lies."""
    begins: int
    """X must begin at a multiple of this."""
    least_room_bytes: int = 0
    """Bytes that must be readable from the beginning of X; 0 where X alone is enough."""


def reading_of(b: torch.Tensor, planned: int, step: int) -> Reading | None:
    """How to read every X that has the shape and strides of the one that `b` is a view of.

    None where a call found less than another may find: X begins within 16 bytes, or its rows lack room behind
    the last one.
    """
    (features, tokens), row, x = b.shape, int(b.stride(0)), side_by_side(b)
    rows = Rows(0, planned * ELEMENT_BYTES, features, planned)
    if x is not None and may_transpose(x._replace(pointer=0), rows):
        turn = PreparedTranspose(x, rows, device=b.device.index)
        return Reading(planned, rows.row_bytes, partial(_turn, turn), ALIGN_BYTES)
    padded = padded_tokens(tokens, step)
    if not _may_lie(b, padded):
        return Reading(planned, rows.row_bytes, partial(_copy, b.shape, b.stride()), ELEMENT_BYTES)
    if not has_room(b, planned) or planned < padded <= row:
        return None
    room = 0 if planned == tokens else ((features - 1) * row + planned) * ELEMENT_BYTES
    return Reading(planned, row * ELEMENT_BYTES, None, ALIGN_BYTES, room)


def _may_lie(b: torch.Tensor, padded: int) -> bool:
    """Whether B might be read in place if it only began right and had room, see `planned_tokens`."""
    tokens, row = int(b.shape[1]), int(b.stride(0))
    least = padded if tokens * ELEMENT_BYTES % ALIGN_BYTES else tokens
    in_order = int(b.stride(1)) == 1 or tokens == 1
    return in_order and row >= least and row * ELEMENT_BYTES % ALIGN_BYTES == 0


def _turn(turn: PreparedTranspose, x: torch.Tensor, rows: torch.Tensor, stream: int) -> None:
    turn(x.data_ptr(), rows.data_ptr(), stream)


def _copy(
    shape: tuple[int, int], strides: tuple[int, int], x: torch.Tensor, rows: torch.Tensor, stream: int
) -> None:
    """What stands behind the tokens stays as it is, and comes to what stands behind those of C."""
    rows.narrow(1, 0, shape[1]).copy_(x.as_strided(shape, strides))


class PreparedCall:
    """All of a call but addresses and the stream."""

    __slots__ = (
        "_b_shape",
        "_c_shape",
        "_device",
        "_fills_c",
        "_reading",
        "_y_shape",
        "_y_strides",
        "planned",
    )

    def __init__(self, reading: Reading, features: int, y: torch.Tensor, out_features: int) -> None:
        self._reading, self.planned = reading, reading.planned
        self._b_shape, self._c_shape = (features, self.planned), (out_features, self.planned)
        self._y_shape, self._y_strides, self._device = y.shape, y.stride(), y.device.index
        self._fills_c = y.numel() == out_features * self.planned

    def takes(self, x: torch.Tensor) -> bool:
        """Whether X, of the same shape and strides, also begins where kernels can and has enough room."""
        least = self._reading.least_room_bytes
        if x.data_ptr() % self._reading.begins:
            return False
        return least == 0 or x.untyped_storage().nbytes() - ELEMENT_BYTES * x.storage_offset() >= least

    def __call__(self, x: torch.Tensor, operator: Operator) -> torch.Tensor:
        """Y of X, enqueued on the current stream of their device."""
        if torch.cuda.current_device() == self._device:
            return self._enqueued(x, operator)
        with torch.cuda.device(self._device):
            return self._enqueued(x, operator)

    def _enqueued(self, x: torch.Tensor, operator: Operator) -> torch.Tensor:
        """B may be freed before it is read: what torch puts there next waits on the same stream."""
        stream, b, reading = current_stream(self._device), x, self._reading
        if reading.copy is not None:
            b = x.new_empty(self._b_shape)
            reading.copy(x, b, stream)
        y = self._new_y(x)
        c_row_bytes = self.planned * ELEMENT_BYTES
        operator.enqueue(Place(b.data_ptr(), reading.row_bytes), Place(y.data_ptr(), c_row_bytes), stream)
        return y

    def _new_y(self, x: torch.Tensor) -> torch.Tensor:
        """Y in the memory of whole rows of C."""
        if self._fills_c:
            return x.new_empty_strided(self._y_shape, self._y_strides)
        return x.new_empty(self._c_shape).as_strided(self._y_shape, self._y_strides)


def prepared_call(
    x: torch.Tensor, b: torch.Tensor, y: torch.Tensor, planned: int, step: int
) -> PreparedCall | None:
    """All that stays of the call which made Y of X; None where it stays as it was, see `reading_of`.

    Parameters
    ----------
    b : X as B (features, tokens), a view or a copy
    """
    if b.data_ptr() != x.data_ptr():
        return None
    reading = reading_of(b, planned, step)
    out_features = y.numel() // b.shape[1]
    return None if reading is None else PreparedCall(reading, len(b), y, out_features)
