"""`load_workload`: the layers of a standard model, a file or matrices, and the passes that run them."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import cache, partial
from typing import Any

import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.kernels import ConvShape
from prunecast.patterns.sources import Layer
from prunecast.patterns.sources.read import matrix_sizes
from prunecast.patterns.sources.weight_set import select_names
from prunecast.workload.candidates import check_has_form
from prunecast.workload.conv_settings import ConvSettings, conv_shapes, image_sizes
from prunecast.workload.graph import ModelGraph, Pass, load_pass
from prunecast.workload.graph.config import (
    CONFIG,
    checkpoint_shape,
    config_of,
    dtype_of_config,
    graph_of_tensors,
)
from prunecast.workload.graph.families import families
from prunecast.workload.graph.names import known_name
from prunecast.workload.graph.runtimes import rewritten
from prunecast.workload.graph.shapes import SEQUENCE, Transformer, transformers
from prunecast.workload.graph.workloads import NoTorchForm, transformer_graph
from prunecast.workload.layers import (
    NAME_IT,
    LoadedLayers,
    Module,
    Removed,
    Skipped,
    Source,
    is_onnx,
    is_pruned,
    is_standard,
    load_layers,
    name_of,
    path_of,
    shape_of,
)
from prunecast.workload.onnx_model.read_model import read_onnx_model
from prunecast.workload.random_weights import MOST_DRAWN, MOST_REMEMBERED_WEIGHTS, heavy_tailed
from prunecast.workload.unknown_model import parts_skipped, unknown_graph
from prunecast.workload.workload import Workload, WorkloadLayer, stacked_as_launched

EXPERTS_PER_TOKEN = 2
"""Default number of experts of a token, for layers without a model graph. Kind: choice, as in Mixtral."""
RANDOM = "random weights with heavy tails"
ONLY_MATRICES = "only the matrices are counted, not attention, norms, embeddings and what is between them"
IN_A_ROW = "its matrices count, and the memory of all other weights, not activations, caches and states"
NO_TORCH = Skipped(layer="torch", reason="its launches of the operators of a file are not known")
IF_ASKED = Skipped(layer="torch", reason="convolutions of a file run as in torch if asked: --runtime torch")
SPLIT_ATTENTION = Skipped(
    layer="attention",
    reason="its operators count one by one, by name or folder as one call of a library's kernel",
)
UNEVEN = "timed as a product after im2col: dilation, or a stride or padding that differs between sides"
"""Note on a convolution of an ONNX file that no `ConvShape` describes."""


def load_workload(
    source: Source,
    passes: Sequence[Pass],
    *,
    stated: Mapping[str, int | None] | None = None,
    runtime: str | None = "engine",
    target: Sequence[str] = (),
    ignore: Sequence[str] = (),
    convolutions: ConvSettings | None = None,
    experts_per_token: int | None = None,
    apart: Collection[str] = (),
    own_tiles: bool = True,
) -> Workload:
    """Load the layers of a source, and its model graph if the source defines one.

    Parameters
    ----------
    source : name or `config.json` of a standard model, Hugging Face folder, weight file, or matrices
    passes : forward passes. For an ONNX file exactly one; its batch and tokens replace the free sizes of the
        file
    stated : `tokens` and `batch` as the user set them (None: not set). For an ONNX file that fixes such a
        size, BadInput is raised
    runtime : `engine`, or `torch`, which launches some matrices as one product. None selects `torch` if its
        launches are known for the model, else `engine`
    target, ignore : selectors of layers to load and of layers to leave out
    convolutions : input sizes of convolutions, and their strides and padding if the source has none
    experts_per_token : experts that each token is routed to, for matrices without a model graph; None for
        `EXPERTS_PER_TOKEN`
    apart : layers that are launched separately although torch could join them
    own_tiles : True if each matrix has its own tiles, as in folders that `prune` writes. False if gate and
        up share tiles, as when `sparsify` prunes a dense model

    Raises
    ------
    BadInput : an unreadable source, a selector without a match, or settings that contradict the source
    """
    settings = convolutions or ConvSettings()
    if is_standard(source):
        _check_fixed(source, passes, settings, stated or {})
        dtype = dtype_of_config(source)

        def drawn(name: str) -> Workload:
            graphs = [graph_of_standard(source, run, name) for run in passes]
            found = standard_workload(graphs, passes, target=target, ignore=ignore, dtype=dtype)
            if name == "torch":
                _check_drawn(f"{path_of(source)}", found)
            return found

        known = _in_runtime(drawn, runtime)
        assert known is not None
        found = known.noting(*_not_counted(source))
    elif passes[0].gpus > 1:
        raise BadInput(
            f"tensor-parallel {passes[0].gpus} is of a model by name or by its {CONFIG}, whose weights are "
            f"drawn, got {name_of(source) or 'matrices'}"
        )
    elif is_onnx(source):
        found = _of_onnx(source, passes, stated or {}, settings, target, ignore)
        has_filters = any(o.convolution is not None for o in found.graphs[0])
        if not has_filters:
            check_has_form(runtime, source)
        if runtime is None:
            found = found.noting(IF_ASKED if has_filters else NO_TORCH)
        if runtime == "torch":
            found = replace(found, graphs=(rewritten(found.graphs[0], runtime, by_matrix=True),))
    else:
        loaded = load_layers(source, target=target, ignore=ignore)
        known = _in_runtime(partial(_of_checkpoint, source, loaded, passes), runtime)
        if known is None and runtime == "torch" and settings.input_size:
            known = _of_module(source, loaded, passes, settings)
        elif known is None:
            check_has_form(runtime, source)
            known = _of_unknown(source, loaded, passes)
            if known is None:
                known = _of_matrices(loaded, passes, settings, experts_per_token or EXPERTS_PER_TOKEN)
                known = known.noting(*_uncounted(source))
        else:
            _check_fixed(source, passes, settings, stated or {})
            known = known.noting(*_not_counted(source))
        found = known
    has_experts = any(layer.experts is not None for layer in found.layers.values())
    if experts_per_token is not None and (found.graphs or not has_experts):
        why = "the model states it" if found.graphs else "no layer has experts"
        raise BadInput(f"experts-per-token {experts_per_token} has no effect: {why}")
    return stacked_as_launched(found, apart, own_tiles=own_tiles)


def _check_drawn(name: str, workload: Workload) -> None:
    """Raise NoTorchForm for joint products that are too large to be drawn at random."""
    largest = max(workload.layers.values(), key=lambda layer: layer.size, default=None)
    if largest is not None and largest.size > MOST_DRAWN:
        m, k = largest.shape
        raise NoTorchForm(
            f"{name}: torch joins products to {m} x {k}, random weights have at most {MOST_DRAWN} elements: "
            "--runtime engine"
        )


def _in_runtime(load: Callable[[str], Workload | None], runtime: str | None) -> Workload | None:
    """Return `load(runtime)`. If `runtime` is None, try `torch` first, then `engine`.

    If `torch` is not possible, the workload for `engine` has a note with the reason.
    """
    if runtime is not None:
        return load(runtime)
    try:
        return load("torch")
    except NoTorchForm as error:
        why = Skipped(layer="torch", reason=f"{error}".removesuffix(": --runtime engine"))
        found = load("engine")
        return None if found is None else found.noting(why)


def _check_fixed(
    source: Source, passes: Sequence[Pass], settings: ConvSettings, stated: Mapping[str, int | None]
) -> None:
    """Raise BadInput if the user set sizes that a known model fixes.

    These are the sizes of inputs, and the tokens of a model of images, which follow from them.
    """
    for field in ("input_size", "stride", "padding"):
        if getattr(settings, field):
            option = field.removesuffix("_size")
            raise BadInput(f"{source} says the sizes of its inputs: leave out --{option}")
    name, shape = _known_model(source)
    reads_images = name is not None if shape is None else shape.patch
    # The builder of a graph refuses passes that generate tokens, with a reason of its own
    for run in passes if reads_images and not any(run.cached for run in passes) else ():
        if stated.get("tokens") or run.tokens != SEQUENCE or run.label.startswith("prefill"):
            got = run.label or f"{run.tokens} tokens"
            raise BadInput(
                f"{name or CONFIG} reads images, whose tokens are fixed: wanted batch:B, got {got}"
            )


def _known_model(source: Source) -> tuple[str | None, Transformer | None]:
    """Return the standard name of a model, and its sizes if it is a transformer of known type."""
    path = path_of(source)
    name = known_name(f"{path}")
    return name, transformers().get(name) if name else checkpoint_shape(source if path is None else path)


def graph_of_standard(source: Source, run: Pass, runtime: str = "engine") -> ModelGraph:
    """Return the model graph of one pass of a standard model, given by its name or its `config.json`.

    Raise BadInput for a configuration of unknown type, or for parts that cannot be removed from the model.
    """
    name = f"{path_of(source)}"
    if isinstance(source, Removed):
        return transformer_graph(name, source.sizes(), run, runtime=runtime)
    if known_name(name) is not None:
        return load_pass(name, run, runtime)
    shape = checkpoint_shape(name)
    if shape is None:
        raise BadInput(f"{name}: its model_type is none of {', '.join(families())}")
    return transformer_graph(name, shape, run, runtime=runtime)


def standard_workload(
    graphs: Sequence[ModelGraph],
    passes: Sequence[Pass] = (Pass(1),),
    *,
    target: Sequence[str] = (),
    ignore: Sequence[str] = (),
    dtype: str = "fp16",
    seed: int = 0,
) -> Workload:
    """Return a workload of the products in `graphs`, with heavy-tailed random weights.

    There is one graph for each pass.

    In a large model, products of one shape whose names differ only in numbers (such as the number of the
    layer) have the same random weights.
    """
    every = {name: product for graph in graphs for name, product in graph.products.items()}
    selected = select_names(every, target, ignore)
    chosen = {name: every[name] for name in selected if target or is_pruned(name)}
    if not chosen:
        raise BadInput("wanted at least one matrix, ignore leaves out all that are customarily pruned")
    are_few = sum(product.m * product.k for product in chosen.values()) <= MOST_REMEMBERED_WEIGHTS
    layers = {}
    draws: dict[tuple[str, int, int], Callable[[], npt.NDArray[Any]]] = {}
    for place, (name, product) in enumerate(chosen.items()):
        draw = partial(heavy_tailed, (product.m, product.k), (seed, place))
        role = re.sub(r"\d+", "", name), product.m, product.k
        layers[name] = Layer(
            name=name,
            shape=(product.m, product.k),
            load=cache(draw) if are_few else draws.setdefault(role, draw),
            dtype=dtype,
            note=RANDOM,
        )
    left = tuple(Skipped(layer=name, reason=NAME_IT) for name in selected if name not in chosen)
    return workload_in_graphs(layers, graphs, passes, skipped=left, form="standard")


def _of_onnx(
    source: Source,
    passes: Sequence[Pass],
    stated: Mapping[str, int | None],
    settings: ConvSettings,
    target: Sequence[str],
    ignore: Sequence[str],
) -> Workload:
    """Load the products of an ONNX file. Other weights, such as grouped convolutions, are skipped."""
    path = f"{source}"
    for name in ("stride", "padding"):
        if value := getattr(settings, name):
            raise BadInput(f"{path}: an .onnx file says its strides and pads: leave out --{name} {value[0]}")
    (run,) = passes
    images = partial(image_sizes, settings) if settings.input_size else None
    model = read_onnx_model(path, batch=run.batch, tokens=run.tokens, images=images)
    for name, size in stated.items():
        if size is not None and name not in model.takes:
            has = "have" if name == "tokens" else "has"
            raise BadInput(
                f"{path}: {name} {has} no effect, the file fixes these sizes: leave out --{name} {size}"
            )
    loaded = load_layers(path, target=target, ignore=ignore)
    products = model.graph.products
    layers = {name: layer for name, layer in loaded.layers.items() if name in products}
    why = {name: model.untimed.get(name, "no product in the graph") for name in loaded.layers}
    if not layers:
        untimed = "".join(f"; {name}: {why[name]}" for name in why if name in model.untimed)
        raise BadInput(
            f"{path}: none of the selected weights belongs to a product that is timed, wanted at least one"
            f"{untimed:.300}"
        )
    for name, layer in layers.items():
        if layer.filters is not None and products[name].convolution is None:
            layers[name] = replace(layer, note=f"{layer.note}; {UNEVEN}")
    others = (Skipped(layer=name, reason=reason) for name, reason in why.items() if name not in layers)
    has_attention = any(o.kind == "attention" for o in model.graph)
    skipped = (*loaded.skipped, *others, *((SPLIT_ATTENTION,) if has_attention else ()))
    return workload_in_graphs(layers, [model.graph], passes, skipped=skipped, form="onnx")


def _of_module(
    source: Source, loaded: LoadedLayers, passes: Sequence[Pass], settings: ConvSettings
) -> Workload:
    """Load the products of a torch module that reads images, as torch runs it."""
    if not callable(source):
        check_has_form("torch", source)
    from prunecast.workload.torch_model.read_module import read_network  # imports torch

    graph = read_network(source, batch=passes[0].batch, images=partial(image_sizes, settings))
    graphs = [rewritten(graph, "torch", by_matrix=True)]
    return workload_in_graphs(loaded.layers, graphs, passes, skipped=loaded.skipped, form="module")


def _of_checkpoint(
    source: Source, loaded: LoadedLayers, passes: Sequence[Pass], runtime: str
) -> Workload | None:
    """Load the layers of a Hugging Face folder or module, and the model graph of its configuration.

    Return None if there is no configuration of a known type, or if the shape of a matrix contradicts it.
    """
    shape = shape_of(source)
    if shape is None:
        return None
    sizes, folder = matrix_sizes(loaded.stored), name_of(source) or type(source).__name__
    graphs = [graph_of_tensors(folder, shape, run, sizes, runtime) for run in passes]
    known = [graph for graph in graphs if graph is not None]
    if len(known) < len(graphs) or not loaded.layers.keys() <= sizes.keys():
        return None
    return workload_in_graphs(loaded.layers, known, passes, skipped=loaded.skipped, form="checkpoint")


def _of_unknown(source: Source, loaded: LoadedLayers, passes: Sequence[Pass]) -> Workload | None:
    """Load the layers of a Hugging Face folder of unknown model type.

    Its graph contains the matrix products, and one read of the weights of every other module. Return None for
    other sources, and for models with convolutions or experts, whose N is not known.
    """
    kind = (config_of(source) or {}).get("model_type")
    if path_of(source) is None or not isinstance(kind, str) or kind in families():
        return None
    if any(layer.filters is not None or layer.experts is not None for layer in loaded.layers.values()):
        return None
    graphs = [unknown_graph(name_of(source), loaded.stored, run) for run in passes]
    if not any(graphs[0].has_product(name) for name in loaded.layers):
        return None
    why = Skipped(layer=CONFIG, reason=f"model_type {kind!r:.40} is not known: {IN_A_ROW}")
    skipped = (*loaded.skipped, why, *parts_skipped(loaded.stored))
    return workload_in_graphs(loaded.layers, graphs, passes, skipped=skipped, form="checkpoint")


def _not_counted(source: Source) -> Iterator[Skipped]:
    """Yield a note with the parts of a known model that its graph does not contain."""
    name, shape = _known_model(source)
    if shape is not None and shape.not_counted:
        yield Skipped(layer=name or CONFIG, reason=f"not counted: {shape.not_counted}")


def _uncounted(source: Source) -> Iterator[Skipped]:
    """Yield a note that only matrices are counted, for a module or folder of an unknown model."""
    config = config_of(source)
    if config is None and isinstance(source, Module):
        yield Skipped(layer=type(source).__name__, reason=f"no configuration: {ONLY_MATRICES}")
    if config is not None:
        kind = config.get("model_type")
        why = f"model_type {kind!r:.40} is not known"
        if kind in families():
            why = f"other sizes or layers than its matrices have, or parts that a {kind} has not"
        yield Skipped(layer=CONFIG, reason=f"{why}: {ONLY_MATRICES}")


def workload_in_graphs(
    layers: Mapping[str, Layer],
    graphs: Sequence[ModelGraph],
    passes: Sequence[Pass],
    *,
    skipped: tuple[Skipped, ...] = (),
    form: str = "matrices",
) -> Workload:
    """Return a workload of those `layers` that are products in `graphs` (one graph for each pass).

    All other layers are skipped. A name denotes the same layer in all graphs.
    """
    found = {}
    for name, layer in layers.items():
        products = [graph[name] if graph.has_product(name) else None for graph in graphs]
        known = [product for product in products if product is not None]
        if not known:
            skipped = (*skipped, Skipped(layer=name, reason="no product in the model's graph"))
            continue
        found[name] = _workload_layer(
            replace(layer, experts=None),
            tuple(0 if product is None else product.n for product in products),
            known[0].convolution,
            known[0].copies,
        )
    return Workload(layers=found, passes=tuple(passes), graphs=tuple(graphs), skipped=skipped, form=form)


def _of_matrices(
    loaded: LoadedLayers, passes: Sequence[Pass], settings: ConvSettings, experts_per_token: int
) -> Workload:
    """Return a workload without a model graph.

    N of a convolution is its number of output pixels. N of any other layer is the number of tokens of the
    pass, which the experts of a layer share evenly.
    """
    shapes = conv_shapes(tuple(loaded.layers.values()), settings)
    layers = {}
    for name, layer in loaded.layers.items():
        if layer.experts is not None and experts_per_token > layer.experts:
            raise BadInput(
                f"{name}: experts-per-token must be 1 to its {layer.experts} experts, got {experts_per_token}"
            )
        conv = shapes.get(name)
        tokens = (conv.n if conv else layer.share_of(run.columns, experts_per_token) for run in passes)
        layers[name] = _workload_layer(layer, tuple(tokens), conv)
    return Workload(layers=layers, passes=tuple(passes), skipped=loaded.skipped)


def _workload_layer(
    layer: Layer, tokens: tuple[int, ...], convolution: ConvShape | None, count: int = 1
) -> WorkloadLayer:
    read = {each.name: getattr(layer, each.name) for each in fields(layer)}
    return WorkloadLayer(**read, tokens=tokens, convolution=convolution, count=count)
