"""`sparsify`: replace linear layers of a model by sparse products, in place.

All choices, checks and packing come before the first replacement, so that a model is converted completely or
not at all. The weights of a layer are packed on its device.
"""

import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from prunecast.arguments import checked
from prunecast.codesign.recipe import Recipe, read_recipe
from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec, load_gpu
from prunecast.torch.choose_layers import Conversion, choose_layers, without_head
from prunecast.torch.feed_forward import FeedForward, GatedMlp
from prunecast.torch.find import find_layers, is_transposed, matrix_of
from prunecast.torch.fp8 import check_fp8
from prunecast.torch.layer_table import dtype_name
from prunecast.torch.network import Traced, folded_norms, folds_of, rewrite, trace
from prunecast.torch.network_time import Verdict, read_example, verdict_on, watch_sizes
from prunecast.torch.pack_layers import PackedLayers, pack_layers
from prunecast.torch.packed import PackedProduct, ProductRows
from prunecast.torch.products import Launch, has_epilogues
from prunecast.torch.sparse_linear import SparseLinear, fuse_dense
from prunecast.workload.engines import Progress
from prunecast.workload.graph.fusions import RESIDUAL_EPILOGUE_ELEMENTS
from prunecast.workload.graph.transposes import SEPARATE_TRANSPOSE_ELEMENTS

MOST_TOKENS = 1 << 20
"""Largest number of tokens of one call; a plan lists work items for all of them. Kind: choice."""


class Sparsified(NamedTuple):
    """Result of `sparsify`."""

    layers: tuple[str, ...]
    """Names of the layers that are sparse now."""
    launches: int
    left: tuple[str, ...]
    """Reasons why other layers were not converted, one line each."""
    bytes_before: int
    bytes_after: int
    """`bytes_before` and `bytes_after` are the bytes of all weights before and after the conversion."""
    seconds: float

    def __str__(self) -> str:
        mib = 1 << 20
        return (
            f"{len(self.layers)} layers in {self.launches} launches, {len(self.left)} left dense; weights "
            f"{self.bytes_before / mib:.1f} MiB, now {self.bytes_after / mib:.1f} MiB; {self.seconds:.1f} s"
        )


