"""Launches of fp8 products, cached for each planned number of tokens."""

from typing import NamedTuple

import torch

from prunecast.choice import fastest_plan
from prunecast.errors import BadInput
from prunecast.kernels.device.operator import Call
from prunecast.kernels.tile.cuda.fp8 import Fp8TileOperator
from prunecast.plan.misaligned import planned_tokens
from prunecast.torch.cuda.launches import is_capturing, stream_of
from prunecast.torch.epilogue import Epilogue, Fp8Call, changes_of
from prunecast.torch.layer_table import DTYPES, check_gpu, known_layer


class _Fp8Key(NamedTuple):
    plan: int
    tokens: int
    epilogue: Epilogue
    has_bias: bool
    device: int
    dtype: torch.dtype
    adds: bool
    """Whether the product is added to the values in y."""


_PREPARED: dict[_Fp8Key, Fp8TileOperator] = {}


def prepared(
    plan: int,
    tokens: int,
    epilogue: Epilogue,
    tiles: torch.Tensor,
    gpu: str,
    like: torch.Tensor,
    bias: torch.Tensor | None,
    *,
    adds: bool = False,
) -> Fp8TileOperator:
    """Return the launch of an fp8 product for `tokens` tokens, and prepare it at the first request.

    C has the dtype of `like`. With `adds`, the launch adds to the values in C.

    Raises
    ------
    BadInput : the device is another GPU than the one planned for, or a graph is being captured and there was
        no call before it
    """
    key = _Fp8Key(
        plan, planned_tokens(tokens), epilogue, bias is not None, tiles.device.index, like.dtype, adds
    )
    found = _PREPARED.get(key)
    if found is None:
        if is_capturing():
            raise BadInput(
                f"nothing is prepared for {tokens} tokens: call the layer once before it is captured"
            )
        layer = known_layer(plan, tiles, "fp8", gpu)
        check_gpu(tiles.device, layer.gpu)
        kernel_plan = fastest_plan("stspmm", layer.tiles, key.tokens, "fp8", layer.gpu)
        with torch.cuda.device(tiles.device):
            found = _PREPARED[key] = Fp8TileOperator(
                kernel_plan,
                Fp8TileOperator.records(kernel_plan),
                device=key.device,
                activation=epilogue.activation,
                bias=key.has_bias,
                output=DTYPES[like.dtype],
                changes={"GLU": int(epilogue.glu), **changes_of(epilogue, adds=adds)},
            )
    return found


def launch(call: Fp8Call, y: torch.Tensor, *, adds: bool = False) -> None:
    """Compute y (tokens, rows) of a call; with `adds`, add the product to the values in y."""
    x = call.x if call.x.is_contiguous() else call.x.contiguous()
    operator = prepared(call.plan, len(x), call.epilogue, call.tiles, call.gpu, y, call.bias, adds=adds)
    device, bias = x.device.index, 0 if call.bias is None else call.bias.data_ptr()
    sizes = Call(
        call.image.data_ptr(),
        bias,
        b_row_bytes=x.shape[1],
        c_row_bytes=call.rows * y.element_size(),
        tokens=-(-len(x) // 8) * 8,
        c_tokens=len(x),
        row_scales=call.row_scales.data_ptr(),
    )
    scales = call.scales.contiguous()
    with torch.cuda.device(device):
        operator.at(sizes, x.data_ptr(), y.data_ptr(), stream_of(device), scales.data_ptr())
