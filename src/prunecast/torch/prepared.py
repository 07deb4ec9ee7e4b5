"""Prepared calls: everything that shapes and strides determine is cached; pointers and the stream are not.

For the host an eager call is over when its launches are enqueued. Checking an input and describing it to CuPy
and the driver needs 100 us and more, several times the duration of small products. A prepared call does only
the work that can differ between calls of equal shapes, strides, dtypes and devices.

A row of B (features, tokens) is all tokens of one feature. Kernels multiply whole groups of 8 tokens, and are
fastest if rows are aligned to L2 lines, which hold 64. The contents of the padding after the tokens of a row
never affect the visible part of C.
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
"""Bytes of fp16 and bf16."""
LINE_TOKENS = LINE_BYTES // ELEMENT_BYTES


def padded_tokens(tokens: int, step: int) -> int:
    """Return the padded number of tokens of a row: 8, 16, 32 or 64, then the next multiple of `step`."""
    if tokens <= LINE_TOKENS:
        return copied_row_bytes(tokens, ELEMENT_BYTES) // ELEMENT_BYTES
    return -(-tokens // step) * step


def planned_tokens(b: torch.Tensor, step: int) -> int:
    """Return the number of tokens of a plan for B: its own if it can be read in place, or else
    `padded_tokens`.
    """
    tokens = int(b.shape[1])
    padded = padded_tokens(tokens, step)
    if has_room(b, padded):
        return padded
    return tokens if has_room(b, tokens) and tokens * ELEMENT_BYTES % ROW_BYTES == 0 else padded


def in_rows(b: torch.Tensor, tokens: int) -> torch.Tensor:
    """Return B with rows of `tokens` tokens: a view if the memory of B allows it, else a copy padded with
    zeros.
    """
    features, own = b.shape
    if has_room(b, tokens):
        return b.as_strided((features, tokens), (b.stride(0), 1))
    copy = b.new_empty((features, tokens))
    if not _transposed(b, copy):
        copy[:, :own] = b
        copy[:, own:] = 0
    return copy


def _transposed(b: torch.Tensor, to: torch.Tensor) -> bool:
    """Transpose a token-major B (features, tokens) on its GPU; return whether this was possible."""
    x, rows = side_by_side(b), Rows(to.data_ptr(), to.stride(0) * ELEMENT_BYTES, *to.shape)
    if b.is_cuda and x is not None and may_transpose(x, rows):
        stream = torch.cuda.current_stream(b.device).cuda_stream
        with torch.cuda.device(b.device):
            transpose_rows(x, rows, device=b.device.index, stream=stream)
        return True
    return False


def side_by_side(b: torch.Tensor) -> Rows | None:
    """Return X (tokens, features) of B (features, tokens) if the features of a token are contiguous, else
    None.
    """
    features, tokens = b.shape
    if b.element_size() != ELEMENT_BYTES or b.stride(0) != 1:
        return None
    row = int(b.stride(1)) if tokens > 1 else features  # the stride of a single token is arbitrary
    return Rows(int(b.data_ptr()), row * ELEMENT_BYTES, tokens, features)


def has_room(b: torch.Tensor, tokens: int) -> bool:
    """Return whether B can be read in place as rows of `tokens` tokens.

    The rows must be aligned and at least `tokens` elements apart, and the last row must also fit into the
    storage.
    """
    row, size_bytes = int(b.stride(0)), int(b.untyped_storage().nbytes())
    ends = int(b.storage_offset()) + (len(b) - 1) * row + tokens
    aligned = row * ELEMENT_BYTES % ROW_BYTES == 0 and int(b.data_ptr()) % ROW_BYTES == 0
    in_order = int(b.stride(1)) == 1 or b.shape[1] == 1
    return aligned and in_order and row >= tokens and ends * ELEMENT_BYTES <= size_bytes


try:
    from torch._C import _cuda_getCurrentRawStream as current_stream
except ImportError:  # torch that was built without CUDA

    def current_stream(device: int) -> int:  # type: ignore[misc]
        """Return the handle of torch's current stream of a device."""
        return int(torch.cuda.current_stream(device).cuda_stream)


