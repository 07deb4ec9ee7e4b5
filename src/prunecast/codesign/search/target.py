"""`prune_to_targets`: select pattern, density and kernel of every layer so that a model meets its targets.

1. Every layer gets a menu: a list of options with estimated times (mostly closed-form) and their retained
   importance.
2. The time budget is allocated over the layers, with one option for each (`allocation.py`).
3. Every layer is pruned to its option, planned, and predicted by the requested engine.
4. If these times differ from the estimates, the estimates are multiplied by the ratio, and steps 2 and 3 are
   repeated until the model is closely below its target (`CLOSE_ENOUGH`). The best result that meets all
   targets is returned.

`prune_evenly` gives all layers one pattern family and about one sparsity (share of removed weights) instead.
"""

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from prunecast.codesign.search.allocation import ChoiceArray, Menu, allocate, floor_seconds, totals
from prunecast.codesign.search.floor import (
    Scales,
    check_floor,
    probe,
    seen_scales,
    sparse_layers,
    with_likely,
)
from prunecast.codesign.search.model_search import ModelSearch, Tried
from prunecast.codesign.search.options import Option, RunAs
from prunecast.codesign.search.targets import ChosenLayer, ChosenMember, FrontPoint, TargetResult, Targets
from prunecast.codesign.search.yardsticks import NEAR, SHARES, STEP, even_choice
from prunecast.errors import BadInput

CLOSE_ENOUGH, CLOSE_ENOUGH_LARGE = 0.004, 0.01
"""The rounds end at a result that is below the target by at most this share, for small and large models."""
ROUNDS = 10
FEWEST_ROUNDS = 5
"""Least number of rounds: the first choice is based on typical times, later ones on those of the layers."""
MOST_REFINED_WEIGHTS = 2**29
"""Larger models stop at the first choice that meets the target, since a round predicts hundreds of layers."""
FRONT_SHARES = np.round(np.arange(0.25, 1.0001, 0.05), 2)
"""Times of the Pareto front, as shares of the dense model's."""


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


class _Round(NamedTuple):
    """One round of the search: layer -> index of its option, and the predictions for these options.

    `seconds` are end to end; `importance` and `kept` are sums over layers.
    """

    choice: dict[str, int]
    tried: dict[str, Tried]
    seconds: float
    importance: float
    kept: float


def prune_to_targets(search: ModelSearch, targets: Targets) -> TargetResult:
    """Return the model that meets the targets with the most retained importance that was found.

    Each layer gets its own pattern and sparsity. `search` must have been prepared.

    Raises
    ------
    BadInput : a target is below the floor, the least time that pruning can reach (the message gives its
        parts), no round met the targets, or they exclude each other
    """
    dense_s = search.total(search.dense_seconds(), frozenset())
    most_s = targets.most_seconds(dense_s)
    most_kept = targets.most_kept(search.workload.weights)
    best = _search(search, most_s, most_kept)
    return _result(search, best, dense_s)


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
        return _result(search, _tried(search, dict.fromkeys(search.options, 0)), dense_s)
    for start in _even_starts(search, most_s, most_kept):
        for share in SHARES[start.share <= SHARES][:EVEN_SHARES]:
            round_ = _even_round(search, _even_pools(search, share, start.patterns), most_s, most_kept)
            if round_ is not None:
                return replace(_result(search, round_, dense_s), is_even=True)
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
        competing = _kept(search, _choose(search, {}, most_s, most_s, most_kept)) if starts else 0.0
        if starts and competing - starts[0].kept <= MOST_FEWER * search.workload.weights:
            return prune_evenly(search, targets)
    return prune_to_targets(search, targets)


def _kept(search: ModelSearch, choice: Mapping[str, int]) -> float:
    return float(sum(search.options[name].kept[place] for name, place in choice.items()))


class _EvenStart(NamedTuple):
    """The lowest sparsity (`share`) with which a pattern family meets the targets by estimated times.

    `patterns` is the regular expression of the family. `importance` and `kept` are sums over layers.
    """

    patterns: str
    share: float
    importance: float
    kept: float


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


