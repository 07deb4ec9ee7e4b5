"""`sparsify`: replace linear layers of a model, which are pruned or to be pruned, by sparse products in
place.

Everything is decided, checked and packed before the first layer is replaced, so that a model is converted as
a whole or not at all. Packing happens on the device of each layer.
"""

import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from prunecast.arguments import checked
from prunecast.codesign.recipe import Recipe, read_recipe
from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec, load_gpu
from prunecast.patterns import TileMap
from prunecast.patterns.sources.weight_set import select_names
from prunecast.plan.tile_rows import stacked_tiles
from prunecast.torch.choose_tiles import Choice, choose_tiles
from prunecast.torch.conv import sparse_convs
from prunecast.torch.epilogue import GATED_ROWS, PLAIN, Epilogue, interleaved
from prunecast.torch.experts import (
    PARTS,
    ExpertMatrix,
    ExpertStack,
    SparseExperts,
    crosses_experts,
    find_experts,
)
from prunecast.torch.feed_forward import FeedForward, GatedMlp, find_feed_forwards
from prunecast.torch.find import Found, find_layers, is_convolution, is_transposed, matrix_of, sibling_groups
from prunecast.torch.forms import layouts_for
from prunecast.torch.layer_table import check_gpu, dtype_name
from prunecast.torch.network import Traced, dense_in_planes, ends_of, folded_norms, folds_of, rewrite, trace
from prunecast.torch.network_time import Verdict, verdict_on, watch_sizes
from prunecast.torch.packed import PackedProduct, Rows, interleaved_tiles
from prunecast.torch.sparse_linear import SparseLinear
from prunecast.workload.graph.fusions import RESIDUAL_EPILOGUE_ELEMENTS
from prunecast.workload.graph.transposes import SEPARATE_TRANSPOSE_ELEMENTS

Progress = Callable[[str, int, int], None]
MOST_TOKENS = 1 << 20
"""Most tokens of one call; a plan lists every group of some tokens. Kind: choice."""


class Sparsified(NamedTuple):
    """The result of a conversion."""

    layers: tuple[str, ...]
    """Layers that are sparse now."""
    launches: int
    left: tuple[str, ...]
    """Reasons why other layers were not converted, one line each."""
    bytes_before: int
    bytes_after: int
    """Bytes of all weights of the model on the device, before and after."""
    seconds: float

    def __str__(self) -> str:
        mib = 1 << 20
        return (
            f"{len(self.layers)} layers in {self.launches} launches, {len(self.left)} left dense; weights "
            f"{self.bytes_before / mib:.1f} MiB, now {self.bytes_after / mib:.1f} MiB; {self.seconds:.1f} s"
        )


