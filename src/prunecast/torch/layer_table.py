"""Table of layers: the data of a layer that operators do not find in their tensors.

Its keys are numbers, which traced graphs contain. A number is a hash of the layer's tiles, dtype and GPU, so
that it is the same in every process. An operator whose number is not in the table adds the layer from its
tensors.

This module also identifies the GPU of a device: it compares a device with the spec that was planned for, and
finds the spec of a device.
"""

import hashlib
from typing import Any, NamedTuple

import torch

from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec, gpu_names, load_gpu
from prunecast.patterns import TileMap
from prunecast.torch.weight_layouts import tiles_from_tensor


def check_gpu(device: torch.device, gpu: GpuSpec) -> None:
    """Raise BadInput if a device is another GPU than the one that was planned for.

    Compute capability and number of SMs are compared.
    """
    found = torch.cuda.get_device_properties(device)
    if not _fits(gpu, found):
        raise BadInput(
            f"planned for {gpu.name} with {gpu.sm_count} SMs, {device} is a {found.name} with "
            f"{found.multi_processor_count}"
        )


def gpu_of(device: torch.device) -> GpuSpec:
    """Return the spec of the GPU of a device.

    Raises
    ------
    BadInput : the device is not a GPU, or there is no spec of it
    """
    if device.type != "cuda":
        raise BadInput("the weights lie on a CPU: name the GPU to plan for, gpu=...")
    found = torch.cuda.get_device_properties(device)
    fitting = [spec for spec in map(load_gpu, gpu_names()) if _fits(spec, found)]
    if not fitting:
        raise BadInput(f"{device} is a {found.name}, which prunecast has no spec of: name one, gpu=...")
    # PCIe and NVL boards of a GPU name their form, but SXM boards may not: "NVIDIA H200"
    words = {*found.name.lower().replace("-", " ").split()}
    return max(fitting, key=lambda spec: (len(words.intersection(spec.name.split("-"))), "sxm" in spec.name))


def _fits(spec: GpuSpec, gpu: Any) -> bool:
    return (spec.compute_capability, spec.sm_count) == (10 * gpu.major + gpu.minor, gpu.multi_processor_count)


DTYPES = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32"}


class KnownLayer(NamedTuple):
    """Entry of the table of layers: tiles, dtype and GPU of a pruned matrix, without its weights."""

    key: int
    tiles: TileMap
    """The tile map, in which every row is in a tile."""
    dtype: str
    gpu: GpuSpec


_LAYERS: dict[int, KnownLayer] = {}


def dtype_name(dtype: torch.dtype) -> str:
    """Return `fp16`, `bf16` or `fp32`; raise BadInput for another dtype."""
    if dtype not in DTYPES:
        raise BadInput(f"prunecast.torch runs fp16, bf16 and fp32 weights, got {dtype}: cast the model first")
    return DTYPES[dtype]


def register_layer(tiles: TileMap, dtype: str, gpu: GpuSpec) -> KnownLayer:
    """Return the table's entry of a layer with these tiles, dtype and GPU; add it if it is missing.

    The key of an entry is below 2^60.
    """
    digest = hashlib.sha256(f"{tiles.fingerprint()} {dtype} {gpu.name}".encode()).hexdigest()
    key = int(digest[:15], 16)
    return _LAYERS.setdefault(key, KnownLayer(key, tiles, dtype, gpu))


def known_layer(key: int, tiles: torch.Tensor, dtype: torch.dtype | str, gpu: str) -> KnownLayer:
    """Return the layer with the number `key`. If it is not in the table, add it from its tensor of tiles.

    Raises
    ------
    BadInput : the tensor of tiles belongs to a layer with another number, or would have to be read from the
        GPU while a graph is being captured
    """
    found = _LAYERS.get(key)
    if found is None:
        if tiles.is_cuda and torch.cuda.is_current_stream_capturing():
            raise BadInput("nothing is prepared for this layer: call it once before it is captured")
        name = dtype if isinstance(dtype, str) else dtype_name(dtype)
        found = register_layer(tiles_from_tensor(tiles), name, load_gpu(gpu))
        if found.key != key:
            raise BadInput(f"these tiles have the number {found.key}, the graph was traced with {key}")
    return found