def _even_round(search: ModelSearch, pools: Pools, most_s: float, most_kept: float) -> _Round | None:
    """Return the round with the most importance that meets the targets after pruning; None if none does.

    Only options in `pools` are used. For small models, the fastest options are pruned first; if they miss the
    targets, no others are tried. The search for large models ends at the first round that meets the targets.
    """
    scales: Scales = {name: {} for name in search.options}
    large = search.workload.weights > MOST_REFINED_WEIGHTS
    near = CLOSE_ENOUGH_LARGE if large else CLOSE_ENOUGH
    aim, found = most_s * (1.0 - 0.5 * near) if large else most_s, list[_Round]()
    choice: dict[str, int] | None = {
        name: int(places[np.argmin(search.options[name].seconds[places])]) for name, places in pools.items()
    }
    if large and not math.isinf(most_s):
        probe(search, lambda likely: _allocated(search, pools, likely, aim, most_kept) or {}, scales)
        choice = _allocated(search, pools, with_likely(search, scales), aim, most_kept)
    for _ in range(FEWEST_ROUNDS + 1):
        if choice is None:
            break
        round_ = _tried(search, choice)
        found.append(round_)
        fits = _meets(round_, most_s, most_kept)
        if (len(found) == 1 and not fits) or (fits and (large or round_.seconds >= (1.0 - near) * most_s)):
            break
        for name, seen in seen_scales(search, round_.choice, round_.tried).items():
            scales[name].update(seen)
        if not fits:
            aim *= most_s / round_.seconds
        choice = _allocated(search, pools, with_likely(search, scales), aim, most_kept)
    if len(found) > 1:
        found.append(_among_tried(search, found, most_s, most_kept))
    fitting = [round_ for round_ in found if _meets(round_, most_s, most_kept)]
    if not fitting:
        return None
    best = max(fitting, key=lambda r: r.importance)
    return _with_fewer_sparse(search, best, most_s, most_kept) if search.in_planes else best


def _meets(round_: _Round, most_s: float, most_kept: float) -> bool:
    return round_.seconds <= most_s and round_.kept <= most_kept * (1.0 + 1e-9)


def _search(search: ModelSearch, most_s: float, most_kept: float) -> _Round:
    """Return the round with the most importance that meets the targets.

    Each round chooses options by their estimated times, prunes the layers to them and predicts these. The
    ratios of predicted to estimated seconds correct the estimates of later rounds (`scales`). The time budget
    of the next allocation (`aim`) is changed by the amount by which the round missed the target.
    """
    scales: Scales = {name: {} for name in search.options}
    large = search.workload.weights > MOST_REFINED_WEIGHTS
    fewest, near = (1, CLOSE_ENOUGH_LARGE) if large else (FEWEST_ROUNDS, CLOSE_ENOUGH)
    # Aim slightly below the target: a result just above it would cost a large model another round.
    aim, found = most_s * (1.0 - 0.5 * near) if large else most_s, []
    if large and not math.isinf(most_s):
        probe(search, lambda likely: _choose(search, likely, aim, most_s, most_kept), scales)
    for _ in range(ROUNDS):
        likely = with_likely(search, scales) if large else scales
        choice = _choose(search, likely, aim, most_s, most_kept)
        round_ = _tried(search, choice)
        found.append(round_)
        close = (1.0 - near) * most_s <= round_.seconds <= most_s
        is_dense = not sparse_layers(choice)
        if (is_dense and round_.seconds <= most_s) or (close and len(found) >= fewest) or math.isinf(most_s):
            break
        for name, seen in seen_scales(search, round_.choice, round_.tried).items():
            scales[name].update(seen)
        if len(found) > 2 or is_dense:
            # Lower the budget by the excess, or raise it by half of the unused time (as a ratio, its root):
            # estimates tend to be too low
            off = most_s / round_.seconds
            aim = min(aim * (off if off < 1.0 else math.sqrt(off)), most_s)
    if len(found) > 1:
        found.append(_among_tried(search, found, most_s, most_kept))
    fitting = [r for r in found if _meets(r, most_s, most_kept)]
    if not fitting:
        least = min(found, key=lambda r: r.seconds)
        raise BadInput(
            f"wanted {most_s * 1e6:.1f} us or less, the best of {len(found)} rounds takes "
            f"{least.seconds * 1e6:.1f} us"
        )
    best = max(fitting, key=lambda r: r.importance)
    return _with_fewer_sparse(search, best, most_s, most_kept) if search.in_planes else best


def _with_fewer_sparse(search: ModelSearch, best: _Round, most_s: float, most_kept: float) -> _Round:
    """Make sparse layers dense, one by one, as long as the targets are met; return the last round.

    The estimated time of a dense layer assumes that its neighbours are sparse. Several dense neighbours need
    less time than the sum of their estimates, so that an allocation can leave time unused.
    """
    while True:
        fewer = (_tried(search, {**best.choice, name: 0}) for name in sorted(sparse_layers(best.choice)))
        fitting = [r for r in fewer if _meets(r, most_s, most_kept)]
        if not fitting:
            return best
        best = max(fitting, key=lambda r: r.importance)


def _among_tried(search: ModelSearch, found: list[_Round], most_s: float, most_kept: float) -> _Round:
    """Allocate once more among the options that earlier rounds tried, and return that round.

    The predicted times of these options are known, so that little of the time budget remains unused.
    """
    pools = {name: sorted({r.choice[name] for r in found}) for name in search.options}
    seen = {(name, r.choice[name]): r.tried[name] for r in found for name in search.options}
    menus = []
    for name, places in pools.items():
        own = [seen[name, place] for place in places]
        menu = Menu(*np.array([(t.seconds, t.importance, t.kept) for t in own], dtype=float).T)
        menu.seconds[np.array(places) == 0] -= search.saved_by_dense.get(name, 0.0)
        menus.append(menu)
    last = found[-1].choice
    around = search.around(sparse_layers(last), search.unfused(last))
    budget = max(most_s - around, floor_seconds(menus))
    picked = allocate(menus, budget, most_kept).tolist()
    chosen = zip(pools.items(), picked, strict=True)
    return _tried(search, {name: places[place] for (name, places), place in chosen})


