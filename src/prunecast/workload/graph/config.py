"""`config.json` of a Hugging Face checkpoint: the graph of its model, with the names of its tensors.

Known are decoders in the way of Llama (Mistral, Mixtral, Qwen 2 and 3, Gemma, Phi 3), GPT-2, BERT and ViT.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from prunecast.errors import BadInput
from prunecast.files import MIB, parse_json, read_bytes
from prunecast.workload.graph.model_graph import ModelGraph, linear
from prunecast.workload.graph.shapes import Pass, Transformer
from prunecast.workload.graph.workloads import PIXELS, transformer_graph

CONFIG = "config.json"
LLAMAS = (
    "llama",
    "mistral",
    "mixtral",
    "qwen2",
    "qwen3",
    "qwen3_moe",
    "gemma",
    "gemma2",
    "gemma3_text",
    "phi3",
)
KINDS = (*LLAMAS, "gpt2", "bert", "vit")
"""Types of models that are known."""
MOST = 2**20
MOST_LAYERS = 1024
"""Eight times those of Llama 3.1 405B; a graph has a dozen operations a layer."""
"""Layers, features and tokens of a vocabulary, each."""

_LLAMA = {
    "self_attn.q_proj": "query",
    "self_attn.k_proj": "key",
    "self_attn.v_proj": "value",
    "self_attn.qkv_proj": "qkv",
    "self_attn.o_proj": "output",
    "mlp.gate_proj": "gate",
    "mlp.up_proj": "up",
    "mlp.gate_up_proj": "gate_up",
    "mlp.down_proj": "down",
    "mlp.gate": "router",
    "block_sparse_moe.gate": "router",
}
_ENCODER = {
    "attention.output.dense": "output",
    "intermediate.dense": "up",
    "output.dense": "down",
    **{f"attention.self.{part}": part for part in ("query", "key", "value")},
    **{f"attention.attention.{part}": part for part in ("query", "key", "value")},
}
_GPT2 = {"attn.c_attn": "qkv", "attn.c_proj": "output", "mlp.c_fc": "up", "mlp.c_proj": "down"}
PARTS = {**_LLAMA, **_ENCODER, **_GPT2}
"""Name of a matrix inside its layer -> part of the graph's layer."""
LAYER = re.compile(r"(?:^|\.)(?:layers|layer|h)\.(\d+)\.(.+)\.weight$")
EXPERT = re.compile(r"(?:mlp|block_sparse_moe)\.experts\.\d+\.(gate_proj|up_proj|down_proj|w1|w2|w3)$")
EXPERT_PARTS = {"w1": "gate", "w3": "up", "w2": "down"}
OTHERS = {
    "lm_head.weight": "head",
    "classifier.weight": "head",
    "embeddings.patch_embeddings.projection.weight": "patches",
}


def shape_of_config(path: Path) -> Transformer | None:
    """The architecture; None for a type of model that is not known.

    Raises
    ------
    BadInput : the file cannot be read, or a number in it cannot be one of a model
    """
    try:
        config = parse_json(read_bytes(path, "a config.json", most=MIB))
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path}: wanted the JSON object of a model's configuration, but: {error}") from None
    if not isinstance(config, dict):
        raise BadInput(f"{path}: wanted the JSON object of a model's configuration")
    kind = config.get("model_type")
    numbers = _Numbers(path, config)
    if kind in LLAMAS:
        return _llama(str(kind), numbers)
    if kind == "gpt2":
        return _gpt2(numbers)
    if kind in ("bert", "vit"):
        return _encoder(str(kind), numbers)
    return None


def checkpoint_shape(weights: object) -> Transformer | None:
    """The architecture of a folder with a configuration; None for anything else, or an unknown type."""
    if not isinstance(weights, str | Path) or not (Path(weights) / CONFIG).is_file():
        return None
    return shape_of_config(Path(weights) / CONFIG)


class _Numbers:
    """Whole numbers of a configuration, checked."""

    def __init__(self, path: Path, config: Mapping[str, Any]) -> None:
        self._path, self._config = path, config

    def get(self, *names: str, default: int | None = None, most: int = MOST) -> int:
        """The first of these that is there."""
        name = next((name for name in names if self._config.get(name) is not None), None)
        found = default if name is None else self._config[name]
        if type(found) is not int or not (0 if found == default else 1) <= found <= most:
            raise BadInput(f"{self._path}: {name or names[0]} must be 1 to {most}, got {found!r:.40}")
        return found

    def says(self, name: str) -> bool:
        """Whether something is switched on."""
        return self._config.get(name) is True

    def heads(self, hidden: int, name: str) -> int:
        """Heads, which divide the features unless these have a width of their own."""
        heads = self.get(name)
        if not self.get("head_dim", default=0) and hidden % heads:
            raise BadInput(f"{self._path}: {name} must divide {hidden} features, got {heads}")
        return heads