@checked
def sparsify(
    model: nn.Module,
    recipe: "str | Path | Mapping[str, Any] | Recipe",
    *,
    gpu: str | GpuSpec,
    max_tokens: int,
    sparsity: float | None = None,
    squares: Mapping[str, Any] | None = None,
    target: str | Sequence[str] = (),
    ignore: str | Sequence[str] = (),
    dtype: str | None = None,
    few_tokens: bool = True,
    fuse: bool = True,
    trainable: bool = False,
    convolutions: bool = False,
    example: torch.Tensor | Sequence[int | torch.Tensor | Sequence[int]] | None = None,
    only_gains: bool = True,
    progress: Progress | None = None,
    quiet: bool = False,
) -> Sparsified:
    """Replace the pruned linear layers of `model` by sparse ones, in place.

    Parameters
    ----------
    model : a model from Hugging Face or elsewhere, in fp16, bf16 or fp32, on its GPU. On a CPU it runs
        slowly, for tests. Kernels for GPUs without wgmma (Ampere, Ada, Turing) are compiled and emulated in
        tests, but no such GPU has run them under torch
    recipe : a pattern string such as `tile-wise:128`; or a recipe that `prunecast prune` wrote, as a file,
        its folder or a mapping. The zeros of the model must follow the layers and sparsities of the recipe
    gpu : name or spec of the GPU to plan for
    max_tokens : largest number of tokens of a call: batch times sequence length. With `convolutions`, the
        largest number of images; linear layers that read pixels are then planned for the pixels of `example`
    sparsity : prune every layer to this sparsity by magnitude first; None to use the existing zeros
    squares : the result of `input_squares`; magnitudes are multiplied by the square roots of its values
    target, ignore : names of modules to convert and to leave out, or `re:` and a regular expression. If
        `sparsity` is given without `target`, the layer that computes logits is not pruned
    dtype : `fp8` (e4m3, on Hopper) to compute products in fp8 if their tiles of 256 rows keep runs of 32
        columns, such as `block:256x32`; each row of weights and each token of x has its own scale. Other
        layers use the model's dtype, and so do calls of up to 64 tokens with `few_tokens`. None for the
        model's dtype everywhere
    few_tokens : pack the weights a second time, for calls of up to 64 tokens. Without the second copy
        decoding is slower, and the weights need half of the memory
    fuse : use one launch for layers that read the same x, and compute activations and gated units in the
        epilogue. With `sparsity`, gate and up are pruned together, in tiles with half of their rows from
        each. Layers that a recipe leaves dense are also joined (`fuse_dense`), as the predictions of
        `prunecast prune` assume
    trainable : make the kept weights parameters with gradients; the weights are then packed only once
    convolutions : also replace `Conv2d` by `SparseConv2d`. The first call with each size of images warns if
        the dense model is predicted to be as fast
    example : with `convolutions`, typical inputs of the model: a tensor, the shape of one, or a sequence of
        either; None for `max_tokens` images, at most 64, of 224 x 224 pixels
    only_gains : leave a convolutional network dense and unchanged unless a whole pass over `example` is
        predicted to save at least 5 % of its time, and leave single layers dense that save nothing. False
        converts all layers
    progress : function that is called with `(stage, done, total)` to report progress
    quiet : do not print the result, and do not warn if a network stays dense

    Raises
    ------
    BadInput : the pattern or GPU is unknown, the weights have another dtype, the zeros do not follow the
        recipe, the model has a LoRA adapter, or no layer can be converted. The model is then unchanged
    """
    start = time.monotonic()
    options = Conversion(
        gpu=load_gpu(gpu) if isinstance(gpu, str) else gpu,
        max_tokens=max_tokens,
        sparsity=sparsity,
        squares=squares,
        target=target,
        ignore=ignore,
        fp8=dtype is not None,
        few_tokens=few_tokens and not trainable,
        fuse=fuse,
        trainable=trainable,
        progress=progress,
    )
    plan = read_recipe(recipe)
    _check(max_tokens, sparsity)
    check_fp8(dtype, options.gpu, trainable=trainable)
    if example is not None and not (convolutions and fuse):
        raise BadInput("example is of networks as a whole: wanted convolutions=True and fuse=True with it")
    found, left = find_layers(model, convolutions=convolutions)
    network = trace(model) if convolutions and fuse else Traced()
    if network.why:
        left.append(f"the network as a whole: {network.why}; convolutions are converted one by one")
    with folded_norms(model, folds_of(network.sites)) as unfold:  # undone if the model cannot be converted
        if sparsity is not None and not target:
            found, heads = without_head(model, found)
            left += heads
        read = read_example(model, network, example, images=max_tokens) if network.sites else None
        if read is not None:  # linear layers of such a network read pixels, as in a ConvNeXt
            options = options._replace(max_tokens=max(max_tokens, min(read.tokens, MOST_TOKENS)))
        chosen = choose_layers(model, found, plan, options)
        left = [line for line in left if line.partition(": ")[0] not in chosen.expert_names]
        if read is not None and only_gains:
            dtype = dtype_name(next(model.parameters()).dtype)
            verdict = verdict_on(read, chosen.tiles, options.gpu, dtype)
            if verdict is not None and verdict.whole:
                unfold()
                return _left_dense(model, verdict, left, start, quiet=quiet)
            chosen = chosen if verdict is None else chosen.without(verdict.dense)
        before = _bytes_of(model)
        packed = pack_layers(model, found, network, chosen, options)
    _replace_layers(model, network, packed, options)
    if fuse and not trainable and plan.layers:
        fuse_dense(model)
    done = Sparsified(
        layers=chosen.names,
        launches=packed.launches,
        left=(*left, *chosen.left),
        bytes_before=before,
        bytes_after=_bytes_of(model),
        seconds=time.monotonic() - start,
    )
    if not quiet:
        print(f"prunecast: {done}", file=sys.stderr)
    return done