class _Launch(NamedTuple):
    """Layers that become one product, and the epilogue of the product."""

    choices: list[Choice]
    epilogue: Epilogue = PLAIN


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
    few_tokens: bool = True,
    fuse: bool = True,
    trainable: bool = False,
    convolutions: bool = False,
    example: torch.Tensor | Sequence[int | torch.Tensor | Sequence[int]] | None = None,
    only_gains: bool = True,
    progress: Progress | None = None,
    quiet: bool = False,
) -> Sparsified:
    """Replace the pruned linear layers of `model` in place.

    Parameters
    ----------
    model : fp16, bf16 or fp32, on its GPU (it also runs on a CPU, slowly, for tests); from Hugging Face or
        any other. Kernels for GPUs without wgmma (Ampere, Ada, Turing) are compiled and emulated in tests,
        but no such GPU has run them under torch
    recipe : a pattern string such as `tile-wise:128`; or a recipe as `prunecast prune` writes it, as a file,
        its folder or a mapping, whose layers and sparsities the zeros must follow
    gpu : name or spec of the GPU to plan for
    max_tokens : most tokens of one call: batch times sequence
    sparsity : prune every layer to this sparsity by magnitude first; None uses the existing zeros
    squares : the result of `input_squares`, by whose roots magnitudes are multiplied
    target, ignore : names of modules, or `re:` and a regular expression; without `target`, the layer that
        computes logits is not pruned
    few_tokens : also pack the weights for calls of up to 64 tokens; without this second copy decoding is
        slower, and the weights need half of the memory
    fuse : one launch for layers that read the same x, with activations and gated units in the epilogue; with
        `sparsity`, gate and up are pruned together, in tiles with half of their rows from each
    trainable : kept values become parameters with gradients; the weights are then packed only once
    convolutions : also replace `Conv2d` by `SparseConv2d`. The first call with images of a size warns if
        dense is predicted to be as fast
    example : with `convolutions`, inputs that the model will get: a tensor, the sizes of one, or a sequence
        of either; None for `max_tokens` images, at most 64, of 224 x 224 pixels
    only_gains : a convolutional network stays dense and unchanged if a whole pass over these inputs is not
        predicted to be shorter, and so do layers of it that gain nothing; False converts all layers
    progress : called with `(stage, done, total)`
    quiet : do not print the result

    Raises
    ------
    BadInput : an unknown pattern or GPU, weights of another dtype, zeros that do not follow the recipe, a
        LoRA adapter, no layer to convert; the model is then unchanged
    """
    start = time.monotonic()
    spec, plan = load_gpu(gpu) if isinstance(gpu, str) else gpu, read_recipe(recipe)
    _check(max_tokens, sparsity)
    if example is not None and not (convolutions and fuse):
        raise BadInput("example is of networks as a whole: wanted convolutions=True and fuse=True with it")
    found, left = find_layers(model, convolutions=convolutions)
    network = trace(model) if convolutions and fuse else Traced()
    if network.why:
        left.append(f"the network as a whole: {network.why}; convolutions are converted one by one")
    with folded_norms(model, folds_of(network.sites)) as unfold:  # undone if the model cannot be converted
        if sparsity is not None and not target:
            found, heads = _without_head(model, found)
            left += heads
        stacks = [] if trainable else find_experts(model)
        matrices = [layer for stack in stacks for layer in stack.layers]
        names = select_names([layer.name for layer in [*found, *matrices]], target, ignore)
        _check_devices(found, spec)
        forwards = find_feed_forwards(model, found) if fuse and not trainable else []
        chosen, more_left = choose_tiles([*found, *matrices], set(names), plan, sparsity, forwards, squares)
        experts, chosen, dense_experts = _experts_of(stacks, chosen)
        named = {layer.name for layer in matrices}  # with their reasons
        left = [line for line in left if line.partition(": ")[0] not in named]
        more_left += dense_experts
        halved = [choice.layer.name for choice in chosen if choice.halves is not None]
        if trainable and halved:
            raise BadInput(
                f"{halved[0]} is 2:4, which is not trained in place: train with `Pruner`, then sparsify"
            )
        if network.sites and only_gains:
            kept = {layer.name: tiles for layer, tiles, halves in chosen if halves is None}
            verdict = verdict_on(model, network, kept, spec, example=example, images=max_tokens)
            if verdict is not None and verdict.whole:
                unfold()
                return _left_dense(model, verdict, left, start, quiet=quiet)
            dense = frozenset() if verdict is None else verdict.dense
            more_left += [f"{name}: dense, the network gains nothing by it" for name in sorted(dense)]
            chosen = [choice for choice in chosen if choice.layer.name not in dense]
        # The kernels of other GPUs and of fp32 write neither gated units nor residual sums
        plain = {
            choice.layer.name
            for choice in chosen
            if not spec.has_wgmma or choice.layer.module.weight.dtype is torch.float32
        }
        layers, before = tuple(choice.layer.name for choice in chosen), _bytes_of(model)
        layers += tuple(choice.layer.name for _, parts in experts for choice in parts)
        filters = {layer.name: tiles for layer, tiles, _ in chosen if is_convolution(layer.module)}
        border = max([1, *(model.get_submodule(name).padding[0] for name in filters)])
        more = dense_in_planes(model, network, filters, border) if filters else {}
        convs = sparse_convs(model, {**filters, **more}, spec, ends_of(model, network.sites), border)
        chosen = [choice for choice in chosen if choice.layer.name not in filters]
        fused = _fusable([each for each in forwards if not (each.is_gated and plain & {*each.first})], chosen)
        groups = _grouped(found, chosen, fused) if fuse else [_Launch([choice]) for choice in chosen]
        few = few_tokens and not trainable
        products = _pack(groups, spec, max_tokens, few_tokens=few, progress=progress)
        packed = [(stack, _sparse_experts(stack, parts, spec, max_tokens)) for stack, parts in experts]
    large = any(
        product.tiles.is_cuda
        and (
            product.rows * max_tokens >= RESIDUAL_EPILOGUE_ELEMENTS
            or product.features * max_tokens >= SEPARATE_TRANSPOSE_ELEMENTS
        )
        and launch.choices[0].layer.name not in plain
        for launch, product in products
    )
    if large:
        import_module("prunecast.torch.residual").register()  # imports torch's compiler, which is slow
    for group, product in products:
        _replace(model, group, product, trainable=trainable)
    for stack, module in packed:
        model.set_submodule(stack.name, module)
    _leave_out_activations(model, fused)
    if network.sites:
        rewrite(model, convs)
    if network.sites and convs:
        watch_sizes(model, network)
    for name, module in [] if network.sites else convs:
        model.set_submodule(name, module)
    left = [*left, *more_left]
    launches = len(products) + len(filters) + len(PARTS) * len(packed)
    seconds = time.monotonic() - start
    done = Sparsified(layers, launches, tuple(left), before, _bytes_of(model), seconds)
    if not quiet:
        print(f"prunecast: {done}", file=sys.stderr)
    return done


