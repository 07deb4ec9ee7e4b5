"""`prunecast::linear`, `linear_add_`, `columns`: operators for torch.compile, torch.export and CUDA graphs.

    linear(x_t, images, tiles, bias, tokens, rows, activation, glu, features_first, gpu, plan) -> y

`x_t` (K, columns) is x transposed, with one column per token and up to 7 columns of padding. The tokens of a
feature are contiguous, as the kernels gather them. `y` (tokens, rows) is contiguous and token-major, as in
frameworks; with `features_first` it has the layout of x_t, (rows, columns of x_t), for the next product.
Traced graphs contain the transpose of x as a copy in plain torch, which torch.compile fuses into the kernel
that computes x. In eager mode, and in graphs for few tokens or a large x, `columns` transposes x at memory
speed.

    linear_add_(y, x_t, images, tiles, bias, tokens, rows, gpu, plan)

adds that product to y, in place, in the epilogue. `residual.py` inserts it into graphs where a residual add
follows a product. The product is rounded, then the sum, as by the two operators that it replaces.

    norm_columns(x, shift, scale, weight, bias, rounds, tokens) -> x_t

computes `columns` of ((x - shift) * scale) * weight + bias, where shift and scale are (tokens, 1) fp32. With
`rounds`, (x - shift) * scale is rounded before it is multiplied by the weight. `norm.py` inserts this
operator into graphs, so that the result of a norm is written once, transposed.

    dense_weight(image, tiles, gpu, plan) -> A (M, K)
    conv, into_planes, between_planes: see `planes.py`

    images  packed weights, one tensor for each layout; see `weight_layouts.py`
    tiles   the tile map (int32), from which all other data of the layer can be restored
    plan    number of the layer in this process's table; see `layer_table.py`

On a CPU the operators unpack the weights and multiply in fp32: slow, and exact up to the rounding of y.
"""

from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from prunecast.errors import BadInput
from prunecast.torch.cuda.launches import launch_of
from prunecast.torch.cuda.transpose import normed, turned
from prunecast.torch.epilogue import PLAIN, LinearCall, activated, check_sum
from prunecast.torch.layer_table import known_layer
from prunecast.torch.operators import LIBRARY, changes_argument, register
from prunecast.torch.weight_layouts import layout_of, pack, unpack
from prunecast.workload.graph.transposes import SEPARATE_TRANSPOSE_ELEMENTS, SEPARATE_TRANSPOSE_TOKENS

COLUMN_GROUP = 8
"""The number of columns of x_t is a multiple of this, or 1."""


def columns_of(x: torch.Tensor) -> torch.Tensor:
    """Transpose x (tokens, K) to x_t (K, tokens padded to a multiple of 8); a single token is not padded.

    Nothing is copied if x is a view of such a tensor already.
    """
    tokens = x.shape[0]
    if tokens == 1:
        return x.reshape(-1, 1)
    padded = tokens + -tokens % COLUMN_GROUP  # torch.export can prove padded >= tokens from this form
    if torch.compiler.is_compiling():
        if statically_known_true(x.stride(0) == 1) and statically_known_true(x.stride(1) == padded):
            is_whole = statically_known_true(tokens == padded)
            return x.t() if is_whole else x.as_strided((x.shape[1], padded), (padded, 1))
        if _has_separate_transpose(x):
            return columns(x, padded)
        return torch.nn.functional.pad(x.t(), (0, padded - tokens)).contiguous()
    if x.stride() == (1, padded) and tokens == padded:
        return x.t()
    if x.is_cuda and not (x.requires_grad and torch.is_grad_enabled()):
        return columns(x, padded)
    return torch.nn.functional.pad(x.t(), (0, padded - tokens)).contiguous()


def _has_separate_transpose(x: torch.Tensor) -> bool:
    """Return whether a compiled graph transposes x in a separate kernel."""
    if statically_known_true(x.stride(0) == 1):
        return False
    few = statically_known_true(x.shape[0] <= SEPARATE_TRANSPOSE_TOKENS)
    return few or bool(statically_known_true(x.numel() >= SEPARATE_TRANSPOSE_ELEMENTS))


def _dense_weight(image: torch.Tensor, tiles: torch.Tensor, gpu: str, plan: int) -> torch.Tensor:
    return unpack(image, known_layer(plan, tiles, image.dtype, gpu).tiles)


def _fake_dense_weight(image: torch.Tensor, tiles: torch.Tensor, gpu: str, plan: int) -> torch.Tensor:
    layer = known_layer(plan, tiles, image.dtype, gpu)
    return image.new_empty((layer.tiles.m, layer.tiles.k))


def _columns_on_cpu(x: torch.Tensor, tokens: int) -> torch.Tensor:
    return torch.nn.functional.pad(x.t(), (0, tokens - x.shape[0])).clone(
        memory_format=torch.contiguous_format
    )


def _norm_columns(
    x: torch.Tensor,
    shift: torch.Tensor | None,
    scale: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    rounds: bool,
    tokens: int,
) -> torch.Tensor:
    if x.is_cuda:
        x_t = normed(x, shift, scale, weight, bias, rounds=rounds, tokens=tokens)
        if x_t is not None:
            return x_t
    y = (x.float() if shift is None else x.float() - shift) * scale
    y = y.to(x.dtype).float() if rounds else y
    y = y if weight is None else y * weight.float()
    return _columns_on_cpu((y if bias is None else y + bias.float()).to(x.dtype), tokens)


