"""Measure the board power of whole models that run for seconds, dense and pruned, beside predictions.

    python -m benchmarks.pytorch.power --measure OUT.csv    on the GPU that --gpu names
    python -m benchmarks.pytorch.power --judge MEASURED.csv

Each pass is a CUDA graph of a model with some blocks, not compiled, repeated for a second and then for three,
over which NVML's energy counter counts. The activity of the pass is that of the prediction with `--runtime
torch`, divided by the measured seconds: kernels between products, which `torch.compile` would fuse, add time
and hardly activity.
"""

import argparse
import csv
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from prunecast.hardware import load_gpu
from prunecast.hardware.power import launch_power
from prunecast.validation.measure.driver import Driver

FITTED = "llama"
"""Beginning of the names of models to whose rows the power law was fitted."""
HEAD = ("model", "workload", "sparsity", "side", "watts", "seconds", "error")
CASES = (
    ("llama-2-7b", "prefill:2048", 0.75),
    ("llama-2-7b", "decode:1@1024", 0.75),
    ("llama-2-7b", "decode:16@1024", 0.75),
    ("llama-2-7b", "prefill:2048", 0.5),
    ("bert-base", "prefill:32x128", 0.75),
    ("bert-base", "prefill:32x128", 0.9),
)
BLOCKS = 4
WARM_S, MEASURED_S = 1.0, 3.0


def measure(out: Path, gpu: str) -> None:
    """Measure all cases; rows are written one by one."""
    import torch

    from prunecast.plan.misaligned import FEW_TOKENS
    from prunecast.torch import sparsify
    from prunecast.validation.torch_models import ModelCase
    from prunecast.validation.torch_models.models import make_model, passes
    from prunecast.validation.torch_models.timing import captured, error
    from prunecast.workload.graph.shapes import parse_workload

    driver = Driver()
    rows = []
    for name, workload, sparsity in CASES:
        case = ModelCase(name, parse_workload(workload)[0], sparsity, blocks=BLOCKS)
        torch.manual_seed(0)
        with torch.no_grad():
            call = passes(case, "cuda")
            for side in ("dense", "pruned"):
                model = make_model(case, torch.float16, "cuda")
                found = float("nan")
                if side == "pruned":
                    tokens = case.run.columns
                    sparsify(
                        model,
                        case.pattern,
                        gpu=gpu,
                        max_tokens=max(tokens, 4 * FEW_TOKENS),
                        sparsity=sparsity,
                        few_tokens=tokens <= FEW_TOKENS,
                        quiet=True,
                    )
                forward = captured(call(model))
                if side == "pruned":  # the same zeros in a dense model
                    twin = make_model(case, torch.float16, "cuda")
                    twin.load_state_dict(model.state_dict())
                    found = error(forward(), call(twin)().clone())
                watts, seconds, count = watts_while(driver, forward, warm_s=WARM_S, measured_s=MEASURED_S)
                rows.append((name, workload, sparsity, side, f"{watts:.1f}", f"{seconds / count:.4e}"))
                rows[-1] = (*rows[-1], f"{found:.1e}")
                print(*rows[-1], flush=True)
                with out.open("w", encoding="utf-8", newline="") as file:
                    table = csv.writer(file)
                    table.writerow(HEAD)
                    table.writerows(rows)


def watts_while(
    driver: Driver, run: Callable[[], object], *, warm_s: float, measured_s: float
) -> tuple[float, float, int]:
    """Return the mean board power in watts, the seconds and the number of runs, after a warm-up.

    Parameters
    ----------
    driver : reader of NVML's energy counter
    run : function that enqueues the measured kernels
    warm_s, measured_s : seconds for which `run` is repeated before and while energy is counted
    """
    _repeat(run, warm_s)
    begun_mj, begun = driver.energy_mj(), time.perf_counter()
    count = _repeat(run, measured_s)
    seconds = time.perf_counter() - begun
    return 1e-3 * ((driver.energy_mj() or 0.0) - (begun_mj or 0.0)) / seconds, seconds, count


def _repeat(run: Callable[[], object], for_s: float) -> int:
    """Repeat `run` for some seconds, about 20 ms between synchronisations; return how often it ran."""
    import torch

    end = time.perf_counter() + for_s
    run()
    torch.cuda.synchronize()
    begun, count = time.perf_counter(), 2
    run()
    torch.cuda.synchronize()
    at_once = max(1, round(0.02 / (time.perf_counter() - begun)))
    while time.perf_counter() < end:
        for _ in range(at_once):
            run()
        count += at_once
        torch.cuda.synchronize()
    return count


def activity_of_row(row: Mapping[str, str], gpu: str) -> float:
    """Return the mean activity of a measured pass."""
    from prunecast.codesign import predict
    from prunecast.workload.graph.shapes import transformers

    table = predict(
        row["model"],
        gpu=gpu,
        workload=row["workload"],
        runtime="torch",
        engine="model",
        state="sustained",
        pattern="tile-wise:128",
        sparsity=float(row["sparsity"]),
    )
    assert table.whole is not None
    (phase,) = table.whole.phases
    side = phase.dense if row["side"] == "dense" else phase.best
    blocks = BLOCKS / transformers()[row["model"]].layers
    return side.activity * side.time.seconds * blocks / float(row["seconds"])


def judge(measured: Path, gpu: str) -> None:
    """Print measured beside predicted watts. The law was fitted to the rows of Llama."""
    spec = load_gpu(gpu)
    with measured.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    errors: dict[str, list[float]] = {}
    for row in rows:
        power, watts = (
            launch_power(spec, float(row["seconds"]), activity_of_row(row, gpu)),
            float(row["watts"]),
        )
        error = power.watts / watts - 1.0
        errors.setdefault(FITTED if row["model"].startswith(FITTED) else "judge", []).append(abs(error))
        print(
            f"{row['model']:12}{row['workload']:16}{row['sparsity']:5}{row['side']:8}"
            f"{watts:7.0f} W, predicted {power.watts:5.0f} ({100 * error:+.0f} %)"
        )
    for name, own in errors.items():
        print(f"{name}: MAPE {100 * sum(own) / len(own):.1f} % of {len(own)} rows")


def answer(
    description: str | None, measure: Callable[[Path, str], None], judge: Callable[[Path, str], None]
) -> None:
    """Parse `--measure`, `--judge` and `--gpu`, and run what is asked for."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--measure", type=Path)
    parser.add_argument("--judge", type=Path)
    parser.add_argument("--gpu", default="h200-sxm")
    asked = parser.parse_args()
    if asked.measure is not None:
        measure(asked.measure, asked.gpu)
    if asked.judge is not None:
        judge(asked.judge, asked.gpu)


if __name__ == "__main__":
    answer(__doc__, measure, judge)
