"""`prune_evenly`: one pattern family and about one sparsity (share of removed weights) in all layers.

`evenly_if_close` decides between it and `prune_to_targets`, in which each layer has its own.
"""

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from prunecast.codesign.search.allocation import ChoiceArray, Menu, allocate, floor_seconds
from prunecast.codesign.search.floor import Scales, probe, seen_scales, with_likely
from prunecast.codesign.search.model_search import ModelSearch
from prunecast.codesign.search.rounds import (
    CLOSE_ENOUGH,
    CLOSE_ENOUGH_LARGE,
    FEWEST_ROUNDS,
    MOST_REFINED_WEIGHTS,
    Round,
    among_tried,
    meets,
    result_of,
    tried_round,
    with_fewer_sparse,
)
from prunecast.codesign.search.target import chosen_by_time, prune_to_targets
from prunecast.codesign.search.targets import TargetResult, Targets
from prunecast.codesign.search.yardsticks import NEAR, SHARES, STEP, even_choice
from prunecast.errors import BadInput

EVEN: Mapping[str, str] = {
    "2:4": "2:4",
    "tvw": "tvw:.*",
    "guided tiles": "atp:.*guided.*",
    "tiles": "atp:[^:]*",
}
"""Pattern family -> regular expression of its pattern strings; the families that `prune_evenly` tries."""
MOST_FEWER = 0.05
"""One sparsity in all layers is preferred to sparsities by importance if it removes at most this share of all
weights more. Kind: choice.

On the bundled language model, one sparsity lost less accuracy where it removed 3 points more, and lost more
where it removed 6 points more."""
EVEN_SHARES = 3
"""Most sparsities of a family to which the model is pruned until one meets the time. Kind: choice."""
Pools = Mapping[str, ChoiceArray]
"""Layer -> indices of the options that it may get, ascending."""


class _EvenStart(NamedTuple):
    """The lowest sparsity (`share`) with which a pattern family meets the targets by estimated times.

    `patterns` is the regular expression of the family. `importance` and `kept` are sums over layers.
    """

    patterns: str
    share: float
    importance: float
    kept: float


def prune_evenly(search: ModelSearch, targets: Targets) -> TargetResult:
    """Return a model that has one pattern family and about one sparsity in all layers that this makes faster.

    For each family in `EVEN`, the lowest sparsity of `SHARES` is found that meets the targets by estimated
    times. Families are then pruned, the one with the most retained importance first, until one meets the
    targets. To use up remaining time, the sparsity of some layers is lowered by at most one step of `SHARES`.
    Nothing is pruned if the dense model meets the targets.

    Raises
    ------
    BadInput : no family meets the targets
    """
    dense_s = search.total(search.dense_seconds(), frozenset())
    most_s = targets.most_seconds(dense_s)
    most_kept = targets.most_kept(search.workload.weights)
    if dense_s <= most_s and search.workload.weights <= most_kept:
        return result_of(search, tried_round(search, dict.fromkeys(search.options, 0)), dense_s)
    for start in _even_starts(search, most_s, most_kept):
        for share in SHARES[start.share <= SHARES][:EVEN_SHARES]:
            round_ = _even_round(search, _even_pools(search, share, start.patterns), most_s, most_kept)
            if round_ is not None:
                return replace(result_of(search, round_, dense_s), is_even=True)
    raise BadInput(
        f"even: wanted {most_s * 1e6:.1f} us or less, which none of {', '.join(EVEN)} reaches with one "
        "share in every layer; without even, layers get their own shares"
    )


def evenly_if_close(search: ModelSearch, targets: Targets) -> TargetResult:
    """Return the result of `prune_evenly` if it removes about as many weights as `prune_to_targets`.

    Otherwise return the result of `prune_to_targets`. Small layers and transposes add fixed costs to sparse
    kernels. For the same time, one sparsity in all layers can then require many more removed weights than
    sparsities by importance. The comparison uses estimated times. Models whose convolutions torch runs on
    padded images always use `prune_to_targets`: a dense convolution between sparse ones is nearly as fast.
    """
    dense_s = search.total(search.dense_seconds(), frozenset())
    most_s, most_kept = targets.most_seconds(dense_s), targets.most_kept(search.workload.weights)
    with suppress(BadInput):
        starts = [] if search.in_planes else _even_starts(search, most_s, most_kept)
        competing = _kept(search, chosen_by_time(search, {}, most_s, most_s, most_kept)) if starts else 0.0
        if starts and competing - starts[0].kept <= MOST_FEWER * search.workload.weights:
            return prune_evenly(search, targets)
    return prune_to_targets(search, targets)


def _kept(search: ModelSearch, choice: Mapping[str, int]) -> float:
    return float(sum(search.options[name].kept[place] for name, place in choice.items()))


