"""Speed of sweeps: `python -m benchmarks.sweep`; predictions a second on one and on two workers.

Goals, on two cores that nobody else uses: 20,000 closed-form predictions in 3 minutes (111/s), 2,000
simulated ones in 5 minutes (6.7/s), both near twice as fast on two workers as on one. Shapes are those of
BERT-Base and of layers up to 4096 x 4096.
"""

import argparse
import tempfile
import time
from pathlib import Path

from prunecast.codesign.sweep import SweepCase, SweepStore, expand, open_executor, run_sweep
from prunecast.hardware import gpu_names

SHAPES = [
    (m, k, n)
    for m, k in ((768, 768), (3072, 768), (768, 3072), (1024, 4096), (4096, 4096))
    for n in (128, 1024, 4096)
]
PATTERNS = ["tile-wise:128", "atp:128", "block:64x64", "2:4", "unstructured"]
SPARSITIES = {"model": [0.5, 0.6, 0.7, 0.75, 0.8, 0.9, 0.95], "simulator": [0.75]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", choices=SPARSITIES, default="model")
    parser.add_argument("--most", type=int, default=4000, help="predictions of a run")
    options = parser.parse_args()
    cases = expand(
        gpus=list(gpu_names()),
        shapes=SHAPES,
        patterns=PATTERNS,
        sparsities=SPARSITIES[options.engine],
        engine=options.engine,
    )
    chosen = cases[:: max(len(cases) // options.most, 1)]
    one, two = (_rate(chosen, workers) for workers in (1, 2))
    print(f"{len(chosen)} of {len(cases)} cases, {options.engine}")
    print(f"one worker {one:.1f}/s, two {two:.1f}/s, {two / one:.2f} times as fast")


def _rate(cases: list[SweepCase], workers: int) -> float:
    """Predictions a second, the start of the workers included."""
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        with SweepStore(Path(folder) / "s.sqlite") as store, open_executor(workers=workers) as executor:
            run_sweep(cases, store, executor)
        return len(cases) / (time.perf_counter() - begin)


if __name__ == "__main__":
    main()
