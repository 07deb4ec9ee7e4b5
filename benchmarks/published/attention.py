"""Reader of fused attention: the rows of `attention_bf16_GPU.csv`."""

from collections.abc import Mapping

import numpy as np

from benchmarks.published.priced import Priced
from prunecast.hardware import GpuSpec
from prunecast.validation.case import use_by_rule
from prunecast.workload.graph.attention import Attention
from prunecast.workload.graph.model_graph import Operation
from prunecast.workload.graph.runtimes import engine_seconds

KINDS = {"context": "prefill", "generation": "decode", "encoder": "encoder"}
"""Kinds of the tables -> ours."""


def priced(rows: list[Mapping[str, str]], gpu: GpuSpec) -> Priced:
    """Return the rows with their predictions."""
    seconds = np.array([_engine_seconds(row, gpu) for row in rows])
    return Priced(
        kind=np.array([KINDS[row["kind"]] for row in rows]),
        measured=np.array([float(row["seconds"]) for row in rows]),
        seconds=seconds,
        low=0.5 * seconds,
        high=2.0 * seconds,
        fit=np.array([use_of(row) == "fit" for row in rows]),
    )


def use_of(row: Mapping[str, str]) -> str:
    """Return `fit` or `judge`, by the sizes of a row. A row has the same use on every GPU."""
    batch, queries, cached = (int(row[name]) for name in ("batch_size", "isl", "step"))
    shape = ("kind", "num_heads", "num_key_value_heads", "head_dim", "window_size")
    return use_by_rule(batch, queries, cached, " ".join(row[name] for name in shape))


def _engine_seconds(row: Mapping[str, str], gpu: GpuSpec) -> float:
    batch, queries, cached, heads, key_heads, width, window = (
        int(row[name])
        for name in (
            *("batch_size", "isl", "step", "num_heads", "num_key_value_heads", "head_dim", "window_size"),
        )
    )
    attention = Attention(
        batch, queries, cached + queries, heads * width, width, row["kind"] != "encoder", window
    )
    kept = batch * (cached + queries) if not window else batch * (min(cached, window) + queries)
    operation = Operation(
        name="attention",
        kind="attention",
        flops=attention.flops,
        attention=attention,
        elements_in=heads * width * batch * queries + 2 * key_heads * width * batch * queries,
        elements_cached=2 * key_heads * width * (kept - batch * queries),
        elements_out=heads * width * batch * queries,
    )
    return engine_seconds(operation, gpu, gpu.graph_launch_s)
