"""Rounds of a search: layers pruned to chosen options, predicted, improved, and written as a result."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from prunecast.codesign.search.allocation import Menu, allocate, floor_seconds, totals
from prunecast.codesign.search.floor import seen_scales, sparse_layers
from prunecast.codesign.search.model_search import ModelSearch, Tried
from prunecast.codesign.search.options import Option, RunAs
from prunecast.codesign.search.targets import ChosenLayer, ChosenMember, FrontPoint, TargetResult

CLOSE_ENOUGH, CLOSE_ENOUGH_LARGE = 0.004, 0.01
"""The rounds end at a result that is below the target by at most this share, for small and large models."""
FEWEST_ROUNDS = 5
"""Least number of rounds: the first choice is based on typical times, later ones on those of the layers."""
MOST_REFINED_WEIGHTS = 2**29
"""Larger models stop at the first choice that meets the target, since a round predicts hundreds of layers."""
FRONT_SHARES = np.round(np.arange(0.25, 1.0001, 0.05), 2)
"""Times of the Pareto front, as shares of the dense model's."""


class Round(NamedTuple):
    """One round of the search: layer -> index of its option, and the predictions for these options.

    `seconds` are end to end; `importance` and `kept` are sums over layers.
    """

    choice: dict[str, int]
    tried: dict[str, Tried]
    seconds: float
    importance: float
    kept: float


def tried_round(search: ModelSearch, choice: dict[str, int]) -> Round:
    """Prune the layers to the chosen options and predict them and the model by the requested engine."""
    tried = search.realise(choice)
    own = {name: t.seconds for name, t in tried.items()}
    seconds = search.total(own, sparse_layers(choice), search.unfused(choice))
    importance = sum(t.importance for t in tried.values())
    return Round(choice, tried, seconds, importance, sum(t.kept for t in tried.values()))


def meets(round_: Round, most_s: float, most_kept: float) -> bool:
    """Return whether a round needs at most `most_s` seconds and keeps at most `most_kept` weights."""
    return round_.seconds <= most_s and round_.kept <= most_kept * (1.0 + 1e-9)


def among_tried(search: ModelSearch, found: list[Round], most_s: float, most_kept: float) -> Round:
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
    return tried_round(search, {name: places[place] for (name, places), place in chosen})


def with_fewer_sparse(search: ModelSearch, best: Round, most_s: float, most_kept: float) -> Round:
    """Make sparse layers dense, one by one, as long as the targets are met; return the last round.

    The estimated time of a dense layer assumes that its neighbours are sparse. Several dense neighbours need
    less time than the sum of their estimates, so that an allocation can leave time unused.
    """
    while True:
        fewer = (tried_round(search, {**best.choice, name: 0}) for name in sorted(sparse_layers(best.choice)))
        fitting = [r for r in fewer if meets(r, most_s, most_kept)]
        if not fitting:
            return best
        best = max(fitting, key=lambda r: r.importance)


def result_of(search: ModelSearch, best: Round, dense_s: float) -> TargetResult:
    """Return the result of a search that ends with the round `best`; the dense model takes `dense_s`."""
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


def _chosen(search: ModelSearch, name: str, best: Round) -> ChosenLayer:
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
