"""Trains a residual network on digits with three seeds, prunes it in every way and tunes each.

A seed stands for everything random: the split, the initial weights and the order of the images.
"""

from __future__ import annotations

import argparse
import json
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
from digits import Images, ResidualNetwork, batches, images, judge, loss_of
from pruning import Weights, importance_of, prune, statistics
from settings import SEEDS, Case, Digits
from stored_maps import store
from tuning import rate_at, train
from workers import Work, run_cases

from prunecast.torch import Pruner
from prunecast.torch.layers import as_matrix, prunable


class Trained(NamedTuple):
    """A dense network and what it was trained on."""

    state: dict[str, torch.Tensor]
    weights: Weights
    data: Images


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for digits.json and tile maps")
    parser.add_argument("--only", default="", help="only cases whose name holds one of these, by commas")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


def rates(steps: int, peak: float) -> list[float]:
    """The learning rate of every step."""
    return [rate_at(step, steps, Digits.warmup_steps, peak) for step in range(steps)]


def train_dense(seed: int, device: torch.device) -> Trained:
    """The network of a seed, on the host."""
    torch.manual_seed(seed)
    data = images(seed, device)
    model = ResidualNetwork().to(device)
    train(
        model, loss_of, batches(data, Digits.train_batch, seed), rates(Digits.train_steps, Digits.train_rate)
    )
    weights = {name: as_matrix(weight) for name, weight in prunable(model, ignore=Digits.ignore).items()}
    return Trained({name: tensor.cpu() for name, tensor in model.state_dict().items()}, weights, data)


def make_work(options: argparse.Namespace, states: dict[int, dict[str, torch.Tensor]]) -> Work:
    """A function that prunes and tunes one case with all seeds, in this process."""
    device = torch.device(options.device)
    model = ResidualNetwork().to(device)
    data = {seed: images(seed, device) for seed in SEEDS}

    def tune(case: Case, seed: int) -> dict[str, Any]:
        torch.manual_seed(seed)
        model.load_state_dict(states[seed])
        weights = {name: as_matrix(weight) for name, weight in prunable(model, ignore=Digits.ignore).items()}
        pruned = prune(weights, case)
        if seed == SEEDS[0]:
            store(options.out, case, pruned)
        pruner = Pruner(model, case.pattern, case.sparsity, ignore=Digits.ignore)
        pruner.prepare(pruned.masks)
        before = judge(model, data[seed])
        source = islice(batches(data[seed], Digits.train_batch, 1000 + seed), Digits.tune_steps)
        train(model, loss_of, source, rates(Digits.tune_steps, Digits.tune_rate), pruner)
        pruner.close()
        return {
            **{f"{name}_before": value for name, value in before.items()},
            **judge(model, data[seed]),
            **statistics(importance_of(weights), pruned),
        }

    return tune


def main() -> None:
    options = parse_options()
    options.out.mkdir(parents=True, exist_ok=True)
    trained = {seed: train_dense(seed, torch.device(options.device)) for seed in SEEDS}
    dense = {seed: _judged(one, options.device) for seed, one in trained.items()}
    print(dense, flush=True)
    states = {seed: one.state for seed, one in trained.items()}
    wanted = options.only.split(",")
    cases = [case for case in Digits.cases if any(part in case.name for part in wanted)]
    todo = [(case, seed) for case in cases for seed in SEEDS]
    results = run_cases(make_work, (options, states), todo, processes=options.processes, seconds=1e9)
    record = {
        "train_images": Digits.train_images,
        "train_steps": Digits.train_steps,
        "tune_steps": Digits.tune_steps,
        "batch_images": Digits.train_batch,
        "device": torch.cuda.get_device_name() if options.device == "cuda" else options.device,
        "torch_version": torch.__version__,
        "parameters": sum(tensor.numel() for tensor in states[SEEDS[0]].values()),
        "dense": dense,
        "cases": sorted(results, key=lambda result: result["case"]),
    }
    (options.out / "tuned.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def _judged(trained: Trained, device: str) -> dict[str, float]:
    model = ResidualNetwork().to(device)
    model.load_state_dict(trained.state)
    return judge(model, trained.data)


if __name__ == "__main__":
    main()
