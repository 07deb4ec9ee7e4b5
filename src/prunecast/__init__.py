"""Predict how fast a pruned model runs on an NVIDIA GPU, prune it to a latency, and run it.

    import prunecast
    table = prunecast.predict("model.safetensors", gpu="h200-sxm", tokens=4096, sparsity=0.75)

Each public name is imported when it is first used. The packages of the project, from the highest to the
lowest: `cli`, `validation`, `torch` and `report`, `codesign`, `workload`, `choice`, `simulator` and `models`,
`launch`, `kernels`, `plan`, `patterns` and `hardware`. A package imports only from lower ones. Read first:
`plan/kernel_plan.py`, the description of a kernel launch, which all packages read or write.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prunecast.choice import fastest_plan
    from prunecast.codesign.compare import compare, compare_gpus
    from prunecast.codesign.explain import explain
    from prunecast.codesign.export import PassPredictor, export
    from prunecast.codesign.predict import predict
    from prunecast.codesign.prune import prune
    from prunecast.codesign.search import Targets, prune_model
    from prunecast.codesign.study.search_model import search_model
    from prunecast.codesign.sweep.run_sweep import sweep
    from prunecast.codesign.timeline.chrome_trace import write_timeline
    from prunecast.errors import BadInput
    from prunecast.hardware import gpu_names, load_gpu
    from prunecast.models import estimate
    from prunecast.patterns import PATTERNS, parse_pattern
    from prunecast.report.page import write_report
    from prunecast.validation.derive_spec import derive, spec_file
    from prunecast.validation.validate import record_suite, replay
    from prunecast.workload.engines import simulate

    __version__: str

__all__ = [
    "PATTERNS",
    "BadInput",
    "PassPredictor",
    "Targets",
    "__version__",
    "compare",
    "compare_gpus",
    "derive",
    "estimate",
    "explain",
    "export",
    "fastest_plan",
    "gpu_names",
    "load_gpu",
    "parse_pattern",
    "predict",
    "prune",
    "prune_model",
    "record_suite",
    "replay",
    "search_model",
    "simulate",
    "spec_file",
    "sweep",
    "write_report",
    "write_timeline",
]

_NAMES = {
    "prunecast.choice": ("fastest_plan",),
    "prunecast.codesign": ("compare", "compare_gpus", "explain", "predict", "prune"),
    "prunecast.codesign.export": ("PassPredictor", "export"),
    "prunecast.codesign.search": ("Targets", "prune_model"),
    "prunecast.codesign.study.search_model": ("search_model",),
    "prunecast.codesign.sweep.run_sweep": ("sweep",),
    "prunecast.codesign.timeline.chrome_trace": ("write_timeline",),
    "prunecast.errors": ("BadInput",),
    "prunecast.hardware": ("gpu_names", "load_gpu"),
    "prunecast.models": ("estimate",),
    "prunecast.patterns": ("PATTERNS", "parse_pattern"),
    "prunecast.report.page": ("write_report",),
    "prunecast.validation.derive_spec": ("derive", "spec_file"),
    "prunecast.validation.validate": ("record_suite", "replay"),
    "prunecast.workload.engines": ("simulate",),
}
"""Module -> public names that are imported from it."""
_HOME = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> object:
    """Import a public name from its module at its first use (PEP 562): importing all names needs a second."""
    if name == "__version__":
        value: object = import_module("prunecast.version").tool_version()
    elif name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
    else:
        raise AttributeError(f"module 'prunecast' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
