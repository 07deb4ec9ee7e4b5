"""Measure dense bf16 products of torch with drawn weights and with zeros: board power, and time since rest.

    python -m benchmarks.pytorch.product_power --measure OUT.csv
    python -m benchmarks.pytorch.product_power --judge MEASURED.csv

`watts` rows: six layers in turn, repeated for a second after a short warm-up, over which NVML's energy
counter counts. `time` rows: one large product, repeated for seconds after a rest; its mean time between two
moments.
"""

import csv
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.pytorch.power import answer, watts_while
from prunecast.validation.measure.driver import Driver

SIZES = (
    *((81, 65536, 51200), (3584, 65536, 51200), (4, 12288, 65536), (64, 10240, 7168)),
    *((192, 1536, 65536), (112, 7168, 65536)),
)
"""Tokens, outputs and inputs of products whose published power is far below that of others of their kind."""
LARGE = (8192, 8192, 8192)
LAYERS = 6
REST_S, WARM_S, MEASURED_S, RUN_S = 1.0, 0.3, 1.0, 3.0
MOMENTS_S = (0.0, 5e-3, 0.05, 0.2, 0.5, 1.0, 2.0, RUN_S)
HEAD = ("what", "weights", "tokens", "outputs", "inputs", "from_s", "to_s", "seconds", "watts")


def measure(out: Path, _: str) -> None:
    """Measure everything on the GPU of this process; rows are written one by one."""
    import torch

    driver, rows = Driver(), []

    def write(*row: Any) -> None:
        rows.append(row)
        print(*row, flush=True)
        with out.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([HEAD, *rows])

    def layers(size: tuple[int, int, int], count: int, weights: str) -> Callable[[], None]:
        tokens, outputs, inputs = size
        x = torch.randn(tokens, inputs, device="cuda", dtype=torch.bfloat16)
        y = torch.empty(tokens, outputs, device="cuda", dtype=torch.bfloat16)
        stack = torch.zeros(count, outputs, inputs, device="cuda", dtype=torch.bfloat16)
        if weights == "drawn":
            stack.normal_()

        def run() -> None:
            for weight in stack:
                torch.matmul(x, weight.T, out=y)

        return run

    warm = layers((512, 512, 512), 1, "drawn")
    warm()
    run = layers(LARGE, 1, "drawn")
    run()
    torch.cuda.synchronize()
    time.sleep(REST_S)
    for moment in _since_rest(run):
        write("time", "drawn", *LARGE, *moment, "")
    for size in SIZES:
        for weights in ("drawn", "zeros"):
            run = layers(size, LAYERS, weights)
            watts, seconds, runs = watts_while(driver, run, warm_s=WARM_S, measured_s=MEASURED_S)
            count = LAYERS * runs
            write("watts", weights, *size, WARM_S, WARM_S + seconds, f"{seconds / count:.4e}", f"{watts:.1f}")
            del run
            torch.cuda.empty_cache()


def _since_rest(run: Callable[[], None]) -> list[tuple[float, float, str]]:
    """Return (from, to, mean seconds of a launch) between two moments of a run that begins after a rest."""
    import torch

    events = [torch.cuda.Event(enable_timing=True)]
    events[0].record()
    begun = time.perf_counter()
    while time.perf_counter() - begun < RUN_S + 0.2:
        for _ in range(32):
            run()
            events.append(torch.cuda.Event(enable_timing=True))
            events[-1].record()
        events[-32].synchronize()
    torch.cuda.synchronize()
    ends = [1e-3 * events[0].elapsed_time(event) for event in events]
    found = []
    for begin, end in pairwise(MOMENTS_S):
        inside = [at for at in ends if begin <= at <= end]
        found.append((begin, end, f"{(inside[-1] - inside[0]) / (len(inside) - 1):.4e}"))
    return found


def judge(measured: Path, gpu: str) -> None:
    """Print measured beside predicted watts and times. Nothing was fitted to these rows."""
    from benchmarks.published.power import load_of
    from prunecast.hardware import load_gpu
    from prunecast.hardware.power import launch_power

    spec = load_gpu(gpu)
    with measured.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        load = load_of({"m": row["tokens"], "n": row["outputs"], "k": row["inputs"]}, spec)
        power, seconds = launch_power(spec, *load), float(row["seconds"])
        text = (
            f"{row['what']:6}{row['weights']:6} {row['tokens']:>6} x {row['outputs']:>5} x {row['inputs']:>5}"
        )
        text += f"  {row['from_s']:>5.4} to {row['to_s']:>5.4} s  {1e6 * seconds:8.1f} us"
        text += f", predicted {1e6 * load.seconds:8.1f}, in runs of seconds {1e6 * power.seconds:8.1f}"
        if row["watts"] and float(row["watts"]):
            watts = float(row["watts"])
            text += (
                f"; {watts:4.0f} W, predicted {power.watts:4.0f} ({100 * (power.watts / watts - 1):+.0f} %)"
            )
        print(text)


if __name__ == "__main__":
    answer(__doc__, measure, judge)