def _experts_of(
    stacks: list[ExpertStack], chosen: list[Choice]
) -> tuple[list[tuple[ExpertStack, list[Choice]]], list[Choice], list[str]]:
    """Return the experts that become sparse, the choices of other layers, and why experts stay dense."""
    of_name = {choice.layer.name: choice for choice in chosen}
    found, left = [], []
    for stack in stacks:
        names = [layer.name for layer in stack.layers]
        parts = [of_name.pop(name) for name in names if name in of_name]
        experts = len(getattr(stack.module, PARTS[0]))
        if any(each.halves is not None or crosses_experts(each.tiles, experts) for each in parts):
            left += [f"{each.layer.name}: wanted tiles inside of experts" for each in parts]
        elif len(parts) < len(PARTS):
            left += [f"{each.layer.name}: the other product of its experts is dense" for each in parts]
        else:
            found.append((stack, parts))
    return found, list(of_name.values()), left


def _sparse_experts(stack: ExpertStack, parts: list[Choice], gpu: GpuSpec, max_tokens: int) -> SparseExperts:
    def packed(choice: Choice, part: str) -> ExpertMatrix:
        weight, tiles = matrix_of(choice.layer.module), choice.tiles
        layouts = layouts_for(tiles, dtype_name(weight.dtype), gpu, max_tokens, few_tokens=False)
        product = PackedProduct(weight, tiles, None, gpu=gpu, max_tokens=max_tokens, layouts=layouts)
        return ExpertMatrix(product, tiles.pattern, tuple(getattr(stack.module, part).shape))

    with torch.no_grad():
        return SparseExperts(stack.module, *map(packed, parts, PARTS))


def _left_dense(
    model: nn.Module, verdict: Verdict, left: list[str], start: float, *, quiet: bool
) -> Sparsified:
    """Return the result for a network that stays as it is, and warn."""
    line = f"the network is left dense: {verdict.line}"
    size = _bytes_of(model)
    if not quiet:
        warnings.warn(f"prunecast: {line}; only_gains=False converts it", stacklevel=4)
    return Sparsified((), 0, (line, *left), size, size, time.monotonic() - start)


def _without_head(model: nn.Module, found: list[Found]) -> tuple[list[Found], list[str]]:
    """Return the layers without the one that computes logits, which is pruned only if it is named in
    `target`.

    It loses the most accuracy by pruning.
    """
    getter = getattr(model, "get_output_embeddings", None)
    head = getter() if callable(getter) else None
    names = [layer.name for layer in found if layer.module is head]
    why = [f"{name}: makes the logits; name it in target to prune it" for name in names]
    return [layer for layer in found if layer.module is not head], why


def _fusable(forwards: list[FeedForward], chosen: list[Choice]) -> list[FeedForward]:
    """Return the feed-forward layers that can be fused.

    All their layers must be sparse; gate and up must have the same tiles, which consist of whole groups of
    rows.
    """
    tiles = {choice.layer.name: choice.tiles for choice in chosen}
    halved = {choice.layer.name for choice in chosen if choice.halves is not None}

    def is_one(first: tuple[str, ...]) -> bool:
        return halved.isdisjoint(first) and _may_interleave(*(tiles[name] for name in first))

    whole = [each for each in forwards if tiles.keys() >= {*each.first, each.last}]
    return [forward for forward in whole if not forward.is_gated or is_one(forward.first)]


