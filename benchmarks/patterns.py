"""What shuffling rows gains: retained importance of `shuffled-block:64` over `vector-wise:64` at 75 %.

Run from the repository root: `python -m benchmarks.patterns`. The goal is set on the trained weights; the
random matrix shows what is there to gain without any structure.
"""

import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.goals import Goal, print_goal
from prunecast.patterns import parse_pattern, retained_importance, weigh
from prunecast.patterns.sources import read_weights

WEIGHTS = Path(__file__).parent.parent / "examples" / "stdlib_lm" / "weights.safetensors"
SPARSITY = 0.75
FEWEST_ROWS = 128
"""Below two groups of 64 rows there is nothing to shuffle."""

RETAINED = Goal(
    name="shuffled-block:64 over vector-wise:64, 75 %, trained layers",
    limit=3.0,
    unit="% more",
    at_least=True,
)
SECONDS = Goal(name="shuffled-block:64 on 4096x11008, random", limit=20.0, unit="s")

Importance = npt.NDArray[np.floating]


def both(name: str, importance: Importance) -> npt.NDArray[np.float64]:
    """Retained importance of vector-wise and of shuffled-block, printed on one line; returns the sums."""
    kept = []
    for text in ("vector-wise:64", "shuffled-block:64"):
        mask = parse_pattern(text).prune({name: importance}, SPARSITY)[name]
        kept.append(retained_importance(importance, mask))
    gain = 100 * (kept[1] / kept[0] - 1)
    print(f"{name:<40} {importance.shape!s:<14} {kept[0]:8.4f} {kept[1]:8.4f} {gain:+7.2f} %")
    return np.array(kept) * float(importance.sum(dtype=np.float64))


def trained() -> None:
    total = np.zeros(2)
    for layer in read_weights(WEIGHTS).layers.values():
        if layer.weights.shape[0] >= FEWEST_ROWS:
            total += both(layer.name, weigh(layer.name, layer.weights))
    print_goal(RETAINED, 100 * (total[1] / total[0] - 1))


def random_matrices() -> None:
    random = np.random.default_rng(0)
    both("random normal", np.abs(random.standard_normal((1024, 1024), dtype=np.float32)))
    large = np.abs(random.standard_normal((4096, 11008), dtype=np.float32))
    start = time.perf_counter()
    parse_pattern("shuffled-block:64").prune({"w": large}, SPARSITY)
    print_goal(SECONDS, time.perf_counter() - start)


if __name__ == "__main__":
    print(f"{'layer':<40} {'shape':<14} {'vector':>8} {'shuffled':>8} {'gain':>9}")
    trained()
    random_matrices()
