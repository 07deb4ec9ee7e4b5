"""`prune_evenly`: prune all layers to one pattern family and about one sparsity (share of removed weights).

`evenly_if_close` selects either `prune_evenly` or `prune_to_targets`, in which each layer has its own
pattern and sparsity.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from typing import NamedTuple

import numpy as np

from prunecast.codesign.search.allocation import ChoiceArray, OptionValues, Totals, allocate, totals
from prunecast.codesign.search.floor import Scales, probe, with_likely
from prunecast.codesign.search.model_search import ModelSearch
from prunecast.codesign.search.rounds import FEWEST_ROUNDS, Round, Rounds, result_of
from prunecast.codesign.search.target import chosen_by_time, prune_to_targets
from prunecast.codesign.search.targets import ONE_SHARE, Limits, TargetResult, Targets
from prunecast.codesign.search.yardsticks import (
    NEAR,
    SHARES,
    STEP,
    estimated_seconds,
    even_choice,
    first_share,
    own_choice,
)
from prunecast.errors import BadInput

EVEN: Mapping[str, str] = {
    "2:4": "2:4",
    "tvw": "tvw:.*",
    "guided tiles": "atp:.*guided.*",
    "tiles": "atp:[^:]*",
}
"""Pattern family -> regular expression of its pattern strings; the families that `prune_evenly` tries."""
MOST_FEWER = 0.05
"""Largest share of all weights that `prune_evenly` may remove in addition to those that `prune_to_targets`
removes, for its result to be preferred. Kind: choice.

