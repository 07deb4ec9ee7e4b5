"""Prunes the trained language model in every way, gradually, while it is tuned with one budget for all.

Importance is gathered from gradients in the first steps. Every run begins with the same weights; a seed
stands for the order of the text and for dropout.
"""

from __future__ import annotations

import argparse
import json
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from language import batches, build, next_byte_loss, read_corpus, text_of, training_loss, validation_loss
from pruning import Pruned, importance_of, prune, statistics
from safetensors.torch import load_file
from settings import SEEDS, Case, Language
from stored_maps import store
from tuning import rate_at, train
from workers import Work, run_cases

from prunecast.codesign.schedule import Schedule, gradual, one_shot
from prunecast.torch import Pruner
from prunecast.torch.layers import as_matrix, prunable

URGENT = (0.75, 0.0, 0.9, 0.5)
"""The order in which sparsities are done, where time may run out."""


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", type=Path, required=True, help="of 1_train_language_model.py")
    parser.add_argument("--out", type=Path, required=True, help="folder for tuned.json and maps")
    parser.add_argument("--only", default="", help="only cases whose name holds one of these, by commas")
    parser.add_argument("--steps", type=int, default=Language.tune_steps)
    parser.add_argument("--batch", type=int, default=Language.tune_batch)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no run after these")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--compile", action="store_true", help="train through torch.compile")
    return parser.parse_args()


def schedule_of(case: Case, steps: int) -> Schedule:
    """The same for all cases; the dense model has nothing to be gradual about."""
    delay = Language.warmup_steps
    if case.sparsity == 0.0:
        return one_shot(0.0, delay_steps=delay)
    every = int((Language.update_share * steps - delay) / (Language.updates - 1))
    return gradual(case.sparsity, updates=Language.updates, every=max(every, 1), delay_steps=delay)


def make_work(options: argparse.Namespace) -> Work:
    """A function that tunes one case with one seed, in this process."""
    device = torch.device(options.device)
    text = text_of(read_corpus(), device)
    model = build(Language.tune_dropout, device)
    trained = torch.compile(model) if options.compile else model
    dense = {name: tensor.float() for name, tensor in load_file(options.weights).items()}
    magnitudes = importance_of({name: as_matrix(dense[name]) for name in prunable(model, Language.target)})
    rates = [
        rate_at(step, options.steps, Language.warmup_steps, Language.tune_rate)
        for step in range(options.steps)
    ]

    def tune(case: Case, seed: int) -> Pruner:
        torch.manual_seed(seed)
        model.load_state_dict(dense)
        schedule = schedule_of(case, options.steps)
        pruner = Pruner(
            model,
            case.pattern,
            schedule=schedule,
            target=Language.target,
            importance=Language.importance,
        )
        pruner.prepare()
        source = islice(batches(text, options.batch, 1000 + seed), options.steps)
        train(trained, next_byte_loss, source, rates, pruner)
        pruner.close()
        return pruner

    def at_once(case: Case) -> dict[str, Any]:
        """What pruning by magnitude says and does before any tuning."""
        pruned = prune(magnitudes, case)
        model.load_state_dict(dense)
        for name, mask in pruned.masks.items():
            weight = model.get_parameter(name).data
            weight *= torch.from_numpy(mask).to(device)
        return {**statistics(magnitudes, pruned), "validation_loss": validation_loss(model, text)}

    def work(case: Case, seed: int) -> dict[str, Any]:
        found = {"at_once": at_once(case)} if seed == SEEDS[0] else {}
        pruner = tune(case, seed)
        pattern = pruner.path.pattern
        final = Pruned(pruner.masks, {name: pattern.map(mask) for name, mask in pruner.masks.items()})
        if seed == SEEDS[0]:
            store(options.out, case, final)
        return {
            "validation_loss": validation_loss(model, text),
            "train_loss": training_loss(model, text),
            **statistics(pruner.first, final),
            **found,
        }

    return work


def main() -> None:
    options = parse_options()
    options.out.mkdir(parents=True, exist_ok=True)
    wanted = options.only.split(",")
    cases = [case for case in Language.cases if any(part in case.name for part in wanted)]
    cases.sort(key=lambda case: (URGENT.index(case.sparsity), "shuffled" not in case.name))
    todo = [(case, seed) for case in cases for seed in SEEDS]
    results = run_cases(make_work, (options,), todo, processes=options.processes, seconds=options.seconds)
    record = {
        "steps": options.steps,
        "batch_windows": options.batch,
        "peak_learning_rate": Language.tune_rate,
        "dropout": Language.tune_dropout,
        "importance": Language.importance,
        "updates": Language.updates,
        "update_share": Language.update_share,
        "device": torch.cuda.get_device_name() if options.device == "cuda" else options.device,
        "torch_version": torch.__version__,
        "cases": sorted(results, key=lambda result: result["case"]),
    }
    (options.out / "tuned.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
