"""What an operator has to know of a layer besides its tensors, by a number that stands in traced graphs.

The number is a hash of the layer's tiles, dtype and GPU, so that it is the same in another process; an
operator that meets one it does not know makes the entry again from its tensors.

Also which GPU a device is: the spec that was planned for, or the one that fits.
"""

import hashlib
from typing import NamedTuple

import torch

from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec, gpu_names, load_gpu
from prunecast.patterns import TileMap
from prunecast.torch.images import tiles_from_tensor


def check_gpu(device: torch.device, gpu: GpuSpec) -> None:
    """Refuse a device that is another GPU than the one planned for, with `BadInput`."""
    found = torch.cuda.get_device_properties(device)
    if (10 * found.major + found.minor, found.multi_processor_count) != (
        gpu.compute_capability,
        gpu.sm_count,
    ):
        raise BadInput(
            f"planned for {gpu.name} with {gpu.sm_count} SMs, {device} is a {found.name} with "
            f"{found.multi_processor_count}"
        )


def gpu_of(device: torch.device) -> GpuSpec:
    """The spec of the GPU that a device is.

    Raises
    ------
    BadInput : it is none, or none that is known
    """
    if device.type != "cuda":
        raise BadInput("the weights lie on a CPU: name the GPU to plan for, gpu=...")
    found = torch.cuda.get_device_properties(device)
    facts = (10 * found.major + found.minor, found.multi_processor_count)
    specs = [load_gpu(name) for name in gpu_names()]
    fitting = [spec for spec in specs if (spec.compute_capability, spec.sm_count) == facts]
    if not fitting:
        raise BadInput(f"{device} is a {found.name}, which prunecast has no spec of: name one, gpu=...")
    return max(fitting, key=lambda spec: sum(word in found.name.lower() for word in spec.name.split("-")))


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
