"""Content of a profile bundle of LLMServingSim: layer times in microseconds, for one GPU and one model.

The layout is that of LLMServingSim's profiler (`profiler/README.md`, LLMServingSim 2.0, bundles of profiler
1.0.0): `GPU/MODEL/VARIANT/tpN/{dense,per_sequence,attention,moe}.csv` and `meta.yaml`, under `profiler/perf`.
Layers have vLLM's names. All-reduces between GPUs are not included, since LLMServingSim simulates them.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from prunecast.codesign.export.serving_times import SEQUENCES, ServingTimes
from prunecast.version import tool_version

PARTS: Mapping[str, tuple[str, ...]] = {
    "qkv_proj": ("query", "key", "value", "qkv"),
    "rotary_emb": ("head norm", "rotary", "cache"),
    "o_proj": ("output",),
    "gate_up_proj": ("gate", "up", "gate_up"),
    "act_fn": ("gating", "activation"),
    "down_proj": ("down",),
}
"""Layer of vLLM -> parts of the graph. A part that is fused into its neighbour has no separate time."""
FEED_FORWARD = ("gate_up_proj", "act_fn", "down_proj")
NORMS = ("norm1", "norm2")
"""Norms of a layer; vLLM's `layernorm` runs twice in each layer, and `final_layernorm` once."""
MOE = ("router", "to_experts", "experts.gate", "experts.up", "gating", "experts.down", "from_experts")
UNTIMED = "qk_norm"
"""Layer that normalises heads in Qwen 3; other models lack it. Its time is not predicted and written as 0."""
SAMPLER = "sampler"
"""Layer that selects the next token. Its time is not predicted and written as 0."""
CHUNKS = (0, *(2**power for power in range(4, 14)))
"""Numbers of new prompt tokens in a batch; 0 for a batch of decodes only. LLMServingSim interpolates linearly
on all axes of the attention table; with steps by a factor of 4 instead of 2, the times of passes between the
points were up to 8 % off."""
HISTORY = (0, *(2**power for power in range(9, 16)))
"""Numbers of tokens of the prompt that earlier batches have computed."""
DECODES = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Numbers of sequences in a batch that get one token."""
CONTEXTS = tuple(2**power for power in range(4, 16))
"""Numbers of cached tokens of each such sequence."""
US = 1e6
"""Microseconds per second."""

Rows = list[dict[str, Any]]


def folder(times: ServingTimes, variant: str) -> str:
    """Return the path of the bundle's folder, relative to `profiler/perf`."""
    return f"{times.gpu.name}/{times.model.replace(' ', '_')}/{variant}"


def tables(times: ServingTimes) -> dict[str, Rows]:
    """Return name of a CSV file -> its rows."""
    found = {
        "dense": list(_dense(times)),
        "per_sequence": list(_per_sequence(times)),
        "attention": list(_attention(times)),
    }
    if times.experts is not None:
        found["moe"] = list(_moe(times))
    return found


def meta(times: ServingTimes, variant: str) -> dict[str, Any]:
    """Return the content of `meta.yaml`; the fit of uneven contexts is disabled, as nothing was measured."""
    return {
        "profiler_version": f"prunecast {tool_version()}",
        "vllm_version": "none: predicted, not measured",
        "gpu": times.gpu.title,
        "hardware": times.gpu.name,
        "model": times.model,
        "variant": variant,
        "tp_degrees": [times.gpus],
        "engine_effective": {
            "max_num_batched_tokens": int(times.columns[-1]),
            "max_num_seqs": SEQUENCES[-1],
        },
        "engine_resolved": {"per_tp": {f"{times.gpus}": {"block_size": 16}}},
        "attention_grid": {"max_kv": CONTEXTS[-1]},
        "skew_profile": {"enabled": False},
        "skew_fit": {"enabled": False},
    }


def _dense(times: ServingTimes) -> Iterator[dict[str, Any]]:
    norm = times.sum_of(NORMS) / len(NORMS)
    layers = {
        "embedding": sum(times.outside.values(), np.zeros(times.columns.size)),
        "layernorm": norm,
        "final_layernorm": norm,
        UNTIMED: np.zeros(times.columns.size),
        **{
            layer: times.sum_of(parts)
            for layer, parts in PARTS.items()
            if times.experts is None or layer not in FEED_FORWARD
        },
    }
    for layer, seconds in layers.items():
        for tokens, own in zip(
            times.columns.tolist(), np.broadcast_to(seconds, times.columns.shape), strict=True
        ):
            yield {"layer": layer, "tokens": tokens, "time_us": US * own}


def _per_sequence(times: ServingTimes) -> Iterator[dict[str, Any]]:
    for count, seconds in zip(SEQUENCES, times.head_s.tolist(), strict=True):
        yield {"layer": "lm_head", "sequences": count, "time_us": US * seconds}
    for count in SEQUENCES:
        yield {"layer": SAMPLER, "sequences": count, "time_us": 0.0}


def _attention(times: ServingTimes) -> Iterator[dict[str, Any]]:
    """Yield the attention time per layer (mean over layers) of passes with a prompt chunk and decodes.

    `kv_prefill` is the number of cached tokens before the chunk. Newer versions of the profiler use
    `prefill_key` as the key instead: the cached tokens plus half of the chunk. Both columns are written.
    """
    for chunk in CHUNKS:
        for history in HISTORY if chunk else (0,):
            before = times.attention_seconds(1, chunk, history) if chunk else 0.0
            for decodes in DECODES:
                for context in CONTEXTS if decodes else (0,):
                    if not chunk and not decodes:
                        continue
                    after = times.attention_seconds(decodes, 1, context) if decodes else 0.0
                    yield {
                        "layer": "attention",
                        "prefill_chunk": chunk,
                        "kv_prefill": history,
                        "prefill_key": history + chunk / 2.0,
                        "n_decode": decodes,
                        "kv_decode": context,
                        "decode_q_len": 1,
                        "time_us": US * (before + after) / times.layers,
                    }


def _moe(times: ServingTimes) -> Iterator[dict[str, Any]]:
    """Yield the time of a mixture-of-experts layer for each number of tokens.

    `activated_experts` is the number of experts that get a token.
    """
    seconds = times.sum_of(MOE)
    for tokens, active, own in zip(times.columns.tolist(), times.active_experts, seconds, strict=True):
        yield {"ep": 1, "tokens": tokens, "activated_experts": int(active), "time_us": US * float(own)}
