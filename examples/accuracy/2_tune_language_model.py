"""Prunes the trained language model in every way and fine-tunes each with the same budget."""

from __future__ import annotations

import argparse
import json
import time
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from language import batches, build, losses, next_byte_loss, read_corpus, text_of
from pruning import prune, statistics
from safetensors.torch import load_file
from settings import SEEDS, Case, Language
from stored_maps import store
from tuning import rate_at, train
from workers import Work, run_cases

from prunecast.torch import Pruner
from prunecast.torch.layers import as_matrix, prunable


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", type=Path, required=True, help="of 1_train_language_model.py")
    parser.add_argument("--out", type=Path, required=True, help="folder for tuned.json and tile maps")
    parser.add_argument("--only", default="", help="only cases whose name holds one of these, by commas")
    parser.add_argument("--steps", type=int, default=Language.tune_steps)
    parser.add_argument("--batch", type=int, default=Language.tune_batch)
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


def make_work(options: argparse.Namespace) -> Work:
    """A function that tunes one case with all seeds, in this process."""
    device = torch.device(options.device)
    text = text_of(read_corpus(), device)
    model = build(Language.tune_dropout, device)
    dense = {name: tensor.float() for name, tensor in load_file(options.weights).items()}
    weights = {name: as_matrix(dense[name]) for name in prunable(model, Language.target)}
    rates = [
        rate_at(step, options.steps, Language.warmup_steps, Language.tune_rate)
        for step in range(options.steps)
    ]

    def tune(case: Case, masks: dict[str, Any], seed: int) -> dict[str, float]:
        start = time.perf_counter()
        torch.manual_seed(seed)
        model.load_state_dict(dense)
        pruner = Pruner(model, case.pattern, case.sparsity, target=Language.target)
        pruner.prepare(masks)
        before = losses(model.eval(), text)["validation_loss"]
        source = islice(batches(text, options.batch, 1000 + seed), options.steps)
        train(model, next_byte_loss, source, rates, pruner)
        pruner.close()
        after = losses(model, text)
        return {"seed": seed, "before": before, **after, "seconds": round(time.perf_counter() - start, 2)}

    def work(case: Case) -> dict[str, Any]:
        start = time.perf_counter()
        pruned = prune(weights, case)
        store(options.out, case, pruned)
        found = {"mask_seconds": round(time.perf_counter() - start, 2), **statistics(weights, pruned)}
        return {**found, "runs": [tune(case, pruned.masks, seed) for seed in SEEDS[: options.seeds]]}

    return work


def main() -> None:
    options = parse_options()
    options.out.mkdir(parents=True, exist_ok=True)
    wanted = options.only.split(",")
    cases = [case for case in Language.cases if any(part in case.name for part in wanted)]
    cases.sort(key=lambda case: "shuffled" not in case.name)  # their masks take longest
    results = run_cases(make_work, (options,), cases, options.processes)
    record = {
        "steps": options.steps,
        "batch_windows": options.batch,
        "peak_learning_rate": Language.tune_rate,
        "dropout": Language.tune_dropout,
        "device": torch.cuda.get_device_name() if options.device == "cuda" else options.device,
        "torch_version": torch.__version__,
        "cases": sorted(results, key=lambda result: result["case"]),
    }
    (options.out / "tuned.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
