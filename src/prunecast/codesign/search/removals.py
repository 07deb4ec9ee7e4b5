"""Search with removed parts (layers, heads, widths, experts): select the best of several smaller models.

Removing a part changes the sizes of several matrices at once. It is therefore not an option of one layer.
Instead, each smaller model gets its own search, with the time budget of the whole model and the same
patterns. Models are compared by their retained importance as a share of the whole model's importance, so that
the importance of removed parts counts as lost.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from prunecast.codesign.search.model_search import ModelSearch
from prunecast.codesign.search.targets import TargetResult, Targets
from prunecast.errors import BadInput, check_choice
from prunecast.workload.graph.config import CONFIG
from prunecast.workload.graph.removal import PARTS, UNEVEN, parse_removal
from prunecast.workload.layers import Removed, Source

SHARES = (0.125, 0.25, 0.375, 0.5)
"""Shares of a part (such as 12.5 % of the heads) whose removal is tried, in order. Kind: choice; more than
half of a part is rarely removed."""


class SmallerModel(NamedTuple):
    """A model from which parts were removed and whose other weights were pruned to the targets.

    Parameters
    ----------
    weights : source of the whole model with the parts to remove, or the whole model itself
    search : search of the smaller model
    result : result of the search; dense times and shares are those of the whole model, not the smaller one
    """

    weights: Source
    search: ModelSearch
    result: TargetResult


def best_smaller_model(
    weights: str | Path,
    targets: Targets,
    remove: Sequence[str],
    make: Callable[[Source], ModelSearch],
    prune: Callable[[ModelSearch, Targets], TargetResult],
    calibrate: str | Path | None = None,
) -> SmallerModel:
    """Return the smaller model that meets the targets with the highest retained importance.

    Parts are decided one after the other. Every share of a part is tried, because the importance need not
    rise or fall steadily with the share: fixed costs of sparse kernels vanish only with the last sparse
    kernel. For heads and widths of a model folder, the best share is also tried with different numbers in
    each layer.

    Parameters
    ----------
    weights : standard model or model folder
    targets : targets of the pruned model, relative to the whole dense model
    remove : parts to remove. A part with a share (`heads:0.5`) is always removed; for one without (`widths`),
        each share in `SHARES` and keeping the part are tried
    make : returns the search of a model; `prepare` has not been called
    prune : prunes a smaller model to its targets
    calibrate : calibration file that weights the saliency of parts

    Raises
    ------
    BadInput : the model lacks a part, or no smaller model meets the targets
    """
    fixed = [parse_removal(text).text for text in remove if ":" in text]
    free = [check_choice("remove", text, PARTS) for text in remove if ":" not in text]
    tries = {part: _tries(weights, part) for part in free}
    whole, failures = make(weights), []
    whole.prepare()
    limits = whole.limits(targets)

    def tried(parts: Sequence[str]) -> SmallerModel | None:
        source = Removed(weights=weights, parts=parts, calibrate=calibrate) if parts else weights
        try:
            search = make(source) if parts else whole
            if parts:
                search.prepare()
            # Convert the limits of the whole model to targets of the smaller model
            least = max(0.0, 1.0 - limits.kept / search.workload.weights)
            latency_s = None if math.isinf(limits.seconds) else limits.seconds
            sparsity = None if math.isinf(limits.kept) else least
            result = prune(search, Targets(latency_s=latency_s, sparsity=sparsity))
        except BadInput as error:
            failures.append(error)
            return None
        return SmallerModel(source, search, _relative(result, search, whole, limits.dense_s))

    best, chosen = tried(fixed), fixed

    def try_also(parts: list[str]) -> None:
        nonlocal best, chosen
        both = [each for each in (best, tried(parts)) if each is not None]
        better = max(both, key=lambda each: each.result.retained_importance, default=None)
        if better is not best:
            best, chosen = better, parts

    for part in free:
        before = chosen
        for removal in tries[part]:
            try_also([*before, removal])
        if chosen is not before and part in UNEVEN and (Path(weights) / CONFIG).is_file():
            try_also([*before, f"{chosen[-1]}/uneven"])
    if best is None:
        raise failures[-1]
    return best


def _relative(result: TargetResult, search: ModelSearch, whole: ModelSearch, dense_s: float) -> TargetResult:
    """Return the result of a smaller model with all shares relative to the whole model.

    Parameters
    ----------
    search, whole : searches of the smaller model and of the whole one
    dense_s : end-to-end seconds of the whole model without pruning
    """
    share = search.importance / whole.importance
    weights = search.workload.weights / whole.workload.weights
    front = tuple(
        point._replace(
            retained_importance=share * point.retained_importance,
            sparsity=1.0 - weights * (1.0 - point.sparsity),
        )
        for point in result.front
    )
    return replace(
        result,
        dense_seconds=dense_s,
        dense_memory=whole.memory({}),
        retained_importance=share * result.retained_importance,
        sparsity=1.0 - weights * (1.0 - result.sparsity),
        front=front,
    )


def _tries(weights: str | Path, part: str) -> list[str]:
    """Return the removals of a part that the model allows, such as `heads:0.5`. Raise BadInput for none."""
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
