"""Reader of fused experts: the rows of `moe_bf16_GPU.csv`."""

from collections.abc import Mapping

import numpy as np

from benchmarks.published.priced import Priced
from prunecast.hardware import GpuSpec
from prunecast.kernels.libraries.call import LibraryCall
from prunecast.kernels.libraries.experts.call import ExpertLayer, fused_experts
from prunecast.validation.case import use_by_rule

Row = Mapping[str, str]
STATE = "sustained"
"""Launches follow each other without rests."""
UNGATED = ((2688, 1856), (2048, 5120), (1024, 2688))
"""Hidden and inner width of models whose experts have no gate (Nemotron 3): vLLM 0.24 multiplies twice."""
FORMS = (("sglang", "sglang-triton"), ("triton", "vllm-triton"), ("torch", "torch-grouped"))
"""Word in the name of a kernel -> form; other kernels are `grouped`."""


def priced(rows: list[Row], gpu: GpuSpec) -> Priced:
    """Return the rows with their predictions."""
    calls = [call_of(row, gpu) for row in rows]
    return Priced(
        kind=np.array([row["distribution"].replace("_", "-") for row in rows]),
        measured=np.array([float(row["seconds"]) for row in rows]),
        seconds=np.array([call.seconds for call in calls]),
        low=np.array([call.seconds_low for call in calls]),
        high=np.array([call.seconds_high for call in calls]),
        fit=np.array([is_fit(row) for row in rows]),
    )


def layer_of(row: Row) -> ExpertLayer:
    """Return the experts of a row."""
    hidden, width = int(row["hidden_size"]), int(row["inter_size"])
    return ExpertLayer(
        experts=int(row["num_experts"]),
        per_token=int(row["topk"]),
        hidden=hidden,
        width=width,
        tokens=int(row["num_tokens"]),
        routing=row["distribution"].replace("power_law_", "power-law:"),
        gated="vllm" not in row["kernel_source"] or (hidden, width) not in UNGATED,
    )


def form_of(row: Row) -> str:
    """Return the form that a row was measured with."""
    return next((form for word, form in FORMS if word in row["kernel_source"]), "grouped")


def is_fit(row: Row) -> bool:
    """Return whether constants may be fitted to a row: by its sizes, so that all routings are on one side."""
    sizes = (int(row[name]) for name in ("inter_size", "hidden_size", "num_tokens"))
    return use_by_rule(*sizes, f"experts {row['num_experts']} {row['topk']}") == "fit"


def call_of(row: Row, gpu: GpuSpec, numbers: Mapping[str, float] | None = None) -> LibraryCall:
    """Return the prediction of a row, with given numbers or those of the package."""
    return fused_experts(layer_of(row), gpu, form=form_of(row), dtype="bf16", state=STATE, costs=numbers)
