"""Training and tuning: one loop, one budget for everybody; importance before anything is pruned."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import islice

import numpy as np
import torch
from captured import CapturedBackward
from study import Batch, Budget, Study
from torch import Tensor, nn

from prunecast.codesign.schedule import gradual
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.tile_map import MaskArray
from prunecast.torch import Pruner, layer_costs
from prunecast.torch.importance import as_mask_tensor, prunable

GRADIENT_NORM = 1.0
PROBE_BATCHES = 2
ANYWHERE = "unstructured"
"""Pattern of masks that were found before: any."""

Objective = Callable[[Batch], Tensor]
Backward = Callable[[Batch], None]
"""Leaves gradients in the parameters, which have none before."""


def rates(steps: int, warmup: int, peak: float) -> list[float]:
    """A rise, then half a cosine to a hundredth."""
    turns = (max(step - warmup, 0) / max(steps - warmup, 1) for step in range(steps))
    falls = (0.01 + 0.99 * (1 + math.cos(math.pi * turn)) / 2 for turn in turns)
    return [peak * min(1.0, (step + 1) / warmup) * fall for step, fall in enumerate(falls)]


def run_steps(
    model: nn.Module,
    backward: Backward,
    source: Iterable[Batch],
    peaks: list[float],
    weight_decay: float,
    pruner: Pruner | None = None,
) -> float:
    """AdamW over the batches; matrices decay, vectors do not. Seconds a step, of the second half."""
    matrices = [each for each in model.parameters() if each.dim() > 1]
    vectors = [each for each in model.parameters() if each.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    on_gpu = next(model.parameters()).is_cuda
    optimizer = torch.optim.AdamW(groups, peaks[0], betas=(0.9, 0.95), fused=on_gpu)
    half = 0.0
    for step, (rate, batch) in enumerate(zip(peaks, islice(source, len(peaks)), strict=True)):
        if step == len(peaks) // 2:
            half = _now(on_gpu)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        backward(batch)
        nn.utils.clip_grad_norm_(model.parameters(), GRADIENT_NORM)
        optimizer.step()
        if pruner is not None:
            pruner.step()
    return (_now(on_gpu) - half) / (len(peaks) - len(peaks) // 2)


def _now(on_gpu: bool) -> float:
    if on_gpu:
        torch.cuda.synchronize()
    return time.perf_counter()


class Trainer:
    """The models of a study on one device, compiled once for all runs of a process.

    `teacher` is the dense model that `model` is tuned beside.
    """

    def __init__(self, study: Study, device: str) -> None:
        self.study, self.device = study, device
        self.model = study.build(device)
        self.teacher = copy.deepcopy(self.model).eval().requires_grad_(False)
        compiled = device == "cuda" and not study.is_captured
        self._captured: dict[bool, Backward] = {}
        self._alone = torch.compile(self._loss_alone) if compiled else self._loss_alone
        self._beside = torch.compile(self._loss_beside) if compiled else self._loss_beside

    def _outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        with torch.autocast(self.device, torch.bfloat16):
            return self.study.outputs(model, batch)

    def _loss_alone(self, batch: Batch) -> Tensor:
        return self.study.loss(self._outputs(self.model, batch), None, batch)

    def _loss_beside(self, batch: Batch) -> Tensor:
        with torch.no_grad():
            wanted = self._outputs(self.teacher, batch)
        return self.study.loss(self._outputs(self.model, batch), wanted, batch)

    def _backward(self, *, distils: bool) -> Backward:
        """Captured once a process, before anything watches the parameters."""
        objective = self._beside if distils else self._alone
        if self.device != "cuda" or not self.study.is_captured:
            return lambda batch: objective(batch).backward()
        if distils not in self._captured:
            batch = next(self.study.batches(0, self.device))
            self._captured[distils] = CapturedBackward(objective, self.model.train(), batch)
        return self._captured[distils]

    def begin(self, dense: Mapping[str, Tensor]) -> None:
        """Model and teacher are the dense model again."""
        self.model.load_state_dict(dense)
        self.teacher.load_state_dict(dense)

    def train(self, seed: int) -> float:
        """The dense model from its first weights; seconds a step."""
        budget = self.study.budget
        peaks = rates(budget.train_steps, budget.warmup_steps * 4, budget.train_rate)
        state = copy.deepcopy(self.model.state_dict())
        backward = self._backward(distils=False)
        self.model.load_state_dict(state)
        self.model.train()
        source = self.study.batches(seed, self.device)
        return run_steps(self.model, backward, source, peaks, budget.weight_decay)

    def importance(self, seed: int, height: int = 1) -> dict[str, ImportanceArray]:
        """Importance of each weight (M, K): the sum over batches of (weight x gradient) squared.

        With a `height` products are added over the rows of a tile before they are squared, so that the
        importance of a column of a tile includes how the errors of its rows add up; each row gets as much.
        """
        parameters = prunable(self.model, self.study.target)
        sums: dict[str, Tensor] = {}
        for batch in islice(self.study.batches(100 + seed, self.device), self.study.budget.calibration_steps):
            self.model.zero_grad()
            self._alone(batch).backward()
            for name, each in parameters.items():
                assert each.grad is not None
                rows = min(height, len(each))
                tiles = (each.detach() * each.grad).flatten(1).unflatten(0, (-1, rows)).sum(1)
                sums[name] = sums.get(name, 0) + tiles.square() / rows
        self.model.zero_grad()
        return {
            name: found.repeat_interleave(min(height, len(parameters[name])), 0).cpu().numpy()
            for name, found in sums.items()
        }

    @torch.no_grad()
    def costs(
        self,
        importance: Mapping[str, ImportanceArray],
        seed: int,
        kept: Mapping[str, MaskArray] | None = None,
    ) -> dict[str, float]:
        """Layer -> loss beside the dense model, which this is, that a unit of removed importance costs.

        Each layer is pruned by half: in the dense model, or with `kept` in the model that these masks leave,
        in which a layer that is measured is whole before.
        """
        self.teacher.load_state_dict(self.model.state_dict())
        self.model.eval()
        batches = list(islice(self.study.batches(100 + seed, self.device), PROBE_BATCHES))
        weights = {name: each.data for name, each in prunable(self.model, self.study.target).items()}
        whole = {name: each.clone() for name, each in weights.items()}
        if kept is None:
            return layer_costs(weights, importance, lambda: self._apart(batches))
        found: dict[str, float] = {}
        for name in weights:
            for other, each in weights.items():
                each.copy_(whole[other])
                if other != name:
                    each.mul_(as_mask_tensor(kept[other], each))
            found |= layer_costs({name: weights[name]}, importance, lambda: self._apart(batches))
        for name, each in weights.items():
            each.copy_(whole[name])
        return found

    def _apart(self, batches: list[Batch]) -> float:
        return float(torch.stack([self._loss_beside(batch) for batch in batches]).mean())

    def tune(
        self,
        kept: Mapping[str, MaskArray] | None,
        importance: Mapping[str, ImportanceArray],
        seed: int,
        *,
        is_gradual: bool = True,
        distils: bool = True,
    ) -> float:
        """Gradually prune to masks while training beside the dense model; None tunes that itself.

        Returns
        -------
        seconds a step
        """
        budget, pruner = self.study.budget, None
        state = copy.deepcopy(self.model.state_dict())
        backward = self._backward(distils=distils)
        self.model.load_state_dict(state)
        if kept is not None:
            updates = budget.updates if is_gradual else 1
            pruner = _pruner(
                self.model, kept, importance, replace(budget, updates=updates), self.study.target
            )
            pruner.prepare()
        peaks = rates(budget.tune_steps, budget.warmup_steps, budget.tune_rate)
        self.model.train()
        source = self.study.batches(1000 + seed, self.device)
        step_s = run_steps(self.model, backward, source, peaks, budget.weight_decay, pruner)
        if pruner is not None:
            pruner.close()
        return step_s

    def scores(self) -> np.ndarray:
        """Of the model as it is now."""
        return np.asarray(self.study.scores(self.model.eval()), np.float32)


def _pruner(
    model: nn.Module,
    kept: Mapping[str, MaskArray],
    importance: Mapping[str, ImportanceArray],
    budget: Budget,
    target: tuple[str, ...],
) -> Pruner:
    removed = 1.0 - sum(int(m.sum()) for m in kept.values()) / sum(m.size for m in kept.values())
    every = max(budget.tune_steps // 2 // budget.updates, 1)
    schedule = gradual(removed, updates=budget.updates, every=every)
    return Pruner(model, ANYWHERE, schedule=schedule, target=target, importance=importance, final=kept)
