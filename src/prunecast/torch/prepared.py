"""A call like one before it: what shapes and strides decide is kept, addresses and the stream are asked for.

For the host an eager call is over when its launches are enqueued. To check an input and to describe it to
CuPy and to the driver took 100 us and more, several times what small products take. Here nothing is left of
it but what can differ between calls of equal shapes, strides, dtypes and devices.
"""

from typing import NamedTuple

import torch

from prunecast.kernels import Operator
from prunecast.kernels.cuda.places import Place
from prunecast.kernels.cuda.transpose.transpose import ALIGN_BYTES, PreparedTranspose, Rows, may_transpose
from prunecast.torch.token_rows import ELEMENT_BYTES, has_room, padded_tokens, side_by_side

try:
    from torch._C import _cuda_getCurrentRawStream as current_stream
except ImportError:  # torch that was built without CUDA

    def current_stream(device: int) -> int:
        """Handle of torch's current stream of a device."""
        return int(torch.cuda.current_stream(device).cuda_stream)


__all__ = ["PreparedCall", "Reading", "prepared_call", "reading_of"]


class Reading(NamedTuple):
    """How a kernel comes to B (features, tokens) of X."""

    planned: int
    """Tokens of the plan, and of a row of C."""
    row_bytes: int
    """From a row of B to the next."""
    turn: PreparedTranspose | None
    """Makes B of X; None where B is X, read as it lies."""
    least_room_bytes: int
    """Of memory from the beginning of X on; 0 where its own is enough."""


def reading_of(b: torch.Tensor, planned: int, step: int) -> Reading | None:
    """The same for every X that is like the one that `b` is a view of, and begins at 16 bytes too.

    None where torch copies: features and tokens lie apart, or rows do not begin at multiples of 16 bytes; and
    where rows of whole lines lack nothing but room behind the last one, which another X might have.
    """
    (features, tokens), x = b.shape, side_by_side(b)
    if x is not None:
        return _turned(x, planned, b.device.index)
    row = int(b.stride(0))
    if not has_room(b, planned) or planned < padded_tokens(tokens, step) <= row:
        return None
    room = 0 if planned == tokens else ((features - 1) * row + planned) * ELEMENT_BYTES
    return Reading(planned, row * ELEMENT_BYTES, None, room)


def _turned(x: Rows, planned: int, device: int) -> Reading | None:
    row_bytes = planned * ELEMENT_BYTES
    b = Rows(0, row_bytes, x.columns, planned)
    if not may_transpose(x, b):
        return None
    return Reading(planned, row_bytes, PreparedTranspose(x, b, device=device), 0)


class PreparedCall:
    """All of a call but addresses and the stream."""

    __slots__ = ("_b_shape", "_c_shape", "_device", "_reading", "_y_shape", "_y_strides", "planned")

    def __init__(self, reading: Reading, features: int, y: torch.Tensor, out_features: int) -> None:
        self._reading, self.planned = reading, reading.planned
        self._b_shape, self._c_shape = (features, self.planned), (out_features, self.planned)
        self._y_shape, self._y_strides, self._device = y.shape, y.stride(), y.device.index

    def takes(self, x: torch.Tensor) -> bool:
        """Whether X, of the same shape and strides, also begins where kernels can and has enough room."""
        if x.data_ptr() % ALIGN_BYTES:
            return False
        least = self._reading.least_room_bytes
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
        if reading.turn is not None:
            b = x.new_empty(self._b_shape)
            reading.turn(x.data_ptr(), b.data_ptr(), stream)
        c = x.new_empty(self._c_shape)
        c_row_bytes = self.planned * ELEMENT_BYTES
        operator.enqueue(Place(b.data_ptr(), reading.row_bytes), Place(c.data_ptr(), c_row_bytes), stream)
        return c.as_strided(self._y_shape, self._y_strides)


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
