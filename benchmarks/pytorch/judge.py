"""How far are predictions of whole models in PyTorch from a record of them?

    python -m benchmarks.pytorch.judge [RECORD.json] [--engine model] [--use judge]

Prints the fastest dense and sparse variant of each model beside the prediction. Needs no GPU.
"""

import argparse
import json
from pathlib import Path

from benchmarks.pytorch.fit import RECORD
from prunecast.hardware import load_gpu
from prunecast.validation.torch_models import Case
from prunecast.validation.torch_models.compare import Beside, beside
from prunecast.workload.graph import Pass


def cell(row: Beside) -> str:
    """Predicted, measured and error."""
    return f"{row.predicted_us:9.4g} {row.measured_us:9.4g} {row.error:+6.1%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("record", nargs="?", type=Path, default=RECORD)
    parser.add_argument("--engine", default="simulator")
    parser.add_argument("--use", default="judge", choices=("judge", "fit"))
    asked = parser.parse_args()
    gpu = load_gpu("h200-sxm")
    print(f"{'us, predicted and measured':42} {'dense':>26} {'sparse':>26} {'speedup':>26}")
    for model in json.loads(asked.record.read_text())["models"]:
        if model["use"] == asked.use:
            run = Pass(**model["run"])
            case = Case(model["model"], run, model["sparsity"], model["pattern"], model["blocks"])
            found = beside(case, model, gpu, engine=asked.engine)
            cells = (cell(row) for row in (found.dense, found.sparse, found.speedups))
            print(f"{model['case']:42}", *cells, flush=True)


if __name__ == "__main__":
    main()