def _even_starts(search: ModelSearch, most_s: float, most_kept: float) -> list[_EvenStart]:
    """Return an `_EvenStart` for each family that meets the targets, the one with most importance first."""
    starts = (_even_start(search, patterns, most_s, most_kept) for patterns in EVEN.values())
    return sorted((each for each in starts if each is not None), key=lambda each: -each.importance)


def _even_start(search: ModelSearch, patterns: str, most_s: float, most_kept: float) -> _EvenStart | None:
    """Return the `_EvenStart` of a family; None if no sparsity meets the targets."""
    for share in SHARES:
        choice = _allocated(search, _even_pools(search, share, patterns), {}, most_s, most_kept)
        if choice is not None:
            importance = sum(search.options[name].importance[place] for name, place in choice.items())
            return _EvenStart(patterns, float(share), float(importance), _kept(search, choice))
    return None


def _even_pools(search: ModelSearch, share: float, patterns: str) -> Pools:
    """Return the options of each layer with a sparsity of about `share` or up to one step of `SHARES` below.

    A layer stays dense if no option of the family at this sparsity is faster than dense. At the lowest
    sparsity of `SHARES`, every layer may also stay dense.
    """
    pools = {}
    for name, place in even_choice(search, share, patterns).items():
        options = search.options[name]
        allowed = options.have(lambda pattern: re.fullmatch(patterns, pattern) is not None)
        allowed &= options.kept >= options.kept[place]
        allowed &= options.kept <= (1.0 - share + STEP + NEAR) * options.kept[0]
        allowed &= options.seconds < options.seconds[0]
        allowed[0] = share <= STEP
        pools[name] = np.flatnonzero(allowed) if place else np.zeros(1, dtype=np.int64)
    return pools


def _allocated(
    search: ModelSearch, pools: Pools, scales: Scales, aim_s: float, most_kept: float
) -> dict[str, int] | None:
    """Return layer -> index of the option among `pools` that together retain most within the limits.

    Return None if no choice keeps the limits, or if all layers would be dense.

    Parameters
    ----------
    pools : layer -> indices of the allowed options
    scales : correction factors of the estimated times
    aim_s : upper limit of the end-to-end seconds
    most_kept : upper limit of the number of kept weights
    """
    sparse = frozenset(name for name, places in pools.items() if places[-1])
    menus = [
        Menu(*(column[places] for column in menu))
        for menu, places in zip(search.menus(scales), pools.values(), strict=True)
    ]
    budget = aim_s - search.around(sparse)
    if not sparse or floor_seconds(menus) > budget or sum(m.kept.min() for m in menus) > most_kept:
        return None
    try:
        picked = allocate(menus, budget, most_kept).tolist()
    except BadInput:  # each limit can be kept, but not both
        return None
    return {name: int(places[own]) for (name, places), own in zip(pools.items(), picked, strict=True)}


def _even_round(search: ModelSearch, pools: Pools, most_s: float, most_kept: float) -> Round | None:
    """Return the round with the most importance that meets the targets after pruning; None if none does.

    Only options in `pools` are used. For small models, the fastest options are pruned first; if they miss the
    targets, no others are tried. The search for large models ends at the first round that meets the targets.
    """
    scales: Scales = {name: {} for name in search.options}
    large = search.workload.weights > MOST_REFINED_WEIGHTS
    near = CLOSE_ENOUGH_LARGE if large else CLOSE_ENOUGH
    aim, found = most_s * (1.0 - 0.5 * near) if large else most_s, list[Round]()
    choice: dict[str, int] | None = {
        name: int(places[np.argmin(search.options[name].seconds[places])]) for name, places in pools.items()
    }
    if large and not math.isinf(most_s):
        probe(search, lambda likely: _allocated(search, pools, likely, aim, most_kept) or {}, scales)
        choice = _allocated(search, pools, with_likely(search, scales), aim, most_kept)
    for _ in range(FEWEST_ROUNDS + 1):
        if choice is None:
            break
        round_ = tried_round(search, choice)
        found.append(round_)
        fits = meets(round_, most_s, most_kept)
        if (len(found) == 1 and not fits) or (fits and (large or round_.seconds >= (1.0 - near) * most_s)):
            break
        for name, seen in seen_scales(search, round_.choice, round_.tried).items():
            scales[name].update(seen)
        if not fits:
            aim *= most_s / round_.seconds
        choice = _allocated(search, pools, with_likely(search, scales), aim, most_kept)
    if len(found) > 1:
        found.append(among_tried(search, found, most_s, most_kept))
    fitting = [round_ for round_ in found if meets(round_, most_s, most_kept)]
    if not fitting:
        return None
    best = max(fitting, key=lambda r: r.importance)
    return with_fewer_sparse(search, best, most_s, most_kept) if search.in_planes else best