On the bundled language model, one sparsity in all layers lost less accuracy than sparsities by importance if
it removed 3 percentage points more weights, and more accuracy if it removed 6 percentage points more."""
EVEN_SHARES = 3
"""Maximum number of sparsities of a family to which the model is pruned, until one meets the targets. Kind:
choice."""
Pools = Mapping[str, ChoiceArray]
"""Layer -> indices of the options among which one may be chosen for the layer, ascending."""


class _EvenStart(NamedTuple):
    """The lowest sparsity with which a pattern family meets the targets by estimated times.

    `pools` are those of this sparsity and of the next higher ones, at most `EVEN_SHARES`.
    """

    pools: Sequence[Pools]
    totals: Totals


def prune_evenly(search: ModelSearch, targets: Targets) -> TargetResult:
    """Return a model with one pattern family and about one sparsity in all layers that are pruned.

    Layers stay dense where the pass is then faster (`even_choice`). For each family in `EVEN`, the lowest
    sparsity of `SHARES` is found that meets the targets by estimated times. Families are then pruned, the one
    with the most retained importance first, until one meets the targets. To use up remaining time, the
    sparsity of some layers is lowered by at most one step of `SHARES`. Nothing is pruned if the dense model
    meets the targets.

    Raises
    ------
    BadInput : no family meets the targets
    """
    limits = search.limits(targets)
    if limits.are_met(limits.dense_s, search.workload.weights):
        return result_of(search, Round.of(search, dict.fromkeys(search.options, 0)), limits.dense_s)
    for start in _even_starts(search, limits):
        for pools in start.pools:
            round_ = _even_round(search, pools, limits)
            if round_ is not None:
                return replace(result_of(search, round_, limits.dense_s), offered=ONE_SHARE)
    raise BadInput(
        f"even: wanted {limits.seconds * 1e6:.1f} us or less, which none of {', '.join(EVEN)} reaches with "
        "one share in every layer; without even, layers get their own shares"
    )


def evenly_if_close(search: ModelSearch, targets: Targets) -> TargetResult:
    """Return the result of `prune_evenly` if it removes about as many weights as `prune_to_targets`.

    Otherwise return the result of `prune_to_targets`. Small layers and transposes add fixed costs to sparse
    kernels. For the same time, one sparsity in all layers can then require many more removed weights than
    sparsities by importance. The comparison uses estimated times. Models whose convolutions torch runs on
    padded images always use `prune_to_targets`: a dense convolution between sparse ones is nearly as fast.
    """
    limits = search.limits(targets)
    with suppress(BadInput):
        starts = [] if search.in_planes else _even_starts(search, limits)
        if starts:
            competing = _totals(search, chosen_by_time(search, {}, limits.seconds, limits))
            if competing.kept - starts[0].totals.kept <= MOST_FEWER * search.workload.weights:
                return prune_evenly(search, targets)
    return prune_to_targets(search, targets)


def _totals(search: ModelSearch, choice: Mapping[str, int]) -> Totals:
    return totals(search.option_values({}), np.array([*choice.values()]))


def _even_starts(search: ModelSearch, limits: Limits) -> list[_EvenStart]:
    """Return an `_EvenStart` for each family that meets the targets, the one with most importance first.

    Layers are dense where the pass is then faster. If no sparsity then meets the targets, as may be with a
    target for the number of weights, layers are dense only where they are faster themselves.
    """
    found = []
    for patterns in EVEN.values():
        by_pass = _even_start(search, patterns, limits, by_pass=True)
        start = by_pass or _even_start(search, patterns, limits, by_pass=False)
        found += [] if start is None else [start]
    return sorted(found, key=lambda each: -each.totals.importance)


def _even_start(search: ModelSearch, patterns: str, limits: Limits, *, by_pass: bool) -> _EvenStart | None:
    """Return the `_EvenStart` of a family, or None if no sparsity meets the targets.

    Parameters
    ----------
    patterns : regular expression of the pattern strings of the family
    by_pass : True to choose dense layers by the time of the pass, False by the time of each layer
    """
    choose = cache(partial(even_choice if by_pass else own_choice, search, patterns))
    shares = SHARES.tolist()
    first = first_share(lambda share: estimated_seconds(search, choose(share)) <= limits.seconds)
    for place in range(first, len(shares)):
        choice = _allocated(
            search, _even_pools(search, patterns, shares[place], choose), {}, limits.seconds, limits
        )
        if choice is not None:
            own = shares[place : place + EVEN_SHARES]
            pools = [_even_pools(search, patterns, share, choose) for share in own]
            return _EvenStart(pools, _totals(search, choice))
    return None


def _even_pools(
    search: ModelSearch, patterns: str, share: float, choose: Callable[[float], Mapping[str, int]]
) -> Pools:
    """Return layer -> its options with a sparsity of about `share`, or up to one step of `SHARES` below it.

    At the lowest sparsity of `SHARES`, every layer may also stay dense.

    Parameters
    ----------
    patterns : regular expression of the pattern strings of the family
    choose : returns layer -> index of its fastest option of a sparsity, or 0 (dense)
    """
    pools = {}
    for name, place in choose(share).items():
        options = search.options[name]
        allowed = options.matching(patterns) & (options.seconds < options.seconds[0])
        allowed &= options.kept >= options.kept[place]
        allowed &= options.kept <= (1.0 - share + STEP + NEAR) * options.kept[0]
        allowed[place] = True
        allowed[0] = share <= STEP
        pools[name] = np.flatnonzero(allowed) if place else np.zeros(1, dtype=np.int64)
    return pools


def _fastest(search: ModelSearch, pools: Pools) -> dict[str, int]:
    """Return layer -> index of its fastest option among `pools`."""
    return {
        name: int(places[np.argmin(search.options[name].seconds[places])]) for name, places in pools.items()
    }


def _allocated(
    search: ModelSearch, pools: Pools, scales: Scales, aim_s: float, limits: Limits
) -> dict[str, int] | None:
    """Return layer -> index of its option, for the choice that retains most importance within the limits.

    Return None if no choice keeps the limits, or if all layers would be dense.

    Parameters
    ----------
    pools : layer -> indices of the allowed options
    scales : correction factors of the estimated times
    aim_s : time budget in place of that of `limits`
    """
    # All options of a family fuse the same operations, so any choice fuses what the fastest options fuse
    sparse = search.sparse(_fastest(search, pools))
    if not sparse.names:
        return None
    layers = [
        OptionValues(*(column[places] for column in values))
        for values, places in zip(search.option_values(scales), pools.values(), strict=True)
    ]
    if sum(each.kept.min() for each in layers) > limits.kept:
        return None
    try:
        picked = allocate(layers, aim_s - search.rest_seconds(sparse), limits.kept).tolist()
    except BadInput:  # no choice keeps both limits
        return None
    return {name: int(places[own]) for (name, places), own in zip(pools.items(), picked, strict=True)}


def _even_round(search: ModelSearch, pools: Pools, limits: Limits) -> Round | None:
    """Return the round with the most retained importance that meets the targets; None if no round does.

    A round prunes all layers to chosen options and predicts them. Only options in `pools` are used. For small
    models, the first round uses the fastest options. If the first round misses the targets, no other options
    are tried. The search for large models ends at the first round that meets the targets.
    """
    rounds = Rounds(search, limits)

    def allocated(scales: Scales) -> dict[str, int] | None:
        return _allocated(search, pools, scales, rounds.aim_s, limits)

    choice: dict[str, int] | None = _fastest(search, pools)
    if rounds.is_large and not math.isinf(limits.seconds):
        probe(search, lambda likely: allocated(likely) or {}, rounds.scales)
        choice = allocated(with_likely(search, rounds.scales))
    for done in range(FEWEST_ROUNDS + 1):
        if choice is None:
            break
        round_ = rounds.add(choice)
        fits = limits.are_met(round_.seconds, round_.kept)
        if (not done and not fits) or (fits and (rounds.is_large or rounds.is_close(round_))):
            break
        if not fits:
            rounds.aim_s *= limits.seconds / round_.seconds
        choice = allocated(with_likely(search, rounds.scales))
    return rounds.best()
