"""`prune_to_targets`: select the pattern, density and kernel of every layer so that the model meets its
targets.

1. Every layer gets a menu of options with times, mostly closed-form, and exact retained importance.
2. The time budget is allocated over the layers (`allocation.py`).
3. The chosen layers are really pruned, planned and predicted by the requested engine.
4. If these times differ from those of the menus, the menus are scaled by the ratio and step 2 is repeated,
   until the model is closely below its target (`CLOSE_ENOUGH`). The best result that meets all targets
   is returned.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from prunecast.codesign.search.allocation import Menu, allocate, floor_seconds, totals
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
from prunecast.codesign.search.yardsticks import SHARES, even_choice
from prunecast.errors import BadInput

CLOSE_ENOUGH, CLOSE_ENOUGH_LARGE = 0.004, 0.01
"""Shares below the target within which a result ends the rounds, for small and for large models."""
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
"""Pattern family -> regular expression of its pattern strings, for one share in every layer."""


class _Round(NamedTuple):
    """A choice and its results."""

    choice: dict[str, int]
    tried: dict[str, Tried]
    seconds: float
    importance: float
    kept: float


def prune_to_targets(search: ModelSearch, targets: Targets) -> TargetResult:
    """Return the best options of the layers; `search` must have been prepared.

    Raises
    ------
    BadInput : a target below the floor (the message gives the floor and its parts), or targets that exclude
        each other
    """
    dense_s = search.total(search.dense_seconds(), frozenset())
    most_s = targets.most_seconds(dense_s)
    most_kept = targets.most_kept(search.workload.weights)
    best = _search(search, most_s, most_kept)
    return _result(search, best, dense_s)


def prune_evenly(search: ModelSearch, targets: Targets) -> TargetResult:
    """Return one pattern family and one removed share for every layer where that saves time.

    Each family of `EVEN` gets the least share of `SHARES` that meets the targets. The family that retains
    the most importance is returned. Nothing is pruned where the dense model meets the targets.

    Raises
    ------
    BadInput : no family meets the targets
    """
    dense_s = search.total(search.dense_seconds(), frozenset())
    most_s = targets.most_seconds(dense_s)
    most_kept = targets.most_kept(search.workload.weights)
    if dense_s <= most_s and search.workload.weights <= most_kept:
        return _result(search, _tried(search, dict.fromkeys(search.options, 0)), dense_s)
    tried = (_even_round(search, patterns, most_s, most_kept) for patterns in EVEN.values())
    found = [round_ for round_ in tried if round_ is not None]
    if not found:
        raise BadInput(
            f"even: wanted {most_s * 1e6:.1f} us or less, which none of {', '.join(EVEN)} reaches with one "
            "share in every layer; without even, layers get their own shares"
        )
    return _result(search, max(found, key=lambda r: r.importance), dense_s)


def _even_round(search: ModelSearch, patterns: str, most_s: float, most_kept: float) -> _Round | None:
    """Return the least share of a family that meets the targets, None if no share does."""
    for share in SHARES:
        choice = even_choice(search, float(share), patterns)
        if sparse_layers(choice):
            round_ = _tried(search, choice)
            if round_.seconds <= most_s and round_.kept <= most_kept:
                return round_
    return None


def _search(search: ModelSearch, most_s: float, most_kept: float) -> _Round:
    """Return the round of most importance that meets the targets.

    Each round chooses options by the times of the menus, corrected by `scales` (predicted over menu's seconds
    of options that earlier rounds chose), predicts the chosen layers, and moves the time that it aims at.
    """
    scales: Scales = {name: {} for name in search.options}
    large = search.workload.weights > MOST_REFINED_WEIGHTS
    fewest, near = (1, CLOSE_ENOUGH_LARGE) if large else (FEWEST_ROUNDS, CLOSE_ENOUGH)
    # Aim slightly lower: a result just above the target would cost a large model another round.
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
            # Lower by the excess, higher by half of the unused time: menus tend to underestimate times
            off = most_s / round_.seconds
            aim = min(aim * (off if off < 1.0 else math.sqrt(off)), most_s)
    if len(found) > 1:
        found.append(_among_tried(search, found, most_s, most_kept))
    fitting = [r for r in found if r.seconds <= most_s and r.kept <= most_kept * (1.0 + 1e-9)]
    if not fitting:
        least = min(found, key=lambda r: r.seconds)
        raise BadInput(
            f"wanted {most_s * 1e6:.1f} us or less, the best of {len(found)} rounds takes "
            f"{least.seconds * 1e6:.1f} us"
        )
    best = max(fitting, key=lambda r: r.importance)
    return _with_fewer_sparse(search, best, most_s, most_kept) if search.in_planes else best


def _with_fewer_sparse(search: ModelSearch, best: _Round, most_s: float, most_kept: float) -> _Round:
    """Make sparse layers dense, one by one, while the targets are met.

    Menus contain what each layer costs if it is dense between sparse ones. Several dense neighbours cost less
    than the sum, so that an allocation can leave time unused.
    """
    while True:
        fewer = (_tried(search, {**best.choice, name: 0}) for name in sorted(sparse_layers(best.choice)))
        fitting = [r for r in fewer if r.seconds <= most_s and r.kept <= most_kept * (1.0 + 1e-9)]
        if not fitting:
            return best
        best = max(fitting, key=lambda r: r.importance)


def _among_tried(search: ModelSearch, found: list[_Round], most_s: float, most_kept: float) -> _Round:
    """Allocate once more among the tried options. Their times are known, so that little of the budget is
    unused.
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
    """Allocate the part of `aim_s` that remains after all work outside of the options.

    `aim_s` is not lowered below the middle between the floor and the target `most_s`. The time of transposes
    depends on which layers stay dense; the first pass assumes that none does. Of convolutions in planes it is
    the better assumption: dense ones between them stay there.
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
    """Return the retained part of each matrix of a launch."""
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
    """Return allocations for a series of times, without those below the floor."""
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
