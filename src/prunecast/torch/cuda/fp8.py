"""Launches of fp8 products, cached for each planned number of tokens."""

import torch

from prunecast.choice import fastest_plan
from prunecast.kernels.device.operator import Call
from prunecast.kernels.tile.cuda.fp8 import Fp8TileOperator
from prunecast.plan.misaligned import planned_tokens
from prunecast.torch.cuda.launches import prepared_once
from prunecast.torch.cuda.stream import stream_of
from prunecast.torch.epilogue import Fp8Call, PackedLayer, changes_of
from prunecast.torch.layer_table import DTYPES, known_layer


def prepared(layer: PackedLayer, tokens: int, like: torch.Tensor, *, adds: bool = False) -> Fp8TileOperator:
    """Return the launch of an fp8 product for `tokens` tokens, and prepare it at the first request.

    C has the dtype of `like`. With `adds`, the launch adds to the values in C.

    Raise BadInput in the same cases as `prepared_once`.
    """
    planned, epilogue = planned_tokens(tokens), layer.epilogue
    known = known_layer(layer.plan, layer.tiles, "fp8", layer.gpu)
    has_bias, device = layer.bias is not None, layer.tiles.device

    def prepare() -> Fp8TileOperator:
        kernel_plan = fastest_plan("stspmm", known.tiles, planned, "fp8", known.gpu)
        return Fp8TileOperator(
            kernel_plan,
            Fp8TileOperator.records(kernel_plan),
            device=device.index,
            activation=epilogue.activation,
            bias=has_bias,
            output=DTYPES[like.dtype],
            changes={"GLU": int(epilogue.glu), **changes_of(epilogue, adds=adds)},
        )

    key = ("fp8", layer.plan, planned, epilogue, has_bias, device.index, like.dtype, adds)
    found: Fp8TileOperator = prepared_once(key, f"{tokens} tokens", device, known.gpu, prepare)
    return found


def launch(call: Fp8Call, y: torch.Tensor, *, adds: bool = False) -> None:
    """Compute y (tokens, rows) of a call; with `adds`, add the product to the values in y."""
    x = call.x if call.x.is_contiguous() else call.x.contiguous()
    operator = prepared(call.layer, len(x), y, adds=adds)
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
