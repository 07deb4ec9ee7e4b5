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
    from prunecast.simulator import simulate
    from prunecast.validation.derive_spec import derive, spec_file
    from prunecast.validation.validate import record_suite, replay

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

_HOME = {
    "BadInput": "prunecast.errors",
    "PATTERNS": "prunecast.patterns",
    "PassPredictor": "prunecast.codesign.export",
    "Targets": "prunecast.codesign.search",
    "compare": "prunecast.codesign",
    "compare_gpus": "prunecast.codesign",
    "derive": "prunecast.validation.derive_spec",
    "estimate": "prunecast.models",
    "explain": "prunecast.codesign",
    "export": "prunecast.codesign.export",
    "fastest_plan": "prunecast.choice",
    "gpu_names": "prunecast.hardware",
    "load_gpu": "prunecast.hardware",
    "parse_pattern": "prunecast.patterns",
    "predict": "prunecast.codesign",
    "prune": "prunecast.codesign",
    "prune_model": "prunecast.codesign.search",
    "record_suite": "prunecast.validation.validate",
    "replay": "prunecast.validation.validate",
    "search_model": "prunecast.codesign.study.search_model",
    "simulate": "prunecast.simulator",
    "spec_file": "prunecast.validation.derive_spec",
    "sweep": "prunecast.codesign.sweep.run_sweep",
    "write_report": "prunecast.report.page",
    "write_timeline": "prunecast.codesign.timeline.chrome_trace",
}


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
