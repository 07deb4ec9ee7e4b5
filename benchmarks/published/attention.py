"""Reader of fused attention: the rows of `attention_bf16_GPU.csv`.

Every row was measured as six replays of a graph that contains one call, always with the same keys and values:
the cache is in L2 if it fits, and the time includes the replay of a graph. Prefill and decode include the
write of new keys and values into the cache.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.published.priced import Priced
from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec
from prunecast.kernels.libraries.attention.choose import kernel_for
from prunecast.kernels.libraries.attention.seconds import attention_clock_hz, costs_of, parts_of
from prunecast.kernels.libraries.attention.shape import Attention
from prunecast.kernels.libraries.attention.work import CallWork, work_of
from prunecast.kernels.libraries.call import call_error
from prunecast.validation.case import use_by_rule

KINDS = {"context": "prefill", "generation": "decode", "encoder": "encoder"}
"""Kinds of the tables -> ours."""
SOURCES = {
    "trtllm": "FlashInfer TRT-LLM",
    "fa2": "FlashAttention 2",
    "fa3": "FlashAttention 3",
    "fa4": "FlashAttention 4",
    "flash_attention": "FlashAttention 3",
    "flashinfer": "FlashAttention 2",
}
"""Part of the name of a kernel in the tables -> ours. SGLang's `flash_attention` is FlashAttention 3."""
BURST_S = 0.55e-3
"""Calls from which nine replays last more than 5 ms, so that the power limit brings the clock down."""


class Group(NamedTuple):
    """Rows of a file that one row of costs applies to."""

    kernel: str
    phase: str
    rows: npt.NDArray[np.int64]
    """Positions of the rows in the file."""
    work: CallWork
    """Arrays with one entry for each row."""
    clock_hz: npt.NDArray[np.float64]


def priced(rows: Sequence[Mapping[str, str]], gpu: GpuSpec) -> Priced:
    """Return the rows with their predictions."""
    seconds, low, high = (np.ones(len(rows)) for _ in range(3))
    kind = np.array([KINDS[row["kind"]] for row in rows])
    for group in groups_of(rows, gpu):
        costs = costs_of(group.kernel, group.phase, gpu.compute_capability)
        own = parts_of(group.work, costs, gpu, group.clock_hz, replayed=True).seconds
        bounds = call_error("attention", f"engine {group.phase}", gpu.name, f"sm_{gpu.compute_capability}")
        seconds[group.rows], low[group.rows], high[group.rows] = own, bounds.low * own, bounds.high * own
    measured = np.array([float(row["seconds"]) for row in rows])
    return Priced(kind, measured, seconds, low, high, fit=np.array([use_of(row) == "fit" for row in rows]))


def groups_of(rows: Sequence[Mapping[str, str]], gpu: GpuSpec) -> list[Group]:
    """Return the rows of a published table by kernel and phase, with their work."""
    shapes = [shape_of(row) for row in rows]
    kernels = [kernel_of(row, shape, gpu) for row, shape in zip(rows, shapes, strict=True)]
    return group_rows(rows, shapes, kernels, [shape.phase for shape in shapes], gpu)


def group_rows(
    rows: Sequence[Mapping[str, str]],
    shapes: Sequence[Attention],
    kernels: Sequence[str],
    phases: Sequence[str],
    gpu: GpuSpec,
) -> list[Group]:
    """Return rows by kernel and by phase, or by several phases in one text, with the work of each."""
    places: dict[tuple[str, str], list[int]] = {}
    for place, key in enumerate(zip(kernels, phases, strict=True)):
        places.setdefault(key, []).append(place)
    works = [work_of(kernel, shape, gpu) for kernel, shape in zip(kernels, shapes, strict=True)]
    return [
        Group(
            kernel,
            phase,
            np.array(own),
            CallWork(*(np.array(column) for column in zip(*(works[place] for place in own), strict=True))),
            np.array([_clock_hz(rows[place], works[place], gpu) for place in own]),
        )
        for (kernel, phase), own in places.items()
    ]


def _clock_hz(row: Mapping[str, str], work: CallWork, gpu: GpuSpec) -> float:
    state = "burst" if float(row["seconds"]) < BURST_S else "sustained"
    return attention_clock_hz(int(work.width), gpu, state)


def shape_of(row: Mapping[str, str]) -> Attention:
    """Return the sizes of a row."""
    batch, queries, cached, heads, key_heads, width, window = (
        int(row[name])
        for name in (
            *("batch_size", "isl", "step", "num_heads", "num_key_value_heads", "head_dim", "window_size"),
        )
    )
    causal, masked = row["kind"] != "encoder", row.get("mask") in ("tensor", "biases")
    shape = Attention(batch, queries, cached + queries, heads, key_heads, width, causal, window, masked)
    return shape.checked()


def kernel_of(row: Mapping[str, str], shape: Attention, gpu: GpuSpec) -> str:
    """Return our name of the kernel that a row names, else the kernel that an engine runs on the GPU."""
    named = next((name for part, name in SOURCES.items() if part in row["kernel_source"]), None)
    try:
        if named is not None:
            work_of(named, shape, gpu)
            return named
    except BadInput:
        pass
    return kernel_for(shape, gpu, "engine")


def use_of(row: Mapping[str, str]) -> str:
    """Return `fit` or `judge`, by the sizes of a row. A row has the same use on every GPU."""
    batch, queries, cached = (int(row[name]) for name in ("batch_size", "isl", "step"))
    shape = ("kind", "num_heads", "num_key_value_heads", "head_dim", "window_size")
    return use_by_rule(batch, queries, cached, " ".join(row[name] for name in shape))
