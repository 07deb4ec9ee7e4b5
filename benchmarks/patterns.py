"""What shuffled rows and evened tiles retain at 75 %, against the patterns that they start from.

`python -m benchmarks.patterns`, on the bundled trained weights.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.goals import Goal, print_goal
from prunecast.patterns import imbalance, parse_pattern, retained_importance, weigh
from prunecast.patterns.sources import read_weights

WEIGHTS = Path(__file__).parent.parent / "examples" / "stdlib_lm" / "weights.safetensors"
SPARSITY = 0.75
FEWEST_ROWS = 128
"""Below two groups of 64 rows there is nothing to shuffle."""

SHUFFLED = ("vector-wise:64", "shuffled-block:64")
EVENED = ("tile-wise:64", "atp:64", "atp:64:shuffled", "atp:64:rms")
HIGHER = ("tile-wise:128", "atp:128", "atp:128:shuffled", "atp:128:rms")

RETAINED = Goal(
    name="shuffled-block:64 over vector-wise:64, 75 %, trained layers",
    limit=3.0,
    unit="% more",
    at_least=True,
)

Importance = npt.NDArray[np.floating]
Sums = npt.NDArray[np.float64]


def table(patterns: Sequence[str]) -> Sums:
    """Retained importance of each pattern on all trained layers together, printed layer by layer."""
    print(f"\n{'layer':<28} {'shape':<12}" + "".join(f" {text:>18}" for text in patterns) + "  imbalance")
    sums = np.zeros(len(patterns))
    for layer in read_weights(WEIGHTS).layers.values():
        if layer.weights.shape[0] >= FEWEST_ROWS:
            sums += row(layer.name, weigh(layer.name, layer.weights), patterns)
    print(f"{'all, against the first':<41}" + "".join(f" {share:18.4f}" for share in sums / sums[0]))
    return sums


def row(name: str, importance: Importance, patterns: Sequence[str]) -> Sums:
    """Retained importance of each pattern, as printed times the importance of the layer."""
    kept, uneven = [], []
    for text in patterns:
        pattern = parse_pattern(text)
        mask = pattern.prune({name: importance}, SPARSITY)[name]
        kept.append(retained_importance(importance, mask))
        uneven.append(imbalance(pattern.map(mask)))
    shares = "".join(f" {share:18.4f}" for share in kept)
    print(f"{name:<28} {importance.shape!s:<12}{shares}  {' '.join(f'{value:.3f}' for value in uneven)}")
    return np.array(kept) * float(importance.sum(dtype=np.float64))


def evened(patterns: Sequence[str]) -> None:
    """ATP against tile-wise, whose tiles are as uneven as the weights."""
    sums = table(patterns)
    for text, share in zip(patterns[1:3], sums[1:3] / sums[0], strict=True):
        goal = Goal(
            name=f"{text} over {patterns[0]}, 75 %, trained layers", limit=99, unit="%", at_least=True
        )
        print_goal(goal, 100 * share)


if __name__ == "__main__":
    shuffled = table(SHUFFLED)
    print_goal(RETAINED, 100 * (shuffled[1] / shuffled[0] - 1))
    evened(EVENED)
    evened(HIGHER)
