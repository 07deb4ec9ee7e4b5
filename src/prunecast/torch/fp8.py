"""`Fp8Product`: the pruned weights of one launch in fp8; the operators `fp8_linear` and `fp8_linear_add_`.

    fp8_linear(x, scales, image, row_scales, tiles, bias, rows, activation, glu, dtype, gpu, plan) -> y

`x` (tokens, K) is in e4m3, with one scale per token in `scales`; `image` are the packed weights, with one
scale per row in `row_scales`. `y` (tokens, rows) in fp16 or bf16 is the product times the scales of token and
row, followed by bias and activation or gated unit. On a CPU the operator multiplies dequantised values in
fp32.

    fp8_linear_add_(y, x, scales, image, row_scales, tiles, bias, rows, gpu, plan)

adds that product to y, in place, in the epilogue. The product is rounded, then the sum. `residual.py` inserts
this operator into graphs. `quantise.py` computes x in e4m3 and its scales.
"""

from collections.abc import Sequence
from typing import Any

import torch

from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec
from prunecast.kernels.tile.config import RUN, TOKEN_FORM
from prunecast.kernels.tile.cuda.fp8 import ALIGN_BYTES
from prunecast.kernels.tile.cuda.work_image import FP8_STAGE_COLUMNS
from prunecast.patterns import TileMap
from prunecast.plan.misaligned import FEW_TOKENS
from prunecast.plan.tile_rows import keeps_runs
from prunecast.torch.cuda.fp8 import launch, prepared
from prunecast.torch.epilogue import PLAIN, Epilogue, Fp8Call, activated, check_sum
from prunecast.torch.layer_table import known_layer
from prunecast.torch.operators import changes_argument, register
from prunecast.torch.packed import PackedProduct, ProductRows
from prunecast.torch.quantise import quantise, quantised
from prunecast.torch.weight_layouts import FP8, Layout, unpack

LAYOUT = Layout(FP8, TOKEN_FORM[0], FP8_STAGE_COLUMNS)
"""Layout of packed weights in fp8."""


def _fp8_linear_on_cpu(call: Fp8Call) -> torch.Tensor:
    layer = known_layer(call.plan, call.tiles, "fp8", call.gpu)
    x = call.x.float() * call.scales[:, None]
    y = x @ _dequantised(call.image, call.row_scales, layer.tiles).t()
    if call.bias is not None:
        y = y + call.bias
    return activated(y, call.epilogue).to(call.dtype).contiguous()


def _dequantised(image: torch.Tensor, row_scales: torch.Tensor, tiles: TileMap) -> torch.Tensor:
    """Return A (M, K) in fp32, unpacked and multiplied by its scales."""
    return unpack(image, tiles).view(torch.float8_e4m3fn).float() * row_scales.view(torch.float32)[:, None]


def _fp8_linear_on_cuda(call: Fp8Call) -> torch.Tensor:
    y = call.new_y()
    launch(call, y)
    return y


def _add_fp8_linear(y: torch.Tensor, *given: Any) -> None:
    *operands, gpu, plan = given
    call = Fp8Call._make((*operands, PLAIN.activation, PLAIN.glu, y.dtype, gpu, plan))
    check_sum(y, tokens=len(call.x), rows=call.rows, dtype=y.dtype)
    if y.is_cuda:
        launch(call, y.view(len(call.x), call.rows), adds=True)
    else:
        y.add_(_fp8_linear_on_cpu(call).view_as(y))


_fp8_linear = register(
    "fp8_linear(Tensor x, Tensor scales, Tensor image, Tensor row_scales, Tensor tiles, Tensor? bias, "
    "int rows, str activation, bool glu, ScalarType dtype, str gpu, int plan) -> Tensor",
    _fp8_linear_on_cpu,
    _fp8_linear_on_cuda,
    record=Fp8Call,
    fixed_strides=True,
)
register(
    "fp8_linear_add_(Tensor(a!) y, Tensor x, Tensor scales, Tensor image, Tensor row_scales, Tensor tiles, "
    "Tensor? bias, int rows, str gpu, int plan) -> ()",
    _add_fp8_linear,
    fake=changes_argument,
    fixed_strides=True,
)


