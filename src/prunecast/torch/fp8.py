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
from prunecast.torch.epilogue import PLAIN, Epilogue, Fp8Call, activated, check_sum
from prunecast.torch.layer_table import known_layer, register_layer
from prunecast.torch.packed import PackedProduct, ProductRows
from prunecast.torch.quantise import quantise, quantised
from prunecast.torch.weight_layouts import FP8, Layout, covering, pack, tiles_to_tensor, unpack

LAYOUT = Layout(FP8, TOKEN_FORM[0], FP8_STAGE_COLUMNS)
"""Layout of packed weights in fp8."""

_LIBRARY = torch.library.Library("prunecast", "FRAGMENT")
_LIBRARY.define(
    "fp8_linear(Tensor x, Tensor scales, Tensor image, Tensor row_scales, Tensor tiles, Tensor? bias, "
    "int rows, str activation, bool glu, ScalarType dtype, str gpu, int plan) -> Tensor",
    tags=(torch.Tag.needs_fixed_stride_order,),
)
_LIBRARY.define(
    "fp8_linear_add_(Tensor(a!) y, Tensor x, Tensor scales, Tensor image, Tensor row_scales, Tensor tiles, "
    "Tensor? bias, int rows, str gpu, int plan) -> ()",
    tags=(torch.Tag.needs_fixed_stride_order,),
)


def _fp8_linear_on_cpu(*given: Any) -> torch.Tensor:
    call = Fp8Call(*given)
    layer = known_layer(call.plan, call.tiles, "fp8", call.gpu)
    x = call.x.float() * call.scales[:, None]
    y = x @ _dequantised(call.image, call.row_scales, layer.tiles).t()
    if call.bias is not None:
        y = y + call.bias
    return activated(y, call.epilogue).to(call.dtype).contiguous()


def _dequantised(image: torch.Tensor, row_scales: torch.Tensor, tiles: TileMap) -> torch.Tensor:
    """Return A (M, K) in fp32, unpacked and multiplied by its scales."""
    return unpack(image, tiles).view(torch.float8_e4m3fn).float() * row_scales.view(torch.float32)[:, None]


def _fp8_linear_on_cuda(*given: Any) -> torch.Tensor:
    from prunecast.torch.cuda.fp8 import launch

    call = Fp8Call(*given)
    y = call.new_y()
    launch(call, y)
    return y


def _add_fp8_linear(
    y: torch.Tensor,
    x: torch.Tensor,
    scales: torch.Tensor,
    image: torch.Tensor,
    row_scales: torch.Tensor,
    tiles: torch.Tensor,
    bias: torch.Tensor | None,
    rows: int,
    gpu: str,
    plan: int,
) -> None:
    check_sum(y, tokens=len(x), rows=rows, dtype=y.dtype)
    activation, glu, _ = PLAIN
    call = Fp8Call(x, scales, image, row_scales, tiles, bias, rows, activation, glu, y.dtype, gpu, plan)
    if y.is_cuda:
        from prunecast.torch.cuda.fp8 import launch

        launch(call, y.view(len(x), rows), adds=True)
    else:
        y.add_(_fp8_linear_on_cpu(*call).view_as(y))


_LIBRARY.impl("fp8_linear", _fp8_linear_on_cpu, "CPU")
_LIBRARY.impl("fp8_linear", _fp8_linear_on_cuda, "CUDA")
_LIBRARY.impl("fp8_linear_add_", _add_fp8_linear, "CPU")
_LIBRARY.impl("fp8_linear_add_", _add_fp8_linear, "CUDA")
torch.library.register_fake("prunecast::fp8_linear", lambda *given: Fp8Call(*given).new_y(), lib=_LIBRARY)
torch.library.register_fake("prunecast::fp8_linear_add_", lambda *_: None, lib=_LIBRARY)


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
    """Return whether the fp8 kernel runs the weights.

    They must have 16 bits, the tiles must keep or remove whole runs of `RUN` columns, and K must be a
    multiple of `ALIGN_BYTES`, to which rows of x are aligned.
    """
    is_16_bit = weight.dtype in (torch.float16, torch.bfloat16)
    return is_16_bit and tiles.k % ALIGN_BYTES == 0 and keeps_runs(tiles, RUN)


