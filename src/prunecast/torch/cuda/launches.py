"""Launches of layers: what a plan needs on the device, kept for each number of tokens that is planned for.

Records of a launch are made at its first call, which plans, compiles and copies, and so cannot happen inside
of a captured CUDA graph. They hold no weights: where these, x and y lie is told at every call.
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
    """What a layer brings to its launches."""

    images: list[torch.Tensor]
    tiles: torch.Tensor
    bias: torch.Tensor | None
    gpu: str
    """Name of the GPU planned for."""


class _Key(NamedTuple):
    plan: int
    tokens: int
    epilogue: Epilogue
    has_bias: bool
    device: int
    adds: bool
    """Whether it adds to what y holds."""
    width: int
    """Width of the first image, which tells 2:4 in tiles from the tiles."""


class Prepared(NamedTuple):
    """A launch, and which of the layer's images it reads."""

    launch: LayerLaunch
    image: int

    def __call__(
        self,
        x_t: torch.Tensor,
        images: list[torch.Tensor],
        bias: torch.Tensor | None,
        y: torch.Tensor,
    ) -> None:
        """Enqueue it."""
        device = x_t.device.index
        if torch._C._cuda_getDevice() == device:
            self.launch(x_t, images[self.image], bias, y)
        else:
            with torch.cuda.device(device):
                self.launch(x_t, images[self.image], bias, y)


_LAUNCHES: dict[str, type[LayerLaunch]] = {STAGES: TileLaunch, FRAGMENTS: SmallLaunch, HALVES: HalvesLaunch}
_PREPARED: dict[tuple[Any, ...], Prepared] = {}


def launch_of(call: LinearCall, *, adds: bool = False) -> Prepared:
    """The launch for such a call, prepared if it is the first; `adds` to what y holds.

    Raises
    ------
    BadInput : the device is another GPU than the one planned for, x_t lies otherwise, or a graph is being
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
    """`launch_of` an x of that device and dtype, however it lies."""
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
