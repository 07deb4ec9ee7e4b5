"""What importance, weight updates, distillation and a gradual schedule bring, each by itself, on one pattern.

    python examples/accuracy/recovery.py --out OUT [--study FILE] [--seeds 0]

`OUT` is the folder of a run whose dense models are trained. All variants have the same sparsity, and those
that are tuned the same budget. `report.py` makes a table of the rows.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from itertools import islice, product
from typing import Any, NamedTuple

import numpy as np
import torch
from rows import Row, turn, work_through
from run import Run, parse_options
from tuning import Trainer

from prunecast.patterns import parse_pattern
from prunecast.patterns.calibration import Calibration
from prunecast.torch import input_moments, update_weights
from prunecast.torch.importance import as_matrix, prunable

PATTERN, SPARSITY = "tile-wise:128", 0.6
IMPORTANCES = ("magnitude", "inputs", "moments", "taylor")


class Variant(NamedTuple):
    """What is done behind the choice of masks."""

    importance: str
    updates: bool
    tuned: str
    """`no`, or what tuning has: `at once`, `gradual`, `at once, distilled`, `gradual, distilled`."""


TUNED = ("at once", "at once, distilled", "gradual", "gradual, distilled")
VARIANTS = (
    *(Variant(kind, updates, "no") for kind, updates in product(IMPORTANCES, (False, True))),
    *(Variant("taylor", False, tuned) for tuned in TUNED),
    Variant("taylor", True, "at once, distilled"),
    Variant("magnitude", False, "gradual, distilled"),
    Variant("moments", True, "at once, distilled"),
)


class Known:
    """What is known of one dense model."""

    def __init__(self, run: Run, seed: int) -> None:
        trainer = run.trainer()
        trainer.begin(run.dense(seed))
        model, study = trainer.model.eval(), run.study
        batches = list(islice(study.batches(100 + seed, run.asked.device), study.budget.calibration_steps))
        self.moments = input_moments(model, lambda: [study.outputs(model, batch) for batch in batches])
        self.taylor = run.importance(seed)
        weights = {name: as_matrix(each) for name, each in prunable(model, study.target).items()}
        self.magnitudes = {name: np.abs(each) for name, each in weights.items()}

    def masks(self, kind: str) -> Mapping[str, Any]:
        """Of one kind of importance, squared, so that sums over a tile are losses."""
        if kind == "taylor":
            scores = self.taylor
        elif kind == "magnitude":
            scores = {name: each**2 for name, each in self.magnitudes.items()}
        else:
            squares = {name: np.diag(h).copy() for name, h in self.moments.items()}
            known = Calibration(kind, self.moments if kind == "moments" else squares)
            scores = {name: known.weigh(name, each) ** 2 for name, each in self.magnitudes.items()}
        return parse_pattern(PATTERN).prune(scores, SPARSITY)


def recover_one(trainer: Trainer, masks: Mapping[str, Any], importance: Mapping[str, Any], key: Row) -> None:
    """Prune the trainer's model, and tune it if the variant is tuned."""
    if key["tuned"] == "no":
        with torch.no_grad():
            for name, mask in masks.items():
                weight = trainer.model.get_parameter(name)
                weight.mul_(torch.from_numpy(mask).to(weight.device))
        return
    how = {"is_gradual": "gradual" in key["tuned"], "distils": "distilled" in key["tuned"]}
    trainer.tune(masks, importance, key["seed"], **how)


def recover(run: Run) -> None:
    """A row for each variant and seed."""
    for seed in run.seeds:
        known = Known(run, seed)

        def work(key: Row, known: Known = known, seed: int = seed) -> Row:
            trainer, masks = run.trainer(), known.masks(key["importance"])
            torch.manual_seed(seed)
            trainer.begin(run.dense(seed))
            if key["updates"]:
                update_weights(trainer.model, masks, known.moments)
            with turn(run.lock(), alone=False):
                recover_one(trainer, masks, known.taylor, key)
                return {"score": round(float(trainer.scores().mean()), 5)}

        todo = [{"step": "recover", "seed": seed, **variant._asdict()} for variant in VARIANTS]
        work_through(run.rows, todo, work, run.asked.seconds)


if __name__ == "__main__":
    recover(Run(parse_options(["tune", *sys.argv[1:]])))
