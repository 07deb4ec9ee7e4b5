"""`Study`: a model, its task, and the pass that is timed; what every step of the harness is given."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from narrow import Narrowing
from torch import Tensor, nn

from prunecast.workload.graph import ModelGraph

Batch = tuple[Tensor, ...]
Scores = npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Steps and learning rates; all contestants are tuned with the same.

    Parameters
    ----------
    train_steps : of the dense model from its first weights; 0 for one that comes trained
    tune_steps : behind pruning; masks grow over the first half of them
    updates : changes of the masks
    calibration_steps : batches from which importance is gathered
    warmup_steps : over which the rate rises
    """

    train_steps: int
    train_rate: float
    tune_steps: int
    tune_rate: float
    weight_decay: float = 0.1
    updates: int = 12
    calibration_steps: int = 32
    warmup_steps: int = 50


@dataclass(frozen=True, kw_only=True)
class Study:
    """What is pruned, tuned, judged and timed. Models are float32; steps run under bf16 autocast.

    Parameters
    ----------
    name : of the study
    build : the model on a device; with its trained weights where `budget.train_steps` is 0
    batches : endless training batches of a seed on a device
    outputs : what a model says of a batch
    loss : of outputs, given the dense model's outputs of the same batch (None while that is trained) and
        the batch
    scores : one number for each held-out item, in the same order for every model
    more_is_better : whether a higher score is better
    unit : of a score
    target : selectors of the weights to prune, as `Pruner` takes them
    timed : from a model to the module that is timed, which takes `example`
    example : tensors of the timed pass on a device, the same ones at every call
    tokens : columns of B in that pass, batch times sequence
    graph : that pass as predictions see it, products called as the weights
    budget : steps and rates
    shares : times as shares of the dense model's
    seeds : of training and tuning
    narrowing : what may be removed whole, for contestants that are narrower
    is_captured : batches have one size, and a step on the GPU is a CUDA graph instead of being compiled
    """

    name: str
    build: Callable[[str], nn.Module]
    batches: Callable[[int, str], Iterator[Batch]]
    outputs: Callable[[nn.Module, Batch], Tensor]
    loss: Callable[[Tensor, Tensor | None, Batch], Tensor]
    scores: Callable[[nn.Module], Scores]
    more_is_better: bool
    unit: str
    target: tuple[str, ...]
    timed: Callable[[nn.Module], nn.Module]
    example: Callable[[str], Batch]
    tokens: int
    graph: Callable[[], ModelGraph]
    budget: Budget
    shares: tuple[float, ...] = (0.8, 0.7, 0.6)
    seeds: tuple[int, ...] = (0, 1, 2)
    narrowing: Narrowing | None = None
    is_captured: bool = False


def load_study(path: Path, *, tiny: bool) -> Study:
    """The study that the function `study(tiny)` of a Python file returns."""
    sys.path.insert(0, str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise SystemExit(f"--study: wanted a Python file with a function study(tiny), got {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    found: Study = module.study(tiny)
    return found


def default_device() -> str:
    """`cuda` where there is a GPU."""
    return "cuda" if torch.cuda.is_available() else "cpu"