def _may_interleave(gate: TileMap, up: TileMap) -> bool:
    columns = ("row_start", "row_index", "column_start", "column_index")
    if any(not np.array_equal(getattr(gate, name), getattr(up, name)) for name in columns):
        return False
    if np.any(gate.row_start % GATED_ROWS):
        return False
    rows = gate.row_index.reshape(-1, GATED_ROWS)
    return bool(np.array_equal(rows, rows[:, :1] // GATED_ROWS * GATED_ROWS + np.arange(GATED_ROWS)))


def _grouped(found: list[Found], chosen: list[Choice], fused: list[FeedForward]) -> list[_Launch]:
    """Return the launches in the order of the model. Layers that read the same x share a launch.

    Layers in tiles and layers with 2:4 are launched separately, and so are layers of different dtypes.
    """
    epilogues = {
        forward.first[0]: Epilogue(forward.activation, forward.is_gated, features_first=True)
        for forward in fused
    }
    # T5 keeps some layers of an fp16 model in fp32
    kinds = dict.fromkeys((c.halves is None, c.layer.module.weight.dtype) for c in chosen)
    launches = []
    for kind in sorted(kinds, key=lambda each: not each[0]):
        of_kind = {c.layer.name: c for c in chosen if (c.halves is None, c.layer.module.weight.dtype) == kind}
        groups = (
            [of_kind[layer.name] for layer in g if layer.name in of_kind] for g in sibling_groups(found)
        )
        launches += [_Launch(own, epilogues.get(own[0].layer.name, PLAIN)) for own in groups if own]
    return launches


def _pack(
    launches: list[_Launch],
    gpu: GpuSpec,
    max_tokens: int,
    *,
    few_tokens: bool,
    progress: Progress | None,
) -> list[tuple[_Launch, PackedProduct]]:
    """Return the products in the order of the model.

    Threads plan and pack them concurrently, since NumPy and torch release the GIL. The products are prepared
    for calls of `max_tokens`, and with `few_tokens` also of one token.
    """

    def packed(launch: _Launch) -> PackedProduct:
        product = _product(launch, gpu, max_tokens, few_tokens=few_tokens)
        for tokens in {max_tokens, 1} if few_tokens else {max_tokens}:
            product.prepare(tokens)
        return product

    products: list[PackedProduct] = []
    with ThreadPoolExecutor() as pool:
        for product in pool.map(packed, launches):
            products.append(product)
            if progress is not None:
                progress("packing", len(products), len(launches))
    return list(zip(launches, products, strict=True))


def _product(launch: _Launch, gpu: GpuSpec, max_tokens: int, *, few_tokens: bool) -> PackedProduct:
    choices, epilogue = launch.choices, launch.epilogue
    bias = _biases([choice.layer.module for choice in choices])
    maps = [choice.tiles for choice in choices]
    tiles = interleaved_tiles(maps[0], "interleaved") if epilogue.glu else stacked_tiles(maps)

    def joined(parts: list[torch.Tensor]) -> torch.Tensor:
        return interleaved(*parts) if epilogue.glu else torch.cat(parts)

    weight = joined([choice.kept(matrix_of(choice.layer.module)) for choice in choices])
    dtype, halved = dtype_name(weight.dtype), choices[0].halves is not None
    layouts = layouts_for(tiles, dtype, gpu, max_tokens, few_tokens=few_tokens, halved=halved)
    added = None if bias is None else joined(bias)
    own: dict[str, Any] = {"gpu": gpu, "max_tokens": max_tokens, "layouts": layouts, "epilogue": epilogue}
    with torch.no_grad():
        return PackedProduct(weight, tiles, added, **own)


def _biases(modules: list[nn.Module]) -> list[torch.Tensor] | None:
    """Return the bias of each part, zeros for those without one; None if no part has one."""
    if all(module.bias is None for module in modules):
        return None
    return [
        module.weight.new_zeros(len(matrix_of(module))) if module.bias is None else module.bias.detach()
        for module in modules
    ]


def _replace(model: nn.Module, launch: _Launch, product: PackedProduct, *, trainable: bool) -> None:
    first = 0
    for number, choice in enumerate(launch.choices):
        name, module = choice.layer
        count = matrix_of(module).shape[0]
        glu = launch.epilogue.glu
        sparse = SparseLinear(
            product,
            Rows(number if glu else first, count, interleaved=glu),
            choice.tiles.pattern,
            has_bias=module.bias is not None,
            transposed=is_transposed(module),
        )
        sparse.train(module.training)
        if trainable:
            sparse.trainable()
        model.set_submodule(name, sparse)
        first += count


def _leave_out_activations(model: nn.Module, fused: list[FeedForward]) -> None:
    """Remove the activations that epilogues now compute.

    Chains get an identity in their place, and gated modules another `forward`.
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


def _check_devices(found: list[Found], gpu: GpuSpec) -> None:
    for device in {matrix_of(layer.module).device for layer in found}:
        if device.type not in ("cpu", "cuda"):
            raise BadInput(f"weights must lie on a GPU, got {device}: load the model first")
        if device.type == "cuda":
            check_gpu(device, gpu)


def _bytes_of(model: nn.Module) -> int:
    tensors = {id(t): t for t in (*model.parameters(), *model.buffers())}
    return sum(t.numel() * t.element_size() for t in tensors.values())
