"""Read `config.json` of a Hugging Face checkpoint, and build the model graph with the names of its tensors.

The model families in `families.toml` are supported.
"""

import re
from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from prunecast.errors import BadInput
from prunecast.files import MIB, parse_json, read_bytes
from prunecast.hardware import GpuSpec, load_gpu
from prunecast.workload.graph.families import Family, families
from prunecast.workload.graph.image_nets import PIXELS
from prunecast.workload.graph.model_graph import ModelGraph, Operation, linear
from prunecast.workload.graph.shapes import Pass, Transformer
from prunecast.workload.graph.workloads import transformer_graph

CONFIG = "config.json"
QUANTIZED = "quantization_config"
"""Entry of a configuration that names the method by which `transformers` loads quantised weights."""
METHOD = "prunecast"
"""Method of folders that `prune` and `sparsify_pretrained` wrote: dense tensors with zeros."""
READABLE = (METHOD, "compressed-tensors", "fp8", "fbgemm_fp8")
"""Methods whose weights the readers of tensors unpack or widen."""
MASKED_FORMATS = ("dense", "sparse-24-bitmask", "sparse-bitmask")
"""Formats of compressed-tensors that hold pruned weights in full precision."""

LAYER = re.compile(r"(?P<before>(?:^|\.)(?:layers|layer|h|block)\.)(?P<number>\d+)(?=\.)")
"""Beginning of the name of a tensor in a layer, up to the number of the layer."""
EXPERT = re.compile(r"(?:mlp|block_sparse_moe)\.experts\.\d+\.(\w+)$")


def read_config(path: Path) -> dict[str, Any]:
    """Return the JSON object of a `config.json`. Raise BadInput if the file does not contain one."""
    try:
        config = parse_json(read_bytes(path, "a config.json", most=MIB))
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path}: wanted the JSON object of a model's configuration, but: {error}") from None
    if not isinstance(config, dict):
        raise BadInput(f"{path}: wanted the JSON object of a model's configuration")
    if not isinstance(config.get(QUANTIZED) or {}, dict):
        raise BadInput(f"{path}: {QUANTIZED} must be a JSON object, got {config[QUANTIZED]!r:.40}")
    return config


def check_readable(folder: Path, *, rewritten: bool = False) -> None:
    """Raise BadInput for a folder with quantised weights that this package cannot read, or cannot write back.

    The `config.json` of the folder names the quantisation method in its entry `quantization_config`.

    Parameters
    ----------
    folder : folder of a Hugging Face checkpoint
    rewritten : True if the weights will be written back as dense tensors. Formats with scales, such as fp8,
        are then refused too, since `transformers` could not load the result

    Raises
    ------
    BadInput : the method is not supported; or this package wrote the folder, and the GPU that it recorded in
        `quantization_config` is unknown
    """
    entry = read_config(folder / CONFIG).get(QUANTIZED) or {}
    method = entry.get("quant_method")
    if method == METHOD:
        stated_gpu(entry.get("gpu"), folder)
    if method is None and any(entry.get(f"load_in_{bits}bit") for bits in (4, 8)):
        method = "bitsandbytes"
    known = (METHOD,) if rewritten and entry.get("format") not in MASKED_FORMATS else READABLE
    if not entry or method in known:
        return
    bits = next((f", {entry[name]} bits" for name in ("bits", "w_bit") if name in entry), "")
    raise BadInput(
        f"{folder}: its weights are quantised ({method}{bits}): wanted the 16-bit checkpoint it was made of"
    )


def stated_gpu(name: Any, where: str | Path) -> GpuSpec | None:
    """Return the GPU that this package recorded in a `quantization_config`; None if `name` is empty or None.

    Raises
    ------
    BadInput : `name` is not a text, or not the name of a known GPU
    """
    if name is None or name == "":
        return None
    try:
        if not isinstance(name, str):
            raise BadInput(f"wanted the name of a GPU or null, got {name!r:.40}")
        return load_gpu(name)
    except BadInput as error:
        raise BadInput(f"{where}: gpu in its {QUANTIZED}: {error}") from None


