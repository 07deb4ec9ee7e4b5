"""Removed parts in a search: smaller models are searched like the whole one, and the best one is taken.

A part that is removed changes the sizes of several matrices at once, so that it is no option of one layer.
The search of a smaller model allocates the same time budget over its own layers, with the same patterns.
Retained importance is compared on the scale of the whole model: the importance of a removed part is lost.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from prunecast.codesign.search.model_search import ModelSearch
from prunecast.codesign.search.target import prune_to_targets
from prunecast.codesign.search.targets import TargetResult, Targets
from prunecast.errors import BadInput, check_choice
from prunecast.workload.graph.config import CONFIG
from prunecast.workload.graph.removal import PARTS, UNEVEN, parse_removal
from prunecast.workload.layers import Removed, Source
from prunecast.workload.memory import PassMemory

SHARES = (0.125, 0.25, 0.375, 0.5)
"""Shares of a part that are tried, in order. Kind: choice; rarely more than half of a part is removed."""


class _Whole(NamedTuple):
    """The whole model, to which smaller ones are compared."""

    dense_s: float
    importance: float
    weights: int
    memory: tuple[PassMemory, ...]

    @classmethod
    def of(cls, search: ModelSearch) -> "_Whole":
        """Return the sums of a prepared search."""
        dense_s = search.total(search.dense_seconds(), frozenset())
        return cls(dense_s, _importance(search), search.workload.weights, search.memory({}))

    def targets(self, targets: Targets, weights: int) -> Targets:
        """Return targets of a smaller model of `weights` elements that meet `targets` of the whole model."""
        most_s = targets.most_seconds(self.dense_s)
        sparsity = None
        if targets.sparsity is not None:
            sparsity = max(0.0, 1.0 - targets.most_kept(self.weights) / weights)
        return Targets(latency_s=None if math.isinf(most_s) else most_s, sparsity=sparsity)

    def seen(self, result: TargetResult, search: ModelSearch) -> TargetResult:
        """Return the result of a smaller model with shares of the whole model."""
        share, weights = _importance(search) / self.importance, search.workload.weights / self.weights
        front = tuple(
            point._replace(
                retained_importance=share * point.retained_importance,
                sparsity=1.0 - weights * (1.0 - point.sparsity),
            )
            for point in result.front
        )
        return replace(
            result,
            dense_seconds=self.dense_s,
            dense_memory=self.memory,
            retained_importance=share * result.retained_importance,
            sparsity=1.0 - weights * (1.0 - result.sparsity),
            front=front,
        )


class SmallerModel(NamedTuple):
    """A model from which parts were removed, and what pruning the rest of it to the targets gave.

    Parameters
    ----------
    weights : the whole model, and what is removed of it
    search : search of the smaller model
    result : its outcome. Times, importance and sparsity are relative to the whole model, not the smaller one
    """

    weights: Source
    search: ModelSearch
    result: TargetResult

    @property
    def retained(self) -> float:
        """Share of the importance of the whole model that is retained."""
        return self.result.retained_importance


def best_smaller_model(
    weights: str | Path,
    targets: Targets,
    remove: Sequence[str],
    make: Callable[[Source], ModelSearch],
    calibrate: str | Path | None = None,
    prune: Callable[[ModelSearch, Targets], TargetResult] | None = None,
) -> SmallerModel:
    """Return the model that meets the targets with the highest retained importance.

    Parts are decided one after the other. All shares of a part are tried: a small one can retain less than
    none, and a large one more, since fixed costs of sparse kernels vanish only with the last of them.
    With the best share of heads or widths of a folder, different numbers in each layer are tried too.

    Parameters
    ----------
    remove : parts, with a share that is fixed (`heads:0.5`) or without (`widths`): one of `SHARES`, or none
    make : returns the search of a model, not prepared
    calibrate : calibration file that weights the saliency of parts
    prune : returns the best options of a smaller model; None for `prune_to_targets`

    Raises
    ------
    BadInput : a part that the model lacks, or targets that no smaller model meets
    """
    fixed = [parse_removal(text).text for text in remove if ":" in text]
    free = [check_choice("remove", text, PARTS) for text in remove if ":" not in text]
    tries = {part: _tries(weights, part) for part in free}
    whole_search = make(weights)
    whole_search.prepare()
    whole, failures = _Whole.of(whole_search), []

    def tried(parts: Sequence[str]) -> SmallerModel | None:
        source = Removed(weights=weights, parts=parts, calibrate=calibrate) if parts else weights
        try:
            search = make(source) if parts else whole_search
            if parts:
                search.prepare()
            result = (prune or prune_to_targets)(search, whole.targets(targets, search.workload.weights))
        except BadInput as error:
            failures.append(error)
            return None
        return SmallerModel(source, search, whole.seen(result, search))

    best, chosen = tried(fixed), fixed

    def try_also(parts: list[str]) -> None:
        nonlocal best, chosen
        found = tried(parts)
        if found is not None and (best is None or found.retained > best.retained):
            best, chosen = found, parts

    for part in free:
        before = chosen
        for removal in tries[part]:
            try_also([*before, removal])
        if chosen is not before and part in UNEVEN and (Path(weights) / CONFIG).is_file():
            try_also([*before, f"{chosen[-1]}/uneven"])
    if best is None:
        raise failures[-1]
    return best


def _tries(weights: str | Path, part: str) -> list[str]:
    """Return the removals of a part that the model allows. Raise BadInput if it allows none."""
    found, failure = [], None
    for share in SHARES:
        try:
            Removed(weights=weights, parts=[f"{part}:{share}"]).sizes()
        except BadInput as error:
            failure = error
        else:
            found.append(f"{part}:{share}")
    if failure is not None and not found:
        raise failure
    return found


def _importance(search: ModelSearch) -> float:
    return sum(options[0].importance for options in search.options.values())