def _replace_layers(model: nn.Module, network: Traced, packed: PackedLayers, options: Conversion) -> None:
    """Replace the layers of the model by the packed modules."""
    if any(_is_rewritten(launch, product, options) for launch, product in packed.products):
        import_module("prunecast.torch.residual").register()  # imports torch's compiler, which is slow
    for launch, product in packed.products:
        _replace(model, launch, product, trainable=options.trainable)
    for stack, module in packed.experts:
        model.set_submodule(stack.name, module)
    _leave_out_activations(model, packed.fused)
    if network.sites:
        rewrite(model, packed.convs)
        if packed.convs:
            watch_sizes(model, network)
        return
    for name, module in packed.convs.items():
        model.set_submodule(name, module)


def _is_rewritten(launch: Launch, product: PackedProduct, options: Conversion) -> bool:
    """Return whether torch.compile may fuse residual adds or norms into a product, see `residual.py`."""
    is_large = (
        product.rows * options.max_tokens >= RESIDUAL_EPILOGUE_ELEMENTS
        or product.features * options.max_tokens >= SEPARATE_TRANSPOSE_ELEMENTS
    )
    return product.tiles.is_cuda and is_large and has_epilogues(launch.choices[0], options.gpu)


def _left_dense(
    model: nn.Module, verdict: Verdict, left: list[str], start: float, *, quiet: bool
) -> Sparsified:
    """Return the result for a network that stays dense, and warn unless `quiet`."""
    line = f"the network is left dense: {verdict.line}"
    size = _bytes_of(model)
    if not quiet:
        warnings.warn(f"prunecast: {line}; only_gains=False converts it", stacklevel=4)
    return Sparsified((), 0, (line, *left), size, size, time.monotonic() - start)


def _replace(model: nn.Module, launch: Launch, product: PackedProduct, *, trainable: bool) -> None:
    """Replace each layer of a launch by a `SparseLinear` that reads its rows of the common product.

    The rows of the layers are stacked in the order of `launch.choices`. The rows of gate and up are
    interleaved instead if the epilogue computes gated units, so that a block has both of each pair.
    """
    first_row = 0
    for number, choice in enumerate(launch.choices):
        name, module = choice.layer
        rows = matrix_of(module).shape[0]
        glu = launch.epilogue.glu
        sparse = SparseLinear(
            product,
            ProductRows(number if glu else first_row, rows, interleaved=glu),
            choice.tiles.pattern,
            has_bias=module.bias is not None,
            transposed=is_transposed(module),
        )
        sparse.train(module.training)
        if trainable:
            sparse.trainable()
        model.set_submodule(name, sparse)
        first_row += rows


def _leave_out_activations(model: nn.Module, fused: list[FeedForward]) -> None:
    """Remove the activations of feed-forward layers whose epilogues now compute them.

    In a chain, `nn.Identity` replaces the activation. A gated module is replaced by `GatedMlp`.
    """
    for forward in fused:
        module = model.get_submodule(forward.module)
        if forward.is_gated:
            names = tuple(name.rpartition(".")[2] for name in (*forward.first, forward.last))
            model.set_submodule(forward.module, GatedMlp(module, names))
        else:
            setattr(module, forward.act, nn.Identity())


def _check(max_tokens: int, sparsity: float | None) -> None:
    if not isinstance(max_tokens, int) or not 1 <= max_tokens <= MOST_TOKENS:
        raise BadInput(f"max_tokens must be a whole number from 1 to {MOST_TOKENS}, got {max_tokens!r:.40}")
    if sparsity is not None and not 0.0 <= sparsity < 1.0:
        raise BadInput(f"sparsity must be in [0, 1), got {sparsity}")


def _bytes_of(model: nn.Module) -> int:
    """Return the bytes of all parameters and buffers; a tensor that modules share counts once."""
    tensors = {id(t): t for t in (*model.parameters(), *model.buffers())}
    return sum(t.numel() * t.element_size() for t in tensors.values())
