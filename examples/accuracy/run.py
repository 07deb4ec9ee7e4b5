"""The steps of a study; each does what has no row yet and can be ended at any time.

python examples/accuracy/run.py STEP --study examples/accuracy/language.py --out FOLDER

train    the dense models, one a seed, and the importance of their weights
masks    every contestant's masks at every share of the time
costs    the losses of layers again, with the others pruned, for the contestant that is measured twice
time     the whole pass with these masks on the GPU; masks after that are corrected by what was measured
tune     prune and tune, and score every held-out item

Table, picture and record: report.py.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from contestants import CONTESTANTS, FIRST, LIKE, TWO_OF_FOUR, Masks, find_masks
from measured import measure
from narrow import Group
from predicted import Predictor
from report import BASE, file_name
from rows import Row, Rows, part_of, turn, work_through
from safetensors.torch import load_file, save_file
from study import Study, default_device, load_study
from tuning import Trainer

sys.path.append(str(Path(__file__).parent))

DENSE = "dense"
PATTERN = "/pattern"
ONCE = 1.0
"""The share of a contestant with one time."""
HEIGHTS = {"": 1, "tiles-": 128}
"""Kind of importance, as files of it are called -> rows over which products are added."""


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("step", choices=STEPS)
    parser.add_argument("--study", type=Path, default=Path(__file__).parent / "language.py")
    parser.add_argument("--tiny", action="store_true", help="everything small, for a CPU")
    parser.add_argument("--out", type=Path, required=True, help="folder for rows and files")
    parser.add_argument("--only", default="", help="contestants, by commas; all by default")
    parser.add_argument("--seeds", default="", help="e.g. 0,2; all by default")
    parser.add_argument("--shares", default="", help="e.g. 0.7; all by default")
    parser.add_argument("--train-steps", type=int, help="in place of the study's")
    parser.add_argument("--tune-steps", type=int, help="in place of the study's")
    parser.add_argument("--part", default="1/1", help="I/N: every N-th of what is to do")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin nothing after so many")
    parser.add_argument("--processes", type=int, default=1, help="beside each other, for masks and time")
    parser.add_argument("--correct", action="store_true", help="masks anew for shares that were measured")
    parser.add_argument("--ratio", type=float, default=1.0, help="predicted over measured, where not timed")
    parser.add_argument(
        "--forms", default="", help="of the timed pass: compiled, overlapped; both by default"
    )
    parser.add_argument("--gpu", default="h200-sxm", help="spec of the GPU that times are of")
    parser.add_argument("--device", default=default_device())
    return parser.parse_args(arguments)


def case_of(key: Row) -> Row:
    """The contestant, share and seed of a row."""
    return {name: key[name] for name in ("contestant", "share", "seed")}


class Run:
    """A study and the folder of its files, in one process."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.asked, self.out = asked, asked.out
        study: Study = load_study(asked.study, tiny=asked.tiny)
        steps = {name: getattr(asked, name) for name in ("train_steps", "tune_steps")}
        given = {name: each for name, each in steps.items() if each is not None}
        self.study = replace(study, budget=replace(study.budget, **given))
        self.rows = Rows(self.out / "rows.jsonl")
        self.seeds = [int(each) for each in asked.seeds.split(",") if each] or list(self.study.seeds)
        self.shares = [float(each) for each in asked.shares.split(",") if each] or list(study.shares)
        names = [each for each in asked.only.split(",") if each]
        self.names = names or list(CONTESTANTS)
        self.trainer = cache(lambda: Trainer(self.study, asked.device))
        self.predictor = cache(lambda: Predictor(self.study.graph(), asked.gpu))
        self.importance = cache(self._importance)

    def dense(self, seed: int) -> dict[str, torch.Tensor]:
        """State of a trained dense model."""
        return load_file(self.out / f"dense-{seed}.safetensors")

    def _importance(self, seed: int, kind: str = "") -> dict[str, np.ndarray]:
        stored = load_file(self.out / f"importance-{kind}{seed}.safetensors")
        return {name: tensor.numpy() for name, tensor in stored.items()}

    def importance_of(self, key: Row) -> dict[str, np.ndarray]:
        """Importance by which the contestant of a case chooses its masks."""
        return self.importance(key["seed"], "tiles-" if CONTESTANTS[key["contestant"]].of_tiles else "")

    def costs_file(self, kind: str, seed: int) -> Path:
        """Return the file of the losses that a unit of importance of each layer is worth."""
        return self.out / f"costs-{kind}{seed}.json"

    def costs(self, key: Row) -> dict[str, float]:
        """Loss that a unit of importance is worth to the contestant of a case, by layer."""
        contestant = CONTESTANTS[key["contestant"]]
        kind = (
            f"again-{key['share']}-" if contestant.is_remeasured else "tiles-" if contestant.of_tiles else ""
        )
        file = self.costs_file(kind, key["seed"])
        if not contestant.is_measured:
            return {}
        found: dict[str, float] = json.loads(file.read_text(encoding="utf-8"))
        return found

    def groups(self, contestant: str) -> tuple[Group, ...]:
        """Groups of units that are not there at all where the contestant removes them."""
        narrowing = self.study.narrowing
        return narrowing.groups if narrowing is not None and CONTESTANTS[contestant].is_narrow else ()

    def lock(self) -> Path:
        """File by which processes take turns on a device."""
        device = torch.cuda.current_device() if torch.cuda.is_available() else 0
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        return (
            self.out / f"gpu-{visible[device] if device < len(visible) and visible[device] else device}.lock"
        )

    def cases(self, seeds: list[int]) -> list[Row]:
        """Contestants, shares and seeds, in the order of their worth."""
        return [
            {"contestant": name, "share": share, "seed": seed}
            for name in self.names
            for share in ((ONCE,) if CONTESTANTS[name].pattern == TWO_OF_FOUR else self.shares)
            for seed in seeds
        ]

    def masks_file(self, key: Row) -> Path:
        """Where the newest masks of a case are kept."""
        return self.out / "masks" / f"{file_name(**case_of(key))}.npz"

    def read_masks(self, key: Row) -> tuple[dict[str, np.ndarray], dict[str, str]]:
        """Masks and patterns of a case."""
        products = self.study.graph().products
        with np.load(self.masks_file(key)) as stored:
            patterns = {
                name.removesuffix(PATTERN): str(stored[name]) for name in stored if name.endswith(PATTERN)
            }
            kept = {}
            for name in (each for each in stored if not each.endswith(PATTERN)):
                m, k = products[name].m, products[name].k
                kept[name] = np.unpackbits(stored[name], count=m * k).reshape(m, k).astype(bool)
        return kept, patterns

    def write_masks(self, key: Row, masks: Masks) -> None:
        """Keep them, a bit each."""
        file = self.masks_file(key)
        file.parent.mkdir(exist_ok=True)
        arrays = {name: np.packbits(mask) for name, mask in masks.kept.items()}
        np.savez(file, **arrays, **{name + PATTERN: np.array(each) for name, each in masks.patterns.items()})


