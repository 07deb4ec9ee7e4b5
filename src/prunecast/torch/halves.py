"""Pipeline stages of 2:4 weights in the layout of the sparse kernel, as tensors: kept values, then metadata.

The NumPy packing of `kernels.two_of_four` produces the same bytes, which the tests compare, and documents the
metadata layout of the hardware. The metadata (positions of the kept values) follows the values as bits of the
weights' dtype. Such a tensor may be copied and moved, but must never be cast.
"""

import torch

from prunecast.errors import BadInput
from prunecast.kernels.device.tile_stages import PLACES_OF_MASK

HALF_WIDTH = 36
"""Elements of a row of a stage: 32 values, eight bytes of places. Kind: CUDA source, `sparse_args.cuh`."""
_VALUES, _CHUNK, _CONSUMERS = 32, 8, 2


def to_halves(natural: torch.Tensor) -> torch.Tensor:
    """Return the packed stages (stages, block_m, 36) of (stages, block_m, 64). Nonzero elements are kept.

    Raises
    ------
    BadInput : three or four of four neighbours are not zero
    """
    stages, block_m, _ = natural.shape
    fours = natural.reshape(stages, block_m, 16, 4)
    kept = (fours != 0).to(torch.uint8)
    if kept.numel() and int(kept.sum(-1).max()) > 2:
        raise BadInput("2:4: more than two of four neighbours are not zero")
    bits = kept.new_tensor([1, 2, 4, 8])
    first, second, has_first, has_second = (
        torch.from_numpy(column.copy()).to(natural.device) for column in PLACES_OF_MASK
    )
    code = (kept * bits).sum(-1).long()
    places = torch.stack((first[code], second[code]), -1)
    none = torch.stack((has_first[code], has_second[code]), -1) == 0
    values = fours.gather(-1, places.long()).masked_fill(none, 0).reshape(stages, block_m, _VALUES)
    words = _words((places[..., 0] | places[..., 1] << 2).long(), block_m)
    whole = torch.cat((_swapped(values).flatten(1), words.view(natural.dtype).flatten(1)), 1)
    return whole.reshape(stages, block_m, HALF_WIDTH)


def from_halves(image: torch.Tensor) -> torch.Tensor:
    """Return the dense stages (stages, block_m, 64) of packed ones: the inverse of `to_halves`."""
    stages, block_m, _ = image.shape
    flat = image.reshape(stages, -1)
    values = _swapped(flat[:, : block_m * _VALUES].reshape(stages, block_m, _VALUES))
    words = flat[:, block_m * _VALUES :].contiguous().view(torch.int32).long()
    places = _places(words, block_m)
    both = torch.stack((places & 3, places >> 2), -1)
    natural = image.new_zeros((stages, block_m, 16, 4))
    natural.scatter_(-1, both, values.reshape(stages, block_m, 16, 2))
    return natural.reshape(stages, block_m, 64)


def _swapped(values: torch.Tensor) -> torch.Tensor:
    """Return values with chunk c (8 values) of row r at chunk c xor (r / 2 mod 4), its own inverse."""
    chunks = values.reshape(*values.shape[:2], _VALUES // _CHUNK, _CHUNK)
    row = torch.arange(values.shape[1], device=values.device)[:, None]
    chunk = torch.arange(_VALUES // _CHUNK, device=values.device)[None, :]
    return chunks[:, row, chunk ^ (row // 2 % 4)].reshape(values.shape)


def _shifts(device: torch.device) -> torch.Tensor:
    """Return the bit shifts (2, 1, 1, 4) within a thread's metadata word.

    The first axis selects the row or the one 8 below it, the last one of the four groups of four in 16
    columns.
    """
    halves, fours = torch.arange(2, device=device) * 16, torch.arange(4, device=device) * 4
    return halves[:, None, None, None] + fours


def _words(places: torch.Tensor, block_m: int) -> torch.Tensor:
    """Return the metadata words (stages, words) int32 of positions (stages, block_m, 16).

    The words are in the order [consumer][thread][group].
    """
    groups = block_m // (64 * _CONSUMERS)
    names = places.reshape(-1, _CONSUMERS, groups, 4, 2, 8, 4, 4)
    words = (names << _shifts(places.device)).sum((4, 7))
    in_order = words.permute(0, 1, 3, 4, 5, 2).reshape(places.shape[0], -1)
    return torch.where(in_order >= 1 << 31, in_order - (1 << 32), in_order).to(torch.int32)


def _places(words: torch.Tensor, block_m: int) -> torch.Tensor:
    """Return the positions (stages, block_m, 16) of metadata words: the inverse of `_words`."""
    groups = block_m // (64 * _CONSUMERS)
    names = words.reshape(-1, _CONSUMERS, 4, 8, 4, groups).permute(0, 1, 5, 2, 3, 4)
    apart = names[:, :, :, :, None, :, :, None] >> _shifts(words.device) & 15
    return apart.reshape(words.shape[0], block_m, 16)