Copy = Callable[[torch.Tensor, torch.Tensor, int], None]
"""Enqueues the copy of X into new rows of B on the stream with the given handle, torch's current one."""


class Reading(NamedTuple):
    """How a kernel obtains B (features, tokens) from X."""

    planned: int
    """Tokens of the plan, and of a row of C."""
    row_bytes: int
    """Bytes from a row of B to the next."""
    copy: Copy | None
    """Copies X to B; None if B is X, read in place."""
    begins: int
    """Required alignment of X in bytes."""
    least_room_bytes: int = 0
    """Bytes that must be readable from the beginning of X; 0 if X itself is enough."""


def reading_of(b: torch.Tensor, planned: int, step: int) -> Reading | None:
    """Return how to read every X with the shape and strides of the X that `b` is a view of.

    Return None if another X could be read more cheaply than this one: this X is not aligned to 16 bytes, or
    lacks memory after its last row.
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
    """Return whether B could be read in place if it were aligned and had enough memory, see
    `planned_tokens`.
    """
    tokens, row = int(b.shape[1]), int(b.stride(0))
    least = padded if tokens * ELEMENT_BYTES % ALIGN_BYTES else tokens
    in_order = int(b.stride(1)) == 1 or tokens == 1
    return in_order and row >= least and row * ELEMENT_BYTES % ALIGN_BYTES == 0


def _turn(turn: PreparedTranspose, x: torch.Tensor, rows: torch.Tensor, stream: int) -> None:
    turn(x.data_ptr(), rows.data_ptr(), stream)


def _copy(
    shape: tuple[int, int], strides: tuple[int, int], x: torch.Tensor, rows: torch.Tensor, stream: int
) -> None:
    """Copy X into B. The padding stays uninitialised; it only affects the padding of C."""
    rows.narrow(1, 0, shape[1]).copy_(x.as_strided(shape, strides))


class PreparedCall:
    """Launch parameters of a call; pointers and the stream are bound per call."""

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
        """Return whether X, of the same shape and strides, also has the alignment and the memory that are
        required.
        """
        least = self._reading.least_room_bytes
        if x.data_ptr() % self._reading.begins:
            return False
        return least == 0 or x.untyped_storage().nbytes() - ELEMENT_BYTES * x.storage_offset() >= least

    def __call__(self, x: torch.Tensor, operator: Operator) -> torch.Tensor:
        """Return y of X, enqueued on the current stream of their device."""
        if torch.cuda.current_device() == self._device:
            return self._enqueued(x, operator)
        with torch.cuda.device(self._device):
            return self._enqueued(x, operator)

    def _enqueued(self, x: torch.Tensor, operator: Operator) -> torch.Tensor:
        """Enqueue the launches.

        B may be freed before it is read: torch reuses its memory only for later work on the same stream.
        """
        stream, b, reading = current_stream(self._device), x, self._reading
        if reading.copy is not None:
            b = x.new_empty(self._b_shape)
            reading.copy(x, b, stream)
        y = self._new_y(x)
        c_row_bytes = self.planned * ELEMENT_BYTES
        operator.enqueue(Place(b.data_ptr(), reading.row_bytes), Place(y.data_ptr(), c_row_bytes), stream)
        return y

    def _new_y(self, x: torch.Tensor) -> torch.Tensor:
        """Return an uninitialised y in the memory of whole rows of C."""
        if self._fills_c:
            return x.new_empty_strided(self._y_shape, self._y_strides)
        return x.new_empty(self._c_shape).as_strided(self._y_shape, self._y_strides)


def prepared_call(
    x: torch.Tensor, b: torch.Tensor, y: torch.Tensor, planned: int, step: int
) -> PreparedCall | None:
    """Return the prepared form of the call that computed Y of X; None if it cannot be reused, see
    `reading_of`.

    Parameters
    ----------
    b : X as B (features, tokens), a view or a copy
    """
    if b.data_ptr() != x.data_ptr():
        return None
    reading = reading_of(b, planned, step)
    out_features = y.numel() // b.shape[1]
    return None if reading is None else PreparedCall(reading, len(b), y, out_features)
