"""Narrower layers: hidden units, heads or channels that are removed whole, and 2:4 in what is left.

What is removed is zero in a model that is tuned, and not there at all in one that is timed: its dense
products are smaller ones of cuBLAS or cuDNN, and activations and attention between them are smaller too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from prunecast.patterns import parse_pattern
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.tile_map import MaskArray
from prunecast.workload.graph import ModelGraph

Counts = Mapping[str, int]
"""Kind of group -> units that each of its groups keeps."""
TWO_OF_FOUR = "2:4"


class Group(NamedTuple):
    """Units that one set of weights makes and another one reads: neurons, heads or channels.

    Parameters
    ----------
    kind : of the group; groups of a kind keep equally many units
    units : before anything is removed
    makers : weight -> rows of it that a unit has
    readers : weight -> columns of it that a unit has
    followers : modules with one number a unit between them, such as norms
    count : module and attribute that hold the number of units, if one does
    """

    kind: str
    units: int
    makers: Mapping[str, int]
    readers: Mapping[str, int]
    followers: tuple[str, ...] = ()
    count: tuple[str, str] | None = None


@dataclass(frozen=True, kw_only=True)
class Narrowing:
    """What can be removed from a model, and the graph of what is left.

    Parameters
    ----------
    groups : all of the model
    graph : the timed pass of a narrower model, products called as the weights
    ladders : sequences of counts, each from the narrowest to the widest
    inside : sets of parts of names; the weights of one set have 2:4 inside
    """

    groups: tuple[Group, ...]
    graph: Callable[[Counts], ModelGraph]
    ladders: tuple[tuple[Counts, ...], ...]
    inside: tuple[tuple[str, ...], ...] = ()


class Narrowed(NamedTuple):
    """What is left of a model: counts of units, and which weights have 2:4 inside."""

    counts: Counts
    inside: tuple[str, ...]
    predicted_share: float


def unit_scores(group: Group, importance: Mapping[str, ImportanceArray]) -> ImportanceArray:
    """(units,): importance of everything that goes with a unit."""
    made = sum(importance[name].sum(1).reshape(-1, rows).sum(1) for name, rows in group.makers.items())
    read = sum(importance[name].sum(0).reshape(-1, columns).sum(1) for name, columns in group.readers.items())
    scores: ImportanceArray = made + read
    return scores


def best_units(group: Group, importance: Mapping[str, ImportanceArray], count: int) -> np.ndarray:
    """(count,): the units of most importance, ascending."""
    return np.sort(np.argsort(-unit_scores(group, importance), kind="stable")[:count])


def find_narrow(
    narrowing: Narrowing,
    importance: Mapping[str, ImportanceArray],
    share: float,
    share_of: Callable[[Counts, tuple[str, ...]], float],
    insides: Sequence[tuple[str, ...]],
) -> Narrowed:
    """Of each ladder the widest model that takes at most the share, and of these the most important."""
    within_four = {name: _two_of_four(scores) * scores for name, scores in importance.items()}
    found: list[tuple[float, Narrowed]] = []
    for inside in insides:
        left = {
            name: within_four[name] if _has(name, inside) else scores for name, scores in importance.items()
        }
        for ladder in narrowing.ladders:
            low, high = 0, len(ladder) - 1
            while low < high:  # the widest of at most the share, or the narrowest
                middle = (low + high + 1) // 2
                if share_of(ladder[middle], inside) <= share:
                    low = middle
                else:
                    high = middle - 1
            predicted = share_of(ladder[low], inside)
            if predicted <= share * 1.02:
                kept = _kept_importance(narrowing, left, ladder[low])
                found.append((kept, Narrowed(ladder[low], inside, predicted)))
    if not found:
        raise ValueError(f"nothing narrow takes {share:.0%} of the time")
    return max(found, key=lambda each: each[0])[1]


def _kept_importance(narrowing: Narrowing, left: Mapping[str, ImportanceArray], counts: Counts) -> float:
    kept = {name: float(scores.sum(dtype=np.float64)) for name, scores in left.items()}
    for group in narrowing.groups:
        scores = np.sort(unit_scores(group, left))
        own = (*group.makers, *group.readers)
        gone = float(scores[: len(scores) - counts[group.kind]].sum(dtype=np.float64))
        kept[own[0]] -= gone
    return sum(kept.values())


def _has(name: str, parts: Sequence[str]) -> bool:
    return any(part in name for part in parts)


def _two_of_four(scores: ImportanceArray) -> MaskArray:
    return parse_pattern(TWO_OF_FOUR).prune({"": scores}, None)[""]


def narrow_masks(
    narrowing: Narrowing, importance: Mapping[str, ImportanceArray], found: Narrowed
) -> dict[str, MaskArray]:
    """Masks (M, K) of all weights: removed units, and 2:4 among the columns that are left."""
    rows = {name: np.arange(scores.shape[0]) for name, scores in importance.items()}
    columns = {name: np.arange(scores.shape[1]) for name, scores in importance.items()}
    for group in narrowing.groups:
        units = best_units(group, importance, found.counts[group.kind])
        rows |= {name: _spread(units, width) for name, width in group.makers.items()}
        columns |= {name: _spread(units, width) for name, width in group.readers.items()}
    masks = {}
    for name, scores in importance.items():
        place = np.ix_(rows[name], columns[name])
        masks[name] = np.zeros(scores.shape, bool)
        masks[name][place] = _two_of_four(scores[place]) if _has(name, found.inside) else True
    return masks


def _spread(units: np.ndarray, width: int) -> np.ndarray:
    """Rows or columns of units that have `width` each."""
    return (units[:, None] * width + np.arange(width)).ravel()


def kept_units(group: Group, kept: Mapping[str, MaskArray]) -> np.ndarray:
    """Units of which a mask keeps anything."""
    alive = np.zeros(group.units, bool)
    for name, rows in group.makers.items():
        alive |= kept[name].any(1).reshape(-1, rows).any(1)
    return np.flatnonzero(alive)


@torch.no_grad()
def narrow(
    model: nn.Module, groups: Sequence[Group], kept: Mapping[str, MaskArray]
) -> tuple[nn.Module, dict[str, MaskArray]]:
    """The model without the units that masks remove, changed in place, and the masks of what is left."""
    masks = dict(kept)
    for group in groups:
        units = kept_units(group, kept)
        for name, width in group.makers.items():
            rows = _spread(units, width)
            masks[name] = masks[name][rows]
            _keep(model.get_submodule(name.removesuffix(".weight")), rows, 0)
        for name, width in group.readers.items():
            columns = _spread(units, width)
            masks[name] = masks[name][:, columns]
            _keep(model.get_submodule(name.removesuffix(".weight")), units, 1, width)
        for name in group.followers:
            _keep(model.get_submodule(name), units, 0)
        if group.count is not None:
            setattr(model.get_submodule(group.count[0]), group.count[1], len(units))
    return model, masks


def _keep(module: nn.Module, places: np.ndarray, side: int, width: int = 1) -> None:
    """Rows (side 0) of all of a module's tensors, or columns (side 1) of its weight."""
    index = torch.from_numpy(places)
    if side == 0:
        for name, each in [*module.named_parameters(), *module.named_buffers()]:
            if each.dim():
                kept = each.detach()[index.to(each.device)]
                is_parameter = isinstance(each, nn.Parameter)
                setattr(module, name, nn.Parameter(kept, each.requires_grad) if is_parameter else kept)
    else:
        weight = module.weight.detach()
        if weight.dim() == 2:
            index = torch.from_numpy(_spread(places, width))
        kept = weight.index_select(1, index.to(weight.device))
        module.weight = nn.Parameter(kept, module.weight.requires_grad)
    _resize(module)


def _resize(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        module.out_features, module.in_features = module.weight.shape
    elif isinstance(module, nn.Conv2d):
        module.out_channels, module.in_channels = module.weight.shape[:2]
    elif isinstance(module, nn.BatchNorm2d):
        module.num_features = len(module.weight)