def check_fp8(dtype: str | None, gpu: GpuSpec, *, trainable: bool) -> None:
    """Raise BadInput if `dtype` is neither `fp8` nor None, or if fp8 cannot run.

    fp8 cannot run on GPUs without wgmma, and is not trainable.
    """
    if dtype is None:
        return
    if dtype != "fp8":
        raise BadInput(f"dtype is fp8, or None for that of the model, got {dtype!r}")
    if not gpu.has_wgmma:
        raise BadInput(f"fp8 tiles need wgmma, {gpu.name} has none")
    if trainable:
        raise BadInput("fp8 weights are not trained in place: train with `Pruner`, then sparsify")


def fits_fp8(weight: torch.Tensor, tiles: TileMap) -> bool:
    """Return whether the fp8 kernel can run a layer with these weights (M, K) and tiles.

    They must have 16 bits, the tiles must keep or remove whole runs of `RUN` columns, and K must be a
    multiple of `ALIGN_BYTES`, to which rows of x are aligned.
    """
    is_16_bit = weight.dtype in (torch.float16, torch.bfloat16)
    return is_16_bit and tiles.k % ALIGN_BYTES == 0 and keeps_runs(tiles, RUN)


class Fp8Product(PackedProduct):
    """Product y (..., M) = x (..., K) A^T + bias with A in tiles and both operands in fp8, and its epilogue.

    Parameters
    ----------
    weight, tiles, bias, gpu, max_tokens, epilogue : as for `PackedProduct`; the weights are in fp16 or bf16
    few : the same product in 16 bits, for calls of up to 64 tokens; None to run such calls in fp8 too
    """

    number_format = "fp8"

    def __init__(
        self,
        weight: torch.Tensor,
        tiles: TileMap,
        bias: torch.Tensor | None,
        *,
        gpu: GpuSpec,
        max_tokens: int,
        few: PackedProduct | None,
        epilogue: Epilogue = PLAIN,
    ) -> None:
        own = epilogue._replace(features_first=False)
        super().__init__(weight, tiles, bias, gpu=gpu, max_tokens=max_tokens, layouts=[LAYOUT], epilogue=own)
        self.few = few
        self.register_buffer("_like", weight.new_empty(0), persistent=False)

    def _packed(self, weight: torch.Tensor, layouts: Sequence[Layout]) -> dict[str, torch.Tensor]:
        bits, scales = quantised(self._kept(weight))  # only kept weights decide the scales
        images = super()._packed(bits.view(torch.uint8), layouts)
        return {**images, "row_scales": scales.contiguous().view(torch.int32)}

    @property
    def like(self) -> torch.Tensor:
        """A tensor with the dtype of x and y, on the device of the product."""
        own: torch.Tensor = self._like
        return own

    def _multiplied(self, x: torch.Tensor) -> torch.Tensor:
        if self.few is not None and x.numel() <= FEW_TOKENS * self.features:
            return self.few.forward(x)
        flat, activation = x.reshape(-1, self.features), self.epilogue.activation
        y: torch.Tensor = _fp8_linear(
            *quantise(flat), self.image_0, self.row_scales, self.tiles, self.fp32_bias, self.rows, activation,
            self.epilogue.glu, self.like.dtype, self.gpu.name, self.plan,
        )  # fmt: skip
        return y.view(*x.shape[:-1], self.rows)

    def prepare(self, tokens: int) -> None:
        """Plan, compile and copy everything that a call with `tokens` tokens launches; do nothing on a
        CPU.
        """
        if not self.tiles.is_cuda:
            return
        if self.few is not None and tokens <= FEW_TOKENS:
            self.few.prepare(tokens)
            return
        prepared(self.layer, tokens, self.like)

    def dense_weight(self) -> torch.Tensor:
        """Return A (M, K) as a new tensor in the dtype of x, with zeros where pruned.

        The values are those of `few` if there is one, else those that fp8 represents.
        """
        if self.few is not None:
            return self.few.dense_weight()
        return _dequantised(self.image_0, self.row_scales, self.tile_map).to(self.like.dtype)

    def traced_weight(self) -> torch.Tensor:
        """Return A (M, K), for use in a graph that is traced."""
        return self.dense_weight() if self.few is None else self.few.traced_weight()

    def set_weight(self, weight: torch.Tensor, rows: ProductRows) -> None:
        """Replace the weights of some rows, and quantise and pack all weights again.

        Raise BadInput if a weight outside of the tiles is not zero.
        """
        super().set_weight(weight, rows)
        if self.few is not None:
            self.few.set_weight(weight, rows)

    def _check_cast(self, before: torch.dtype, after: torch.dtype) -> None:
        if after not in (torch.float16, torch.bfloat16):
            raise BadInput(f"weights in fp8 go with fp16 or bf16, got {after}")