def _llama(kind: str, numbers: _Numbers) -> Transformer:
    hidden = numbers.get("hidden_size")
    experts = numbers.get("num_local_experts", "num_experts", default=0)
    wide = ("moe_intermediate_size", "intermediate_size") if experts else ("intermediate_size",)
    windowed = kind in ("mistral", "gemma2", "gemma3_text", "phi3") or numbers.says("use_sliding_window")
    every = {"gemma2": 2, "gemma3_text": numbers.get("sliding_window_pattern", default=6)}
    heads = numbers.heads(hidden, "num_attention_heads")
    return Transformer(
        layers=numbers.get("num_hidden_layers", most=MOST_LAYERS),
        hidden=hidden,
        heads=heads,
        head_width=numbers.get("head_dim", default=0),
        key_heads=numbers.get("num_key_value_heads", default=heads),
        feed_forward=numbers.get(*wide),
        gated=True,
        rms_norm=True,
        rotary=True,
        experts=experts,
        experts_per_token=min(experts, numbers.get("num_experts_per_tok", default=2)) if experts else 0,
        fused_qkv=kind == "phi3",
        fused_gate=kind == "phi3",
        window=numbers.get("sliding_window", default=0) if windowed else 0,
        global_every=every.get(kind, 0),
        head=numbers.get("vocab_size"),
    )


def _gpt2(numbers: _Numbers) -> Transformer:
    hidden = numbers.get("n_embd")
    return Transformer(
        layers=numbers.get("n_layer"),
        hidden=hidden,
        heads=numbers.heads(hidden, "n_head"),
        feed_forward=numbers.get("n_inner", default=min(4 * hidden, MOST)),
        fused_qkv=True,
        head=numbers.get("vocab_size"),
    )


def _encoder(kind: str, numbers: _Numbers) -> Transformer:
    hidden = numbers.get("hidden_size")
    patch = numbers.get("patch_size", default=0) if kind == "vit" else 0
    if patch and (patch > PIXELS or numbers.get("image_size", default=PIXELS) != PIXELS):
        raise BadInput(f"wanted images of {PIXELS} pixels and smaller patches, got patches of {patch}")
    return Transformer(
        layers=numbers.get("num_hidden_layers", most=MOST_LAYERS),
        hidden=hidden,
        heads=numbers.heads(hidden, "num_attention_heads"),
        feed_forward=numbers.get("intermediate_size"),
        norm_first=kind == "vit",
        causal=False,
        patch=patch,
    )


def graph_of_tensors(
    name: str,
    shape: Transformer,
    run: Pass,
    matrices: Mapping[str, tuple[int, int]],
    runtime: str = "engine",
) -> ModelGraph | None:
    """One pass of the model, its products called as the file's tensors.

    Matrices that the graph does not know, as a pooler, are products of their own; what the file lacks, as a
    last product that shares its weights with the embedding, keeps the graph's name.

    Parameters
    ----------
    matrices : tensor -> M, K, of all that multiply

    Returns
    -------
    the graph, or None where a matrix has another shape than the configuration says
    """
    model = transformer_graph(name, shape, run, runtime, by_matrix=True)
    tensors: dict[str, list[str]] = {}
    counted: set[str] = set()
    for tensor, size in matrices.items():
        node = node_of(tensor)
        if node is None or not model.has_product(node):
            if node in model.graph:  # patches in torch, which are a kind of their own
                counted.add(tensor)
            continue
        if size != (model[node].m, model[node].k):
            return None
        tensors.setdefault(node, []).append(tensor)
    known = counted.union(*tensors.values())
    return _renamed(model, tensors, {t: size for t, size in matrices.items() if t not in known}, run)


def node_of(tensor: str) -> str | None:
    """The graph's node that a tensor's name belongs to; None for a name of no known form."""
    ends = next((node for end, node in OTHERS.items() if tensor == end or tensor.endswith(f".{end}")), None)
    match = LAYER.search(tensor)
    if match is None:
        return ends
    expert = EXPERT.fullmatch(match[2])
    if expert is not None:
        part = EXPERT_PARTS.get(expert[1], expert[1].removesuffix("_proj"))
        return f"layer.{match[1]}.experts.{part}"
    return f"layer.{match[1]}.{PARTS[match[2]]}" if match[2] in PARTS else None


def _renamed(
    model: ModelGraph,
    tensors: Mapping[str, list[str]],
    others: Mapping[str, tuple[int, int]],
    run: Pass,
) -> ModelGraph:
    """The graph with products called like tensors; experts, one node before, are one each."""
    found = ModelGraph(name=model.name, runtime=model.runtime)
    called: dict[str, list[str]] = {}
    for operation in model:
        names = tensors.get(operation.name, [operation.name])
        idle = operation.idle / operation.copies if len(names) > 1 else operation.idle
        copies = 1 if len(names) > 1 else operation.copies
        before = _flat(called[source] for source in model.graph.predecessors(operation.name))
        for own in names:
            found.add(replace(operation, name=own, copies=copies, idle=idle), before)
        called[operation.name] = names
    for own, (m, k) in others.items():
        found.add(linear(own, m, k, run.columns))
    return found


def _flat(lists: Iterable[list[str]]) -> list[str]:
    return [name for names in lists for name in names]
