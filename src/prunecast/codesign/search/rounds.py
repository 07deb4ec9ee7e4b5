"""Rounds of a search: layers pruned to chosen options, predicted, improved, and written as a result."""

from contextlib import suppress
from typing import NamedTuple, Self

import numpy as np

from prunecast.codesign.search.allocation import OptionValues, allocate, floor_seconds, totals
from prunecast.codesign.search.floor import Scales, seen_scales
from prunecast.codesign.search.model_search import ModelSearch, Tried
from prunecast.codesign.search.options import sparse_layers
from prunecast.codesign.search.targets import ChosenLayer, FrontPoint, Limits, TargetResult
from prunecast.errors import BadInput

CLOSE_ENOUGH, CLOSE_ENOUGH_LARGE = 0.004, 0.01
"""Tolerances for small and for large models. The rounds end at a result whose time is below the limit by at
most this share of the limit."""
FEWEST_ROUNDS = 5
"""Least number of rounds: the first round chooses by the times of typical layers, and later rounds by the
predicted times of the layers themselves."""
MOST_REFINED_WEIGHTS = 2**29
"""Larger models stop at the first choice that meets the target, since a round predicts hundreds of layers."""
FRONT_SHARES = np.round(np.arange(0.25, 0.9501, 0.05), 2)
"""Times for which the Pareto front has a pruned model, divided by the time of the dense model. Behind them
the front ends at the dense model itself."""
LEAST_FACTOR = 0.5
"""Least factor for the savings of the Pareto front. A result that saves less beside the front is nearly
dense, or was chosen for a sparsity and not for its time. Kind: choice."""


class Round(NamedTuple):
    """One round of the search: layer -> index of its option, and the predictions for these options.

    `seconds` are end to end; `importance` and `kept` are sums over layers.
    """

    choice: dict[str, int]
    tried: dict[str, Tried]
    seconds: float
    importance: float
    kept: float

    @classmethod
    def of(cls, search: ModelSearch, choice: dict[str, int]) -> Self:
        """Prune the layers to the chosen options and predict them and the model by the requested engine."""
        tried = search.realise(choice)
        seconds = search.total({name: t.seconds for name, t in tried.items()}, search.sparse(choice))
        importance = sum(t.importance for t in tried.values())
        return cls(choice, tried, seconds, importance, sum(t.kept for t in tried.values()))


class Rounds:
    """The rounds of one search, and the correction factors of estimated times that follow from them.

    Parameters
    ----------
    search : search of the model
    limits : limits of the pruned model
    """

    def __init__(self, search: ModelSearch, limits: Limits) -> None:
        self.search, self.limits = search, limits
        self.is_large = search.workload.weights > MOST_REFINED_WEIGHTS
        self.near = CLOSE_ENOUGH_LARGE if self.is_large else CLOSE_ENOUGH
        self.scales: Scales = {name: {} for name in search.options}
        self.found: list[Round] = []
        self.aim_s = limits.seconds
        """Time budget of the next allocation."""
        self.restart()

    def restart(self) -> None:
        """Set the time budget of the next allocation to that of a first round."""
        # Aim slightly below the target: a result just above it would cost a large model another round.
        self.aim_s = self.limits.seconds * (1.0 - 0.5 * self.near if self.is_large else 1.0)

    def add(self, choice: dict[str, int]) -> Round:
        """Prune and predict the model with `choice` (layer -> index of its option) and return this round.

        The predicted times of its sparse layers correct later estimates.
        """
        round_ = Round.of(self.search, choice)
        self.found.append(round_)
        for name, seen in seen_scales(self.search, choice, round_.tried).items():
            self.scales[name].update(seen)
        return round_

    def is_close(self, round_: Round) -> bool:
        """Return True if a round uses all but a small share of the time limit."""
        return round_.seconds >= (1.0 - self.near) * self.limits.seconds

    def best(self) -> Round | None:
        """Return the round with the most importance that keeps the limits; None if no round does.

        After several rounds, first run another one, which chooses among the options that they tried
        (`among_tried`) and is also a candidate.
        """
        if len(self.found) > 1:
            with suppress(BadInput):  # the options that were tried need not keep both limits
                self.found.append(among_tried(self.search, self.found, self.limits))
        fitting = [each for each in self.found if self.limits.are_met(each.seconds, each.kept)]
        if not fitting:
            return None
        best = max(fitting, key=lambda round_: round_.importance)
        return with_fewer_sparse(self.search, best, self.limits) if self.search.in_planes else best


