"""What an operator has to know of a layer besides its tensors, by a number that stands in traced graphs.

The number is a hash of the layer's tiles, dtype and GPU, so that it is the same in another process; an
operator that meets one it does not know makes the entry again from its tensors.
"""

import hashlib
from typing import NamedTuple

import torch

from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec, load_gpu
from prunecast.patterns import TileMap
from prunecast.torch.images import tiles_from_tensor

__all__ = ["DTYPES", "Layer", "dtype_name", "known_layer", "layer_key", "register_layer"]

DTYPES = {torch.float16: "fp16", torch.bfloat16: "bf16"}


class Layer(NamedTuple):
    """A pruned matrix, without its weights."""

    key: int
    tiles: TileMap
    """Every row lies in a tile."""
    dtype: str
    gpu: GpuSpec


_LAYERS: dict[int, Layer] = {}


def dtype_name(dtype: torch.dtype) -> str:
    """`fp16` or `bf16`; raises BadInput for another."""
    if dtype not in DTYPES:
        raise BadInput(f"prunecast.torch runs fp16 and bf16 weights, got {dtype}: cast the model first")
    return DTYPES[dtype]


def layer_key(tiles: TileMap, dtype: str, gpu: str) -> int:
    """A number below 2^60 that stands for such a layer."""
    digest = hashlib.sha256(f"{tiles.fingerprint()} {dtype} {gpu}".encode()).hexdigest()
    return int(digest[:15], 16)


def register_layer(tiles: TileMap, dtype: str, gpu: GpuSpec) -> Layer:
    """The entry of such a layer, new or known."""
    key = layer_key(tiles, dtype, gpu.name)
    return _LAYERS.setdefault(key, Layer(key, tiles, dtype, gpu))


def known_layer(key: int, tiles: torch.Tensor, dtype: torch.dtype, gpu: str) -> Layer:
    """The entry of a number, made from the layer's tensors where there is none.

    Raises
    ------
    BadInput : the number is that of another layer
    """
    found = _LAYERS.get(key)
    if found is None:
        found = register_layer(tiles_from_tensor(tiles), dtype_name(dtype), load_gpu(gpu))
        if found.key != key:
            raise BadInput(f"these tiles have the number {found.key}, the graph was traced with {key}")
    return found