def train(run: Run) -> None:
    """Dense models and importance."""

    def work(key: Row) -> Row:
        trainer = run.trainer()
        with turn(run.lock(), alone=False):
            return train_one(trainer, key["seed"])

    def train_one(trainer: Trainer, seed: int) -> Row:
        torch.manual_seed(seed)
        trainer.model.load_state_dict(run.study.build(run.asked.device).state_dict())
        step_s = trainer.train(seed) if run.study.budget.train_steps else 0.0
        scores = trainer.scores()
        _keep_scores(run, {"contestant": "untuned", "share": 1.0, "seed": seed}, scores)
        save_file(
            {name: each.contiguous() for name, each in trainer.model.state_dict().items()},
            run.out / f"dense-{seed}.safetensors",
        )
        for kind, height in HEIGHTS.items():
            found = trainer.importance(seed, height)
            tensors = {name: torch.from_numpy(each) for name, each in found.items()}
            save_file(tensors, run.out / f"importance-{kind}{seed}.safetensors")
            costs = trainer.costs(found, seed)
            run.costs_file(kind, seed).write_text(json.dumps(costs), encoding="utf-8")
        return {
            "score": _mean(scores),
            "unit": run.study.unit,
            "more_is_better": run.study.more_is_better,
            "step_s": step_s,
        }

    todo = [{"step": "train", "seed": seed} for seed in run.seeds]
    work_through(run.rows, part_of(todo, run.asked.part), work, run.asked.seconds)


def masks(run: Run) -> None:
    """Masks of every case; with --correct those whose time was measured, at the share that leads there."""
    torch.set_num_threads(1)

    def work(key: Row) -> Row:
        case = case_of(key)
        aim, sparsity = key["share"] * _ratio(run, key), None
        if not CONTESTANTS[key["contestant"]].is_fast:
            like = run.rows.last(step="masks", contestant=LIKE, share=key["share"], seed=key["seed"])
            sparsity = None if like is None else like["sparsity"]
        known = run.importance_of(key), aim, run.predictor(), sparsity, run.costs(key)
        found = find_masks(key["contestant"], *known, run.study.narrowing)
        run.write_masks(case, found)
        return {"sparsity": found.sparsity, "aim": aim, "predicted_share": found.predicted_share}

    todo = [{"step": "masks", **case, "corrected": run.asked.correct} for case in run.cases(run.seeds)]
    work_through(run.rows, part_of(todo, run.asked.part), work, run.asked.seconds)


