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
from prunecast.validation.torch_models.compare import ModelValidation, beside
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


def cells_of(found: ModelValidation) -> Iterator[str]:
    """Yield predicted, measured and error of the dense time, the sparse time and the speedup."""
    times = ((row.predicted_us, row.measured_us, row.error) for row in (found.dense, found.sparse))
    ratio = found.speedup
    for predicted, measured, error in (*times, (ratio.predicted, ratio.measured, ratio.error)):
        yield f"{predicted:9.4g} {measured:9.4g} {error:+6.1%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("record", nargs="?", type=Path, default=RECORD)
    parser.add_argument("--engine", default="simulator")
    parser.add_argument("--use", default="judge", choices=("judge", "fit"))
    asked = parser.parse_args()
    print(f"{'us, predicted and measured':42} {'dense':>26} {'sparse':>26} {'speedup':>26}")
    for name, found in judged(asked.record, engine=asked.engine, use=asked.use):
        print(f"{name:42}", *cells_of(found), flush=True)


if __name__ == "__main__":
    main()
