"""Launches of layers: the device data of a plan, cached for each planned number of tokens.

The record of a launch is made at its first call, which plans, compiles and copies, and therefore cannot
happen during the capture of a CUDA graph. Records hold no weights: the pointers of weights, x and y are
passed at every call.
"""

from typing import Any, NamedTuple

import torch

from prunecast.errors import BadInput
from prunecast.torch.cuda.device import is_capturing
from prunecast.torch.cuda.layer_launch import LayerLaunch
from prunecast.torch.cuda.tiles import HalvesLaunch, SmallLaunch, TileLaunch
from prunecast.torch.epilogue import Epilogue, LinearCall
from prunecast.torch.forms import plan_for, planned_tokens
from prunecast.torch.images import FRAGMENTS, HALVES, STAGES, layout_of
from prunecast.torch.layer_table import check_gpu, known_layer


class LayerTensors(NamedTuple):
    """The tensors of a layer that its launches read."""

    images: list[torch.Tensor]
    tiles: torch.Tensor
    bias: torch.Tensor | None
    gpu: str
    """Name of the GPU to plan for."""


class _Key(NamedTuple):
    plan: int
    tokens: int
    epilogue: Epilogue
    has_bias: bool
    device: int
    adds: bool
    """Whether the product is added to the values in y."""
    width: int
    """Width of the first packed weights, which distinguishes 2:4 in tiles from plain tiles."""


class Prepared(NamedTuple):
    """A launch, and the index of the packed weights that it reads."""

    launch: LayerLaunch
    image: int

    def __call__(
        self,
        x_t: torch.Tensor,
        images: list[torch.Tensor],
        bias: torch.Tensor | None,
        y: torch.Tensor,
    ) -> None:
        """Enqueue the launch."""
        device = x_t.device.index
        if torch._C._cuda_getDevice() == device:
            self.launch(x_t, images[self.image], bias, y)
        else:
            with torch.cuda.device(device):
                self.launch(x_t, images[self.image], bias, y)


_LAUNCHES: dict[str, type[LayerLaunch]] = {STAGES: TileLaunch, FRAGMENTS: SmallLaunch, HALVES: HalvesLaunch}
_PREPARED: dict[tuple[Any, ...], Prepared] = {}


def launch_of(call: LinearCall, *, adds: bool = False) -> Prepared:
    """Return the launch for such a call, prepared if it is the first. With `adds`, it adds to the values in
    y.

    Raises
    ------
    BadInput : the device is another GPU than the one planned for, x_t has other strides, or a graph is being
        captured and there was no call before it
    """
    if call.x_t.stride(1) != 1 and call.x_t.shape[1] > 1:
        raise BadInput(f"x_t must have its tokens side by side, got strides {call.x_t.stride()}")
    layer = LayerTensors(call.images, call.tiles, call.bias, call.gpu)
    return prepared_launch(call.plan, call.tokens, call.epilogue, call.x_t, layer, adds=adds)


def prepared_launch(
    plan: int,
    tokens: int,
    epilogue: Epilogue,
    x: torch.Tensor,
    layer: LayerTensors,
    *,
    adds: bool = False,
) -> Prepared:
    """Return the launch of `launch_of` for any x of that device and dtype, whatever its strides."""
    key = _Key(
        plan,
        planned_tokens(tokens),
        epilogue,
        layer.bias is not None,
        x.device.index,
        adds,
        layer.images[0].shape[-1],
    )
    found = _PREPARED.get(key)
    if found is None:
        if is_capturing():
            wanted = "call the layer once before it is captured"
            raise BadInput(f"nothing is prepared for {tokens} tokens: {wanted}")
        found = _prepared(key, x, layer)
        _PREPARED[key] = found
    return found


def _prepared(key: _Key, x: torch.Tensor, given: LayerTensors) -> Prepared:
    layer = known_layer(key.plan, given.tiles, x.dtype, given.gpu)
    check_gpu(x.device, layer.gpu)
    layouts = [layout_of(image) for image in given.images]
    plan, image = plan_for(layer.tiles, key.tokens, layer.dtype, layer.gpu, layouts, glu=key.epilogue.glu)
    kind = _LAUNCHES[layouts[image].kind]
    with torch.cuda.device(x.device):
        return Prepared(kind(plan, key.epilogue, bias=key.has_bias, adds=key.adds, device=x.device), image)