def costs(run: Run) -> None:
    """Losses that units of importance are worth where all other layers have the masks of `FIRST`."""

    def work(key: Row) -> Row:
        seed, trainer = key["seed"], run.trainer()
        trainer.begin(run.dense(seed))
        kept = run.read_masks({"contestant": FIRST, **key})[0]
        with turn(run.lock(), alone=False):
            found = trainer.costs(run.importance(seed), seed, kept)
        file = run.costs_file(f"again-{key['share']}-", seed)
        file.write_text(json.dumps(found), encoding="utf-8")
        return {}

    todo = [{"step": "costs", "share": share, "seed": seed} for seed in run.seeds for share in run.shares]
    work_through(run.rows, part_of(todo, run.asked.part), work, run.asked.seconds)


def _ratio(run: Run, key: Row) -> float:
    """Predicted over measured share of the first masks, or of those of `BASE` where these have no time."""
    for name in (key["contestant"], BASE) if key["corrected"] else ():
        case = {"contestant": name, "share": key["share"], "corrected": False}
        timed = run.rows.last(step="time", **case)
        said = run.rows.last(step="masks", **case, seed=run.study.seeds[0])
        if timed is not None and said is not None and said["predicted_share"] is not None:
            return float(said["predicted_share"] / timed["measured_share"])
    return float(run.asked.ratio)


def time(run: Run) -> None:
    """Time the newest masks of the first seed."""
    first = run.study.seeds[0]

    def work(key: Row) -> Row:
        kept, patterns = run.read_masks(key)
        found = measure(
            run.study,
            run.dense(first),
            kept,
            patterns,
            gpu=run.asked.gpu,
            lock=run.lock(),
            groups=run.groups(key["contestant"]),
            forms=[form for form in run.asked.forms.split(",") if form],
        )
        return {"measured_share": found.pop("share"), **found}

    cases = [case for case in run.cases([first]) if CONTESTANTS[case["contestant"]].is_fast]
    if run.asked.correct:
        cases = [case for case in cases if run.rows.last(step="masks", **case, corrected=True)]
    todo = [{"step": "time", **case, "corrected": run.asked.correct} for case in cases]
    work_through(run.rows, part_of(todo, run.asked.part), work, run.asked.seconds)


def tune_case(run: Run, key: Row) -> Row:
    """Prune and tune one case, or the dense model, and keep the score of each item."""
    seed, trainer, is_dense = key["seed"], run.trainer(), key["contestant"] == DENSE
    case = case_of(key)
    kept = None if is_dense else run.read_masks(case)[0]
    torch.manual_seed(seed)
    with turn(run.lock(), alone=False):
        trainer.begin(run.dense(seed))
        step_s = trainer.tune(kept, {} if is_dense else run.importance(seed), seed)
        scores = trainer.scores()
    _keep_scores(run, case, scores)
    return {"score": _mean(scores), "step_s": step_s}


def tune(run: Run) -> None:
    """Prune and tune every case that has masks, the dense model too."""
    cases = [{"contestant": DENSE, "share": 1.0, "seed": seed} for seed in run.seeds]
    cases += [case for case in run.cases(run.seeds) if run.masks_file(case).exists()]
    todo = [{"step": "tune", **case} for case in cases]
    work_through(run.rows, part_of(todo, run.asked.part), lambda key: tune_case(run, key), run.asked.seconds)


def _mean(scores: np.ndarray) -> float:
    return round(float(scores.mean()), 5)


def _keep_scores(run: Run, case: Row, scores: np.ndarray) -> None:
    folder = run.out / "scores"
    folder.mkdir(exist_ok=True)
    np.save(folder / f"{file_name(**case)}.npy", scores.astype(np.float16))


STEPS: dict[str, Callable[[Run], None]] = {
    "train": train,
    "masks": masks,
    "costs": costs,
    "time": time,
    "tune": tune,
}


def _one_part(given: tuple[list[str], str]) -> None:
    arguments, part = given
    main([*arguments, "--part", part, "--processes", "1"])


def main(arguments: list[str] | None = None) -> None:
    arguments = sys.argv[1:] if arguments is None else arguments
    asked = parse_options(arguments)
    if asked.processes > 1:
        parts = [(arguments, f"{number}/{asked.processes}") for number in range(1, asked.processes + 1)]
        with ProcessPoolExecutor(asked.processes, get_context("spawn")) as pool:
            list(pool.map(_one_part, parts))
        return
    STEPS[asked.step](Run(asked))


if __name__ == "__main__":
    main()