def checkpoint_shape(weights: object) -> Transformer | None:
    """Return the architecture of a folder, a `config.json` or a module; None for an unknown model type.

    Raises
    ------
    BadInput : the file cannot be read, or a number in it is out of range
    """
    config = config_of(weights)
    family = None if config is None else families().get(_family_name(config))
    if config is None or family is None:
        return None
    path = Path(weights if isinstance(weights, str | Path) else type(weights).__name__)
    path = path if path.name == CONFIG else path / CONFIG
    shape = Transformer(**family.sizes(config, f"{path}"))
    if shape.patch and (shape.patch > PIXELS or config.get("image_size") not in (None, PIXELS)):
        raise BadInput(f"wanted images of {PIXELS} pixels and smaller patches, got patches of {shape.patch}")
    own = _layer_entries(path, config, shape.layers)
    sizes = [Transformer(**family.sizes({**config, **entry}, f"{path}")).own_sizes for entry in own]
    return replace(shape, layer_sizes=tuple(sizes))


def _layer_entries(path: Path, config: Mapping[str, Any], layers: int) -> list[dict[str, Any]]:
    """Return the entry of `per_layer_config` for each layer; an empty list if there is none.

    Raise BadInput for a malformed entry.
    """
    given = config.get(BY_LAYER) or {}
    entries = given.items() if isinstance(given, dict) else [(repr(given)[:40], None)]
    found: list[dict[str, Any]] = [{} for _ in range(layers if given else 0)]
    for layer, entry in entries:
        number = int(layer) if str(layer).isdecimal() else layers
        if not isinstance(entry, dict) or number >= layers or "skip" in entry:
            raise BadInput(
                f"{path}: {BY_LAYER} must hold sizes of layers from 0 to {layers - 1}, got {layer!r:.40}"
            )
        found[number] = entry
    return found


def _family_name(config: Mapping[str, Any]) -> str:
    """Return the first of a configuration's `architectures` that is a family, else its `model_type`."""
    classes = config.get("architectures")
    own = [name for name in classes if name in families()] if isinstance(classes, list) else []
    kind = config.get("model_type")
    return own[0] if own else kind if isinstance(kind, str) else ""


BY_LAYER = "per_layer_config"
"""Entry with the sizes of each layer whose sizes differ from the sizes of the model (transformers 5.23)."""
HEADS_DIVIDE = ("llama", "gemma2", "gemma3_text")
"""Types of models whose configurations transformers refuses if the heads do not divide the features. Kind:
definition, `validate_architecture` of transformers 5.23."""
CHANGED = ("layers", "heads", "key_heads", "head_width", "feed_forward", "experts", "experts_per_token")
"""Sizes of `Transformer` that a configuration must contain anew after parts were removed."""


def check_sizes(path: Path, shape: Transformer, *, has_fewer_widths: bool) -> None:
    """Raise BadInput for sizes that the library `transformers` cannot load for this model type.

    Heads can only be removed if the configuration has a field for the width of a head. Otherwise
    `transformers` divides the hidden features by the number of heads that are left, and expects matrices of
    other sizes. Widths can only be removed if the configuration has a field for them.
    """
    config = read_config(path)
    kind, family = config.get("model_type"), families().get(_family_name(config))
    if family is not None and shape.head_width and "head_width" not in family.fields:
        raise BadInput(
            f"{path}: heads are not removed from a {kind}, whose configuration has no width of a head: "
            "transformers divides the features by the heads"
        )
    if family is not None and has_fewer_widths and not family.names("feed_forward"):
        raise BadInput(
            f"{path}: widths are not removed from a {kind}, whose configuration has no feed-forward width"
        )
    if kind in HEADS_DIVIDE and shape.hidden % shape.heads:
        raise BadInput(
            f"{path}: transformers loads a {kind} only if its heads divide the {shape.hidden} features, "
            f"{shape.heads} heads are left"
        )


def smaller_config(config: Mapping[str, Any], shape: Transformer, layers: Sequence[int]) -> dict[str, Any]:
    """Return the configuration of a model from which parts were removed.

    Parameters
    ----------
    config : configuration of the whole model, of a known type
    shape : sizes of the smaller model
    layers : indices of the kept layers. Lists with one entry for each layer, such as `layer_types`, keep only
        the entries of these layers
    """
    family = families()[_family_name(config)]
    by_layer: dict[str, dict[str, int]] = {}
    count = next(config[name] for name in family.names("layers") if config.get(name) is not None)
    found = {
        name: [value[layer] for layer in layers] if isinstance(value, list) and len(value) == count else value
        for name, value in config.items()
    }
    for size in CHANGED:
        names, value = family.names(size, of_experts=shape.experts > 0), getattr(shape, size)
        if not names or not value:
            continue
        written = next((name for name in names if config.get(name) is not None), names[0])
        found[written] = value
        for layer, own in enumerate(shape.layer_sizes):
            if getattr(own, size, value) != value:
                by_layer.setdefault(str(layer), {})[written] = getattr(own, size)
    return {**found, BY_LAYER: by_layer} if by_layer else found