def _fake_columns(x: torch.Tensor, tokens: int) -> torch.Tensor:
    return x.new_empty((x.shape[1], tokens))


def _linear_on_cpu(call: LinearCall) -> torch.Tensor:
    _check(call)
    x_t, layer = call.x_t, known_layer(call.plan, call.tiles, call.x_t.dtype, call.gpu)
    y = x_t[:, : call.tokens].t().float() @ unpack(call.images[0], layer.tiles).float().t()
    if call.bias is not None:
        y = y + call.bias
    y = activated(y, call.epilogue).to(x_t.dtype)
    if call.features_first:
        return _columns_on_cpu(y, x_t.shape[1])
    return y.contiguous()


def _linear_on_cuda(call: LinearCall) -> torch.Tensor:
    y = call.new_y()
    launch_of(call)(call.x_t, call.images, call.bias, y)
    return y


def _add_linear(y: torch.Tensor, *given: Any) -> None:
    *operands, gpu, plan = given
    call = LinearCall._make((*operands, *PLAIN, gpu, plan))
    check_sum(y, tokens=call.tokens, rows=call.rows, dtype=call.x_t.dtype)
    if y.is_cuda:
        launch_of(call, adds=True)(call.x_t, call.images, call.bias, y.view(call.tokens, call.rows))
    else:
        y.add_(_linear_on_cpu(call).view_as(y))


def _check(call: LinearCall) -> None:
    x_t = call.x_t
    if x_t.dim() != 2 or not call.tokens <= x_t.shape[1]:
        raise BadInput(f"x_t must be (features, {call.tokens} tokens or more), got {tuple(x_t.shape)}")
    if not call.images or any(image.dtype != x_t.dtype for image in call.images):
        raise BadInput(f"images must have the dtype of x_t, {x_t.dtype}")


linear = register(
    "linear(Tensor x_t, Tensor[] images, Tensor tiles, Tensor? bias, SymInt tokens, "
    "int rows, str activation, bool glu, bool features_first, str gpu, int plan) -> Tensor",
    _linear_on_cpu,
    _linear_on_cuda,
    record=LinearCall,
    fixed_strides=True,
)
register(
    "linear_add_(Tensor(a!) y, Tensor x_t, Tensor[] images, Tensor tiles, Tensor? bias, SymInt tokens, "
    "int rows, str gpu, int plan) -> ()",
    _add_linear,
    fake=changes_argument,
    fixed_strides=True,
)
columns = register(
    "columns(Tensor x, SymInt tokens) -> Tensor", _columns_on_cpu, turned, _fake_columns, fixed_strides=True
)
register(
    "norm_columns(Tensor x, Tensor? shift, Tensor scale, Tensor? weight, Tensor? bias, bool rounds, "
    "SymInt tokens) -> Tensor",
    _norm_columns,
    fake=lambda x, *given: _fake_columns(x, given[-1]),
    fixed_strides=True,
)
dense_weight = register(
    "dense_weight(Tensor image, Tensor tiles, str gpu, int plan) -> Tensor",
    _dense_weight,
    fake=_fake_dense_weight,
)


# ---- gradients: dense products with unpacked weights; gradients of kept weights are packed like these


def _keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    call = LinearCall(*inputs)
    if call.epilogue != PLAIN:
        what = call.activation if call.activation != "none" else "epilogue"
        raise BadInput(f"prunecast::linear has no gradient through a fused {what}: sparsify with fuse=False")
    ctx.save_for_backward(call.x_t, call.tiles, *call.images)
    ctx.has_bias = call.bias is not None
    ctx.tokens, ctx.gpu, ctx.plan = call.tokens, call.gpu, call.plan


def _backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    x_t, tiles, *images = ctx.saved_tensors
    wants_x, wants_images, _, wants_bias = ctx.needs_input_grad[:4]
    layer = known_layer(ctx.plan, tiles, x_t.dtype, ctx.gpu)
    for_x, for_images = None, [None] * len(images)
    if wants_x:
        for_x = unpack(images[0].detach(), layer.tiles).t() @ gradient.t()
        for_x = torch.nn.functional.pad(for_x, (0, x_t.shape[1] - ctx.tokens))
    if wants_images is True or (isinstance(wants_images, (list, tuple)) and any(wants_images)):
        dense = gradient.t() @ x_t[:, : ctx.tokens].t()
        for_images = [pack(dense, layer.tiles, layout_of(image)) for image in images]
    for_bias = gradient.float().sum(0) if wants_bias and ctx.has_bias else None
    return (for_x, for_images, None, for_bias, *[None] * 7)


def _keep_tokens(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.tokens = inputs[0].shape[0]


def _columns_backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    return gradient[:, : ctx.tokens].t(), None


torch.library.register_autograd("prunecast::linear", _backward, setup_context=_keep_for_backward, lib=LIBRARY)
torch.library.register_autograd(
    "prunecast::columns", _columns_backward, setup_context=_keep_tokens, lib=LIBRARY
)