def among_tried(search: ModelSearch, found: list[Round], limits: Limits) -> Round:
    """Allocate once more, among the options that earlier rounds tried, and return this last round.

    The predicted times of these options are known, so that little of the time budget remains unused.
    """
    pools = {name: sorted({r.choice[name] for r in found}) for name in search.options}
    seen = {(name, r.choice[name]): r.tried[name] for r in found for name in search.options}
    layers = []
    for name, places in pools.items():
        own = [seen[name, place] for place in places]
        values = OptionValues(*np.array([(t.seconds, t.importance, t.kept) for t in own], dtype=float).T)
        values.seconds[np.array(places) == 0] -= search.saved_by_dense.get(name, 0.0)
        layers.append(values)
    rest_s = search.rest_seconds(search.sparse(found[-1].choice))
    picked = allocate(layers, max(limits.seconds - rest_s, floor_seconds(layers)), limits.kept).tolist()
    chosen = zip(pools.items(), picked, strict=True)
    return Round.of(search, {name: places[place] for (name, places), place in chosen})


def with_fewer_sparse(search: ModelSearch, best: Round, limits: Limits) -> Round:
    """Make sparse layers dense, one by one, as long as the targets are met; return the last round.

    The estimated time of a dense layer assumes that its neighbours are sparse. Several dense neighbours need
    less time than the sum of their estimates. The model of `best` can therefore be faster than the targets
    require; the time left is used for more dense layers.
    """
    while True:
        fewer = (Round.of(search, {**best.choice, name: 0}) for name in sorted(sparse_layers(best.choice)))
        fitting = [r for r in fewer if limits.are_met(r.seconds, r.kept)]
        if not fitting:
            return best
        best = max(fitting, key=lambda r: r.importance)


def result_of(search: ModelSearch, best: Round, dense_s: float) -> TargetResult:
    """Return the result of a search whose best round is `best`.

    `dense_s` is the end-to-end time of the dense model in seconds.
    """
    layers = tuple(_chosen(search, name, best) for name in search.options)
    time = search.time({name: t.seconds for name, t in best.tried.items()}, search.sparse(best.choice))
    weights = sum(options[0].kept for options in search.options.values())
    return TargetResult(
        layers=layers,
        time=time,
        seconds=best.seconds,
        dense_seconds=dense_s,
        retained_importance=best.importance / search.importance,
        sparsity=1.0 - best.kept / weights,
        gpu_bytes=search.engine.gpu.dram_bytes,
        dense_memory=search.memory({}),
        memory=search.memory({name: t.weight_bytes for name, t in best.tried.items()}),
        front=_front(search, best, dense_s),
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
        members=search.members(name, option),
    )


def _front(search: ModelSearch, best: Round, dense_s: float) -> tuple[FrontPoint, ...]:
    """Return the Pareto front: allocations at about the times `FRONT_SHARES` that the model can reach, then
    the dense model.

    Only the options of `best` were pruned and predicted. An allocation prefers options whose estimates are
    too fast. If the front promises more importance than `best` reaches in its time, all savings of time are
    scaled by one factor such that it leads through `best`.
    """
    layers = search.option_values(seen_scales(search, best.choice, best.tried))
    others = search.rest_seconds(search.all_sparse)
    total = totals(layers, np.zeros(len(layers), dtype=np.int64))
    budgets = FRONT_SHARES * dense_s - others
    found = [totals(layers, allocate(layers, each)) for each in budgets if each >= floor_seconds(layers)]
    seconds = np.array([*(each.seconds + others for each in found), dense_s])
    found.append(total)
    saved = dense_s - np.interp(best.importance, [each.importance for each in found], seconds)
    factor = (dense_s - best.seconds) / saved if saved > 0.0 else 1.0
    if not LEAST_FACTOR < factor < 1.0:
        factor = 1.0
    return tuple(
        FrontPoint(float(time), each.importance / total.importance, 1.0 - each.kept / total.kept)
        for time, each in zip(dense_s - factor * (dense_s - seconds), found, strict=True)
    )