def config_of(weights: object) -> dict[str, Any] | None:
    """Return the configuration of a Hugging Face folder, a `config.json` or a module; None for others."""
    if isinstance(weights, str | Path):
        path = Path(weights)
        path = path if path.name == CONFIG else path / CONFIG
        return read_config(path) if path.is_file() else None
    describe = getattr(getattr(weights, "config", None), "to_dict", None)
    config = describe() if callable(describe) else None
    return config if isinstance(config, dict) else None


BRAIN_FLOAT = "bfloat16"


def dtype_of_config(weights: object) -> str:
    """Return `bf16` if `weights` is the path of a `config.json` whose `dtype` is bfloat16.

    Return `fp16` for another `dtype` and for other sources.
    """
    if not isinstance(weights, str | Path) or Path(weights).name != CONFIG or not Path(weights).is_file():
        return "fp16"
    config = read_config(Path(weights))
    return "bf16" if BRAIN_FLOAT in (config.get("dtype"), config.get("torch_dtype")) else "fp16"


def graph_of_tensors(
    name: str,
    shape: Transformer,
    run: Pass,
    matrices: Mapping[str, tuple[int, int]],
    runtime: str = "engine",
) -> ModelGraph | None:
    """Return the graph of one pass, in which products have the names of the file's tensors.

    Matrices that the graph does not contain, such as a pooler, become separate products. A product without a
    tensor in the file, such as an output head that shares the weights of the embedding, keeps its graph name.

    Parameters
    ----------
    matrices : tensor -> (M, K), for all weights of products

    Returns
    -------
    the graph, or None if the shape of a matrix or the number of layers contradicts the configuration
    """
    model = transformer_graph(name, shape, run, runtime, by_matrix=True)
    tensors: dict[str, list[str]] = {}
    counted: set[str] = set()
    for tensor, size in matrices.items():
        node = node_of(tensor)
        if node is None or not model.has_product(node):
            if node in model.graph:  # patches in torch, which have their own kind
                counted.add(tensor)
            continue
        if size != (model[node].m, model[node].k):
            return None
        tensors.setdefault(node, []).append(tensor)
    # A layer without matrices would be counted, although no file has its weights
    if len({node.split(".")[1] for node in tensors if node.startswith("layer.")}) < shape.layers:
        return None
    known = counted.union(*tensors.values())
    return _renamed(model, tensors, {t: size for t, size in matrices.items() if t not in known}, run)


def node_of(tensor: str) -> str | None:
    """Return the name of the graph node that a tensor belongs to; None if its name has an unknown form."""
    module, _, end = tensor.rpartition(".")
    if end != "weight":
        return None
    parts, match = _parts(), LAYER.search(module)
    if match is None:
        return next((node for end, node in parts.outside.items() if f".{module}".endswith(f".{end}")), None)
    layer, own = f"layer.{match['number']}", module[match.end() + 1 :]
    expert = EXPERT.fullmatch(own)
    if expert is not None and expert[1] in parts.experts:
        return f"{layer}.experts.{parts.experts[expert[1]]}"
    return f"{layer}.{parts.tensors[own]}" if own in parts.tensors else None


@cache
def _parts() -> Family:
    """Return one `Family` with the matrix names of all families, in which no name has two meanings."""
    every = families().values()
    tables = ("tensors", "experts", "outside")
    return Family(
        facts={},
        fields={},
        **{table: dict(ChainMap(*(getattr(f, table) for f in every))) for table in tables},
    )


def _renamed(
    model: ModelGraph,
    tensors: Mapping[str, list[str]],
    others: Mapping[str, tuple[int, int]],
    run: Pass,
) -> ModelGraph:
    """Return the graph with products renamed to their tensors, and `others` as additional products.

    The experts of a layer, which are one node of `model`, become one node each.
    """

    def named(o: Operation) -> list[Operation]:
        names = tensors.get(o.name, [o.name])
        each = o if len(names) == 1 else replace(o, copies=1, idle=o.idle / o.copies)
        return [replace(each, name=name) for name in names]

    found = model.divided(named)
    for own, (m, k) in others.items():
        found.add(linear(own, m, k, run.columns))
    return found
