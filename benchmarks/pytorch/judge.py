"""How far are predictions of whole models in PyTorch from a record of them?

    python -m benchmarks.pytorch.judge [RECORD.json] [--engine model] [--use judge]

Prints the fastest dense and sparse variant of each model beside the prediction. Needs no GPU.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

from benchmarks.pytorch.fit import RECORD
from prunecast.hardware import load_gpu
from prunecast.validation.torch_models import ModelCase
from prunecast.validation.torch_models.compare import ComparedTime, ModelValidation, beside
from prunecast.workload.graph import Pass


def judged(
    record: Path = RECORD, *, engine: str = "simulator", use: str = "judge"
) -> Iterator[tuple[str, ModelValidation]]:
    """Yield each case of the record by name, with its measured and predicted times."""
    gpu = load_gpu("h200-sxm")
    for model in json.loads(record.read_text())["models"]:
        if model["use"] == use:
            run = Pass(**model["run"])
            case = ModelCase(model["model"], run, model["sparsity"], model["pattern"], model["blocks"])
            yield model["case"], beside(case, model, gpu, engine=engine)


def cell(row: ComparedTime) -> str:
    """Predicted, measured and error."""
    return f"{row.predicted_us:9.4g} {row.measured_us:9.4g} {row.error:+6.1%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("record", nargs="?", type=Path, default=RECORD)
    parser.add_argument("--engine", default="simulator")
    parser.add_argument("--use", default="judge", choices=("judge", "fit"))
    asked = parser.parse_args()
    print(f"{'us, predicted and measured':42} {'dense':>26} {'sparse':>26} {'speedup':>26}")
    for name, found in judged(asked.record, engine=asked.engine, use=asked.use):
        cells = (cell(row) for row in (found.dense, found.sparse, found.speedups))
        print(f"{name:42}", *cells, flush=True)


if __name__ == "__main__":
    main()
