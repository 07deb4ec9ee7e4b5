"""The standard models by name, and the graphs of transformers: BERT, ViT, GPT-2, Llama, Mixtral, Whisper.

Queries, keys and values read the same x. In BERT and GPT-2 by name they are one product in both runtimes
(`fused_qkv`), which saves a sixth of their time. In other models the runtime `torch` joins them
(`fusions.join_qkv`), and `engine` runs each matrix of the model files as a separate product: those of Llama
are large enough to fill a GPU, so that joining them changes their time by less than 3 %.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from prunecast.errors import BadInput, check_choice
from prunecast.plan.conv_shape import ConvShape
from prunecast.workload.graph.blocks import Blocks
from prunecast.workload.graph.image_nets import PIXELS, build_image_net, image_nets
from prunecast.workload.graph.model_graph import ModelGraph, Operation, convolved
from prunecast.workload.graph.names import WORKLOADS, known_name
from prunecast.workload.graph.runtimes import rewritten
from prunecast.workload.graph.shapes import Pass, Transformer, check_phase, transformers

MOST_APART = 2**33
"""Number of weights of all layers above which equal layers are one node of the graph and are pruned alike."""
FRAMES, HEARD = 3000, 1500
"""Frames of 30 s of audio that Whisper's encoder reads, and the tokens into which it converts them."""


class NoTorchForm(BadInput):
    """Error for a model whose launches in torch are not known."""


def transformer_graph(
    name: str, shape: Transformer, run: Pass, runtime: str = "engine", *, by_matrix: bool = False
) -> ModelGraph:
    """Return the graph of one forward pass of a transformer, with the rewrites of a runtime.

    Parameters
    ----------
    by_matrix : each product is one matrix as stored in files, and every layer has its own operations, even in
        a large model

    Raises
    ------
    BadInput : a decode pass of a model that generates no text
    NoTorchForm : a model whose launches in torch are not known
    """
    check_phase(name, shape, run.cached)
    if runtime == "torch" and run.gpus > 1:
        raise NoTorchForm(f"tensor-parallel {run.gpus} is of --runtime engine: torch runs a model on one GPU")
    shape = shape.share(run.gpus)
    parts = {
        "experts": shape.experts,
        "sound": shape.mels and shape.causal,
        "windows of attention": shape.window,
        shape.engine_only: shape.engine_only,
    }
    what = next((part for part, is_there in parts.items() if is_there), None)
    if runtime == "torch" and what is not None:
        raise NoTorchForm(f"{name} has {what}, of which the form in torch is not known: --runtime engine")
    is_apart = by_matrix or bool(shape.layer_sizes)
    graph = unfused_transformer(name, shape, run, apart=is_apart)
    weights = sum(product.weights for product in graph.products.values() if product.name != "head")
    if not is_apart and weights <= MOST_APART:
        graph = unfused_transformer(name, shape, run)
    return rewritten(graph, runtime, by_matrix=by_matrix)