class Fp8Product(PackedProduct):
    """Compute y (..., M) = x (..., K) A^T + bias with A in tiles and both operands in fp8, then the epilogue.

    Parameters
    ----------
    weight, tiles, bias, gpu, max_tokens, epilogue : as for `PackedProduct`; the weights are in fp16 or bf16
    few : the same product in 16 bits, for calls of up to 64 tokens; None to run these in fp8 too
    """

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
        torch.nn.Module.__init__(self)
        self.tile_map, self.epilogue = covering(tiles), epilogue._replace(features_first=False)
        self.gpu, self.max_tokens, self.few = gpu, max_tokens, few
        self.rows, self.features = tiles.m // 2 if epilogue.glu else tiles.m, tiles.k
        self.image_names = ("image_0",)
        bits, scales = quantised(self._kept(weight))
        self.register_buffer("image_0", pack(bits.view(torch.uint8), self.tile_map, LAYOUT), persistent=False)
        self.register_buffer("row_scales", scales.contiguous().view(torch.int32), persistent=False)
        self.register_buffer("tiles", tiles_to_tensor(self.tile_map).to(weight.device), persistent=False)
        fp32 = None if bias is None else bias.detach().to(weight.device, torch.float32)
        self.register_buffer("fp32_bias", fp32, persistent=False)
        self.register_buffer("_like", weight.new_empty(0), persistent=False)
        self.plan = register_layer(self.tile_map, "fp8", gpu).key
        self._held = self._eager = None

    def _kept(self, weight: torch.Tensor) -> torch.Tensor:
        """Return the weights with zeros outside of the tiles, so that only kept ones decide the scales."""
        return weight * torch.from_numpy(self.tile_map.mask()).to(weight.device)

    @property
    def like(self) -> torch.Tensor:
        """A tensor with the dtype of x and y, on the device of the product."""
        own: torch.Tensor = self._like
        return own

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return y (..., rows) of x (..., features), contiguous.

        Raise BadInput in the same cases as `PackedProduct.forward`.
        """
        if x.dtype != self.like.dtype and torch.is_autocast_enabled(x.device.type):
            return self.forward(x.to(self.like.dtype))
        self._check(x)
        if self.few is not None and x.numel() <= FEW_TOKENS * self.features:
            return self.few.forward(x)
        flat, activation = x.reshape(-1, self.features), self.epilogue.activation
        y: torch.Tensor = torch.ops.prunecast.fp8_linear.default(
            *quantise(flat), self.image_0, self.row_scales, self.tiles, self.fp32_bias, self.rows, activation,
            self.epilogue.glu, self.like.dtype, self.gpu.name, self.plan,
        )  # fmt: skip
        return y.view(*x.shape[:-1], self.rows)

    def _directly(self, x: torch.Tensor) -> torch.Tensor | None:
        return None

    def prepare(self, tokens: int) -> None:
        """Plan, compile and copy everything that a call with `tokens` tokens launches; do nothing on a
        CPU.
        """
        if not self.tiles.is_cuda:
            return
        if self.few is not None and tokens <= FEW_TOKENS:
            self.few.prepare(tokens)
            return
        from prunecast.torch.cuda.fp8 import prepared

        prepared(self.plan, tokens, self.epilogue, self.tiles, self.gpu.name, self.like, self.fp32_bias)

    def dense_weight(self) -> torch.Tensor:
        """Return A (M, K) as a new tensor in the dtype of x, with zeros where pruned.

        The values are those of `few` if there is one, else those that fp8 represents.
        """
        if self.few is not None:
            return self.few.dense_weight()
        return _dequantised(self.image_0, self.row_scales, self.tile_map).to(self.like.dtype)

    def traced_weight(self) -> torch.Tensor:
        """Return A (M, K) while a graph is traced."""
        return self.dense_weight() if self.few is None else self.few.traced_weight()

    def set_weight(self, weight: torch.Tensor, rows: ProductRows) -> None:
        """Replace the weights of some rows, and quantise and pack all weights again.

        Raise BadInput if a weight outside of the tiles is not zero.
        """
        whole = self.dense_weight()
        own = rows.of(whole)
        own.copy_(weight.reshape(own.shape))
        kept = self._kept(whole)
        if lost := int(torch.count_nonzero(whole)) - int(torch.count_nonzero(kept)):
            raise BadInput(f"the weights to load have {lost} values outside of the tiles of this layer")
        bits, scales = quantised(kept)
        self.image_0.copy_(pack(bits.view(torch.uint8), self.tile_map, LAYOUT))
        self.row_scales.copy_(scales.contiguous().view(torch.int32))
        if self.few is not None:
            self.few.set_weight(weight, rows)

    @property
    def packed_bytes(self) -> int:
        """Bytes of all tensors on the device."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.buffers())

    def _apply(self, fn: Any, recurse: bool = True) -> "Fp8Product":
        """Move or cast the tensors; biases stay fp32."""
        bias, after = self.fp32_bias, fn(self.like).dtype
        if after not in (torch.float16, torch.bfloat16):
            raise BadInput(f"weights in fp8 go with fp16 or bf16, got {after}")
        torch.nn.Module._apply(self, fn, recurse)
        if bias is not None and self.fp32_bias.dtype != torch.float32:
            self.fp32_bias = bias.to(self.fp32_bias.device)
        self._held = None
        return self

    def make_trainable(self) -> None:
        """Raise BadInput: there are no gradients in fp8."""
        raise BadInput("fp8 weights are not trained in place: train with `Pruner`, then sparsify")

    def extra_repr(self) -> str:
        """Return the text that `print(model)` shows for the module."""
        return f"{super().extra_repr()}, fp8"