def _choose(
    search: ModelSearch,
    scales: Mapping[str, Mapping[RunAs, float]],
    aim_s: float,
    most_s: float,
    most_kept: float,
) -> dict[str, int]:
    """Return layer -> index of its option for an end-to-end time budget of `aim_s`.

    The time of the model outside of the layers is subtracted first. The rest is at least the middle between
    the fastest possible time of the layers and the time that the target `most_s` leaves to them.

    The time of transposes depends on the layers that stay dense. The first allocation assumes that no layer
    does, and the second one uses the dense layers of the first. For convolutions on padded images, the
    first assumption is better, since dense ones keep that layout; there is one allocation only.
    """
    menus = search.menus(scales)
    if math.isinf(aim_s):
        return dict(zip(search.options, allocate(menus, math.inf, most_kept).tolist(), strict=True))
    floor = floor_seconds(menus)
    sparse, unfused = frozenset(search.options), frozenset[str]()
    # Check the floor here: it is a lower bound only while all layers count as sparse.
    check_floor(search, menus, search.around(sparse), most_s)
    for _ in range(1 if search.in_planes else 2):
        around = search.around(sparse, unfused)
        budget = max(aim_s - around, 0.5 * (floor + most_s - around), floor)
        choice = dict(zip(search.options, allocate(menus, budget, most_kept).tolist(), strict=True))
        sparse, unfused = sparse_layers(choice), search.unfused(choice)
    return choice


def _tried(search: ModelSearch, choice: dict[str, int]) -> _Round:
    tried = search.realise(choice)
    own = {name: t.seconds for name, t in tried.items()}
    seconds = search.total(own, sparse_layers(choice), search.unfused(choice))
    importance = sum(t.importance for t in tried.values())
    return _Round(choice, tried, seconds, importance, sum(t.kept for t in tried.values()))


def _result(search: ModelSearch, best: _Round, dense_s: float) -> TargetResult:
    layers = tuple(_chosen(search, name, best) for name in search.options)
    own = {name: t.seconds for name, t in best.tried.items()}
    time = search.time(own, sparse_layers(best.choice), search.unfused(best.choice))
    total = sum(options[0].importance for options in search.options.values())
    weights = sum(options[0].kept for options in search.options.values())
    return TargetResult(
        layers=layers,
        time=time,
        seconds=best.seconds,
        dense_seconds=dense_s,
        retained_importance=best.importance / total,
        sparsity=1.0 - best.kept / weights,
        gpu_bytes=search.engine.gpu.dram_bytes,
        dense_memory=search.memory({}),
        memory=search.memory({name: t.weight_bytes for name, t in best.tried.items()}),
        front=_front(search, seen_scales(search, best.choice, best.tried), dense_s),
    )


def _chosen(search: ModelSearch, name: str, best: _Round) -> ChosenLayer:
    option, tried = search.options[name][best.choice[name]], best.tried[name]
    layer = search.workload.layers[name]
    return ChosenLayer(
        layer=name,
        m=layer.shape[0],
        k=layer.shape[1],
        n=layer.n,
        pattern=option.pattern,
        kernel=option.kernel,
        sparsity=option.sparsity,
        removed=1.0 - tried.kept / search.options[name][0].kept,
        retained_importance=tried.importance / search.options[name][0].importance,
        seconds=tried.seconds,
        dense_seconds=search.dense_seconds()[name],
        copies=layer.count,
        members=_members(search, name, option),
    )


def _members(search: ModelSearch, name: str, option: Option) -> tuple[ChosenMember, ...]:
    """Return the result for each matrix of a layer that launches several as one; empty for other layers."""
    members = search.workload.layers[name].members
    if option.pattern == "dense" or not members:
        return tuple(ChosenMember(each.name, each.shape[0], 0.0, 1.0) for each in members)
    shares = search.shares_of_members(name, option)
    return tuple(
        ChosenMember(each.name, each.shape[0], *own) for each, own in zip(members, shares, strict=True)
    )


def _front(
    search: ModelSearch, scales: Mapping[str, Mapping[RunAs, float]], dense_s: float
) -> tuple[FrontPoint, ...]:
    """Return the Pareto front: allocations at the times `FRONT_SHARES` that the model can reach."""
    menus = search.menus(scales)
    others = search.around(frozenset(search.options))
    total = totals(menus, np.zeros(len(menus), dtype=np.int64))
    points = []
    for share in FRONT_SHARES:
        budget = share * dense_s - others
        if budget < floor_seconds(menus):
            continue
        reached = totals(menus, allocate(menus, budget))
        points.append(
            FrontPoint(
                reached.seconds + others,
                reached.importance / total.importance,
                1.0 - reached.kept / total.kept,
            )
        )
    return tuple(points)
