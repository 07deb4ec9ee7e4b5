"""Predicts the time of every case of a study, summed over its pruned layers."""

from __future__ import annotations

import argparse
import json
from concurrent.futures import Future
from pathlib import Path

from settings import GPUS
from study_plans import STUDIES, ways

from prunecast.codesign.engines import ENGINES, Engine, Outcome
from prunecast.hardware import load_gpu
from prunecast.version import tool_version


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", choices=STUDIES, required=True)
    parser.add_argument("--maps", type=Path, required=True, help="folder with the tile maps of all cases")
    parser.add_argument("--out", type=Path, required=True, help="a JSON file")
    parser.add_argument("--engine", choices=ENGINES, default="simulator")
    return parser.parse_args()


def predict_on(gpu: str, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Case -> kernel -> microseconds of all layers."""
    engine = Engine(name=options.engine, gpu=load_gpu(gpu))
    started: dict[str, dict[str, list[Future[Outcome]]]] = {}
    for case in STUDIES[options.study].cases:
        for kernel, plans in ways(options.study, case, options.maps, engine.gpu):
            started.setdefault(case.name, {})[kernel] = [engine.start(plan) for plan in plans]
    return {
        case: {kernel: _us(runs) for kernel, runs in kernels.items()} for case, kernels in started.items()
    }


def _us(runs: list[Future[Outcome]]) -> float:
    return round(sum(run.result().seconds for run in runs) * 1e6, 3)


def main() -> None:
    options = parse_options()
    record = {
        "engine": options.engine,
        "version": tool_version(),
        "state": "burst",
        "launch": "graph",
        "gpus": {gpu: predict_on(gpu, options) for gpu in GPUS},
    }
    options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
