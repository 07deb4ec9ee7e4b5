"""What do launches between products take in torch? Fits `workload/graph/costs` to a record of models.

    python -m benchmarks.pytorch.fit [RECORD.json]

Prints the entries and, for every model, kind by kind, measured and fitted microseconds. Only models whose
`use` is `fit` are fitted; `judge` ones show what the fit is worth.
"""

import argparse
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import nnls

from prunecast.hardware import load_gpu
from prunecast.validation.torch_models import ModelCase
from prunecast.workload.graph.model_graph import Operation
from prunecast.workload.graph.runtimes import torch_costs, torch_elements
from prunecast.workload.graph.shapes import Pass
from prunecast.workload.graph.workloads import transformer_graph

RECORD = Path(__file__).parents[1] / "measured" / "h200-sxm-pytorch-models-2026-11-23.json"
SHARES = {
    "normalise": ("layer_norm_s", "layer_norm_share"),
    "rms norm": ("rms_norm_s", "rms_norm_share"),
    "activation": ("activation_s", "activation_share"),
    "gated unit": ("gated_s", "gated_share"),
    "rotary": ("rotary_s", "rotary_share"),
    "transpose": ("transpose_s", "transpose_share"),
}
MEGA, GIGA, TERA = 1e6, 1e9, 1e12


class Point(NamedTuple):
    """Mean launch of a kind in a model."""

    model: dict[str, Any]
    operation: Operation
    us: float

    @property
    def mb(self) -> float:
        """Megabytes that it moves."""
        o = self.operation
        return 2.0 * (torch_elements(o, torch_costs(load_gpu("h200-sxm"))) + o.elements_cached) / MEGA


def points(models: list[dict[str, Any]], kind: str) -> list[Point]:
    """One for each model that has the kind: of its faster compiled dense variant, norms of the other one."""
    found = []
    for model in models:
        run = Pass(**model["run"])
        graph = transformer_graph(
            model["model"], ModelCase(model["model"], run, blocks=model["blocks"]).shape, run, "torch"
        )
        own = [o for o in graph if o.kind == ("gemm" if kind == "transpose" else kind)]
        variant = "sparse compiled" if kind == "transpose" else "dense compiled"
        if kind == "activation":
            variant = min(("dense compiled", "dense overlapped"), key=lambda name: model["us"][name])
        traced = "normalise" if kind == "rms norm" else kind
        launches, us = model["kinds"][variant].get(traced, (0.0, 0.0))
        if not own or not us:
            continue
        if kind == "transpose":
            own = [o for o in own if not o.name.endswith("down")]
            width = sum(o.elements_in for o in own) / len(own)
            mean = Operation(name=kind, kind="pool", elements_in=round(width), elements_out=round(width))
            found.append(Point(model, mean, us / launches))
        else:
            found.append(Point(model, own[-1], us / len(own)))
    return found


def line(found: list[Point]) -> tuple[float, float]:
    """Microseconds at 0 bytes and for a megabyte, least squares of relative errors."""
    us = np.array([point.us for point in found])
    table = np.stack((1.0 / us, np.array([point.mb for point in found]) / us), 1)
    begin, slope = nnls(table, np.ones(len(us)))[0]
    return float(begin), float(slope)


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("record", nargs="?", type=Path, default=RECORD)
    asked = parser.parse_args()
    models, gpu = json.loads(asked.record.read_text())["models"], load_gpu("h200-sxm")
    fitted = [model for model in models if model["use"] == "fit"]
    entries: dict[str, float] = {}
    for kind, (begin, share) in SHARES.items():
        entries[begin], slope = line(points(fitted, kind))
        entries[begin] /= MEGA
        entries[share] = TERA / slope / gpu.dram_copy_bytes_per_s
        for point in points(models, kind):
            guess = entries[begin] * MEGA + slope * point.mb
            print(
                f"{point.model['use']:6} {point.model['case']:42} {kind:12} {point.us:8.2f} {guess:8.2f} us"
            )
    for name, value in entries.items():
        print(f"{name:18} {value:.3g}")


if __name__ == "__main__":
    main()