def unfused_transformer(name: str, shape: Transformer, run: Pass, *, apart: bool = True) -> ModelGraph:
    """Return the graph of a transformer before any rewrite.

    If `apart` is True, every layer has its own nodes; otherwise equal layers share nodes.
    """
    model = ModelGraph(name=name)
    if shape.mels and shape.causal:
        return _whisper(model, shape, run)
    if shape.patch:
        run = run._replace(tokens=(PIXELS // shape.patch) ** 2 + 1, all_logits=False)
    blocks = Blocks(model, shape, run)
    if shape.patch:
        stream = _patches(model, shape, run)
    elif shape.mels:
        stream = _sound(model, shape, run)
    else:
        stream = _input(blocks, model, shape, run)
    if shape.position_bias:
        blocks.position_bias(stream)
    if shape.norm_first:
        stream = blocks.first_norm(stream)
    for layer in _layers(shape, apart=apart):
        own = Blocks(model, layer.shape, run, layer.copies)
        stream = own.layer(layer.name, stream, layer.window)
    _head(blocks, shape, run, stream)
    return model


def _input(blocks: Blocks, model: ModelGraph, shape: Transformer, run: Pass) -> str:
    """Add the embedding of the tokens, and its all-reduce if each of several GPUs has a part of the table.

    An embedding of other features than those of the layers is projected to these.
    """
    elements = shape.embedded * run.columns
    rows = shape.embedding_rows
    m, k = (rows, shape.embedded) if rows else (0, 0)
    found = Operation(name="embedding", kind="input", m=m, k=k, elements_out=elements, layout="tokens")
    stream = blocks.summed_over_gpus(model.add(found), elements)
    return blocks.projected("project_in", stream, shape.hidden, shape.embedded)


class _Layer(NamedTuple):
    """Equal layers of a transformer."""

    name: str
    shape: Transformer
    window: int
    """Tokens to which a token attends, 0 for all."""
    copies: int = 1


def _layers(shape: Transformer, *, apart: bool) -> Iterator[_Layer]:
    """Yield every layer if `apart` is True, else one entry for each group of equal layers."""
    layers = [(shape.layer_shape(layer), shape.window_of(layer)) for layer in range(shape.layers)]
    if apart:
        yield from (_Layer(f"layer.{number}", *layer) for number, layer in enumerate(layers))
        return
    alike = Counter(layers)
    windows = {window for _, window in alike}
    for (own, window), copies in alike.items():
        ends = (f"window{window}" if len(windows) > 1 else "", "" if own == shape else "dense")
        yield _Layer(".".join(["layers", *filter(None, ends)]), own, window, copies)


def _head(blocks: Blocks, shape: Transformer, run: Pass, stream: str) -> None:
    stream = blocks.projected("project_out", stream, shape.embedded, shape.hidden)
    if not shape.head:
        return
    tokens = run.columns if run.all_logits else run.batch
    logits = blocks.product("head", shape.head, shape.embedded, [stream], n=tokens)
    blocks.gathered_over_gpus(logits, shape.head * tokens)


def _patches(model: ModelGraph, shape: Transformer, run: Pass) -> str:
    """Add the patches of an image as tokens: a convolution without overlap."""
    conv = ConvShape.square(3, PIXELS, shape.patch, stride=shape.patch, padding=0, batch=run.batch)
    product = convolved("patches", shape.hidden, conv)
    image = Operation(name="image", kind="input", elements_out=product.elements_in)
    return model.add(product, [model.add(image)])


def _sound(model: ModelGraph, shape: Transformer, run: Pass) -> str:
    """Add the two convolutions that turn two frames of audio into a token; return the name of the second."""
    stream = model.add(
        Operation(name="sound", kind="input", elements_out=shape.mels * 2 * run.tokens * run.batch)
    )
    for number, channels in enumerate((shape.mels, shape.hidden)):
        # A row of pixels whose padding is part of its width: no padding above and below
        frames = 2 * run.tokens + 2
        sizes = {"channels": channels, "height": 1, "width": frames, "kernel_h": 1, "kernel_w": 3}
        conv = ConvShape(**sizes, stride=number + 1, batch=run.batch)
        stream = model.add(convolved(f"conv{number + 1}", shape.hidden, conv), [stream])
    return stream


def _whisper(model: ModelGraph, shape: Transformer, run: Pass) -> ModelGraph:
    """Return the graph of Whisper.

    A pass without cached tokens encodes 30 s of audio for each sequence. Later passes read the keys and
    values of the audio from the cache.
    """
    keys = {} if run.cached else _hear(model, shape, run)
    blocks = Blocks(model, shape, run)
    stream = _input(blocks, model, shape, run)
    for layer in range(shape.layers):
        name = f"decoder.{layer}"
        stream = blocks.residual(f"{name}.norm1", [blocks.attention(name, stream)], stream)
        heard = blocks.cross_attention(f"{name}.cross", stream, keys.get(layer, []), HEARD)
        stream = blocks.residual(f"{name}.cross.norm", [heard], stream)
        stream = blocks.residual(f"{name}.norm2", [blocks.feed_forward(name, stream)], stream)
    _head(blocks, shape, run, stream)
    return model


def _hear(model: ModelGraph, shape: Transformer, run: Pass) -> dict[int, list[str]]:
    """Add the encoder. Return decoder layer -> names of its products for keys and values of the audio."""
    encoder, heard = replace(shape, causal=False), run._replace(tokens=HEARD)
    blocks = Blocks(model, encoder, heard)
    sound = Operation(name="sound", kind="input", elements_out=shape.mels * FRAMES * run.batch)
    stream = blocks.product(
        "encoder.conv1", shape.hidden, 3 * shape.mels, [model.add(sound)], n=FRAMES * run.batch
    )
    stream = blocks.product("encoder.conv2", shape.hidden, 3 * shape.hidden, [stream])
    for layer in range(shape.layers):
        name = f"encoder.{layer}"
        stream = blocks.layer(name, stream)
    return {
        layer: [
            blocks.product(f"decoder.{layer}.cross.{part}", shape.width, shape.hidden, [stream])
            for part in ("key", "value")
        ]
        for layer in range(shape.layers)
    }


def load_pass(name: str, run: Pass, runtime: str = "engine") -> ModelGraph:
    """Return the graph of one forward pass of a standard model.

    Parameters
    ----------
    name : one of `WORKLOADS`, in any case, or its identifier on a model hub
    runtime : one of `RUNTIMES`

    Raises
    ------
    BadInput : an unknown name, a number out of range, or cached tokens of a model that generates no text
    NoTorchForm : a model whose launches in torch are not known
    """
    name = known_name(name) or check_choice("workload", name, WORKLOADS)
    if name in transformers():
        return transformer_graph(name, transformers()[name], run, runtime)
    if runtime == "torch" and image_nets()[name]["kind"] == "unet":
        raise NoTorchForm(f"{name} mixes convolutions and attention: its form in torch is not known")
    if run.gpus > 1:
        raise BadInput(f"tensor-parallel is of transformers, got {run.gpus} for {name}")
    if run.cached:
        raise BadInput(
            f"{name} generates no tokens one by one: wanted batch:B, got {run.label or 'a decode'}"
        )
    return rewritten(build_image_net(name, batch=run.batch), runtime)
