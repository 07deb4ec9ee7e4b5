"""Loss against sparsity of the five source systems' patterns, on a small language model that a CPU trains.

python examples/accuracy/systems.py --picture systems.png [--tiny] [--sparsities 0.5,0.75,0.9]

One dense model; each pattern prunes it by the same importance, gradually while it is tuned with the same
budget, and is judged on the same held-out words. Some fifteen minutes on two cores; `--tiny` takes two.
"""

from __future__ import annotations

import argparse
import copy
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))

import small
from matplotlib.figure import Figure
from study import default_device
from tuning import Trainer

from prunecast.patterns import parse_pattern

SYSTEMS = {
    "TW": "tile-wise:64",
    "TVW": "tvw:64",
    "ATP": "atp:64",
    "Shfl-BW": "shuffled-block:64",
    "PACT'20 (dense blocks)": "dense-block:4",
    "Balanced": "balanced:64",
}
"""Tiles of 64 rows, since layers have 256."""
TWO_OF_FOUR = 0.5
"""Sparsity that 2:4 inside tiles has at least."""


def losses(trainer: Trainer, sparsities: list[float]) -> dict[str, list[tuple[float, float]]]:
    """System -> sparsity that was reached, and mean loss of held-out words behind tuning."""
    trainer.train(0)
    dense = copy.deepcopy(trainer.model.state_dict())
    importance = trainer.importance(0)
    trainer.begin(dense)
    trainer.tune(None, importance, 0)
    found = {"dense": [(0.0, float(trainer.scores().mean()))]}
    for system, text in SYSTEMS.items():
        for sparsity in sparsities:
            if text.startswith("tvw") and sparsity <= TWO_OF_FOUR:
                continue
            masks = parse_pattern(text).prune(importance, sparsity)
            reached = 1.0 - sum(m.sum() for m in masks.values()) / sum(m.size for m in masks.values())
            trainer.begin(dense)
            trainer.tune(masks, importance, 0)
            found.setdefault(system, []).append((float(reached), float(trainer.scores().mean())))
            print(f"{system:24s} {reached:6.1%} {found[system][-1][1]:.4f}", flush=True)
    return found


def picture(found: dict[str, list[tuple[float, float]]], unit: str, file: Path) -> None:
    """Loss over sparsity, a line for each system and one for the dense model."""
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot()
    axes.axhline(found["dense"][0][1], color="grey", linestyle=":", label="dense")
    for system in SYSTEMS:
        axes.plot(*zip(*found[system], strict=True), marker="o", label=system)
    axes.set(xlabel="sparsity", ylabel=unit)
    axes.legend()
    figure.savefig(file)


def main() -> None:
    """Train, prune, tune, print, draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--picture", type=Path, required=True)
    parser.add_argument("--sparsities", default="0.5,0.75,0.9")
    parser.add_argument("--tiny", action="store_true", help="a few steps only")
    options = parser.parse_args()
    study = small.study(options.tiny)
    found = losses(Trainer(study, default_device()), [float(s) for s in options.sparsities.split(",")])
    picture(found, study.unit, options.picture)


if __name__ == "__main__":
    main()
