"""`prune_to_targets`: select pattern, density and kernel of every layer so that a model meets its targets.

1. Every layer gets a list of options with estimated times (mostly closed-form) and their retained importance.
2. The time budget is allocated over the layers, with one option for each (`allocation.py`).
3. Every layer is pruned to its option, planned, and predicted by the requested engine.
4. If these times differ from the estimates, the estimates are multiplied by the ratio, and steps 2 and 3 are
   repeated until the model is closely below its target (`CLOSE_ENOUGH`). The best result that meets all
   targets is returned.
"""

import math
from collections.abc import Mapping

from prunecast.codesign.search.allocation import OptionValues, allocate, floor_seconds
from prunecast.codesign.search.floor import check_floor, fastest_options, probe, with_likely
from prunecast.codesign.search.model_search import ModelSearch, SparseLayers
from prunecast.codesign.search.options import RunAs, sparse_layers
from prunecast.codesign.search.rounds import FEWEST_ROUNDS, Round, Rounds, result_of
from prunecast.codesign.search.targets import Limits, TargetResult, Targets
from prunecast.errors import BadInput

ROUNDS = 10
"""Maximum number of rounds of a search. Kind: choice."""


def prune_to_targets(search: ModelSearch, targets: Targets) -> TargetResult:
    """Return the model with the most retained importance among those found that meet the targets.

    Each layer gets its own pattern and sparsity. `search` must have been prepared.

    Raises
    ------
    BadInput : a target is below the floor, the least time that pruning can reach (the message gives its
        parts), no round met the targets, or the targets exclude each other
    """
    limits = search.limits(targets)
    return result_of(search, _search(search, limits), limits.dense_s)


def _search(search: ModelSearch, limits: Limits) -> Round:
    """Return the round with the most importance that keeps the limits: the dense model if it keeps them.

    The rounds are repeated with those layers dense that the fastest model leaves dense (`fastest_options`):
    estimates of single layers do not count all that several dense layers save. For a large model this is done
    only if no round met the limits.
    """
    if limits.are_met(limits.dense_s, search.workload.weights):
        return Round.of(search, dict.fromkeys(search.options, 0))
    rounds = Rounds(search, limits)
    _add_rounds(search, limits, rounds, frozenset())
    best = rounds.best()
    if not math.isinf(limits.seconds) and (best is None or not rounds.is_large):
        choice = fastest_options(search, rounds.scales).choice
        dense = frozenset(name for name, place in choice.items() if not place)
        if dense:
            rounds.restart()
            _add_rounds(search, limits, rounds, dense)
            best = rounds.best()
    if best is not None:
        return best
    least = min(rounds.found, key=lambda round_: (not limits.are_met(0.0, round_.kept), round_.seconds))
    wanted = [] if math.isinf(limits.seconds) else [f"{limits.seconds * 1e6:.1f} us"]
    wanted += [] if math.isinf(limits.kept) else [f"{limits.kept:.0f} weights"]
    raise BadInput(
        f"wanted {' and '.join(wanted)} or less, the best of {len(rounds.found)} rounds takes "
        f"{least.seconds * 1e6:.1f} us and keeps {least.kept:.0f} weights"
    )


def _add_rounds(search: ModelSearch, limits: Limits, rounds: Rounds, dense: frozenset[str]) -> None:
    """Add rounds until one closely meets the limits, at most `ROUNDS`.

    Each round chooses options by their estimated times, prunes the layers to them and predicts these. The
    ratios of predicted to estimated seconds correct the estimates of later rounds. The time budget of the
    next allocation is changed by the amount by which the round missed the target, as is the number of weights
    that may be kept.

    Parameters
    ----------
    dense : layers that stay dense
    """
    most_kept = limits.kept

    def choose(scales: Mapping[str, Mapping[RunAs, float]]) -> dict[str, int]:
        return chosen_by_time(search, scales, rounds.aim_s, limits._replace(kept=most_kept), dense)

    if rounds.is_large and not math.isinf(limits.seconds):
        probe(search, choose, rounds.scales)
    for done in range(1, ROUNDS + 1):
        choice = choose(with_likely(search, rounds.scales) if rounds.is_large else rounds.scales)
        round_ = rounds.add(choice)
        is_dense, is_met = not sparse_layers(choice), limits.are_met(round_.seconds, round_.kept)
        is_done = is_dense or (rounds.is_close(round_) and (rounds.is_large or done >= FEWEST_ROUNDS))
        if is_met and (is_done or math.isinf(limits.seconds)):
            break
        if round_.kept > limits.kept:
            most_kept *= limits.kept / round_.kept
        if done > 2 or is_dense:
            # Multiply the budget by limit / time if the round was too slow, else by the root of this ratio:
            # estimates tend to be too low
            off = limits.seconds / round_.seconds
            rounds.aim_s = min(rounds.aim_s * (off if off < 1.0 else math.sqrt(off)), limits.seconds)


def chosen_by_time(
    search: ModelSearch,
    scales: Mapping[str, Mapping[RunAs, float]],
    aim_s: float,
    limits: Limits,
    dense: frozenset[str] = frozenset(),
) -> dict[str, int]:
    """Return layer -> index of its option for an end-to-end time budget of `aim_s`.

    The time of the model outside of the prunable layers is subtracted from the budget first. The remaining
    budget of the layers is raised, if it is less, to the mean of their fastest possible time and the time
    that the time limit leaves for them.

    The time of transposes depends on the layers that stay dense. The first allocation assumes that no layer
    stays dense. The second allocation uses the time that follows from the dense layers of the first. For
    convolutions on padded images there is only the first allocation, since dense convolutions keep the
    padded layout and its assumption is better.

    Parameters
    ----------
    dense : layers that stay dense, in both allocations
    """
    layers = [
        OptionValues(*(column[:1] for column in own)) if name in dense else own
        for name, own in zip(search.options, search.option_values(scales), strict=True)
    ]
    if math.isinf(aim_s):
        return dict(zip(search.options, allocate(layers, math.inf, limits.kept).tolist(), strict=True))
    sparse = search.all_sparse.names - dense
    floor, rest_s = floor_seconds(layers), search.rest_seconds(SparseLayers(sparse))
    if not dense:
        check_floor(search, scales, rest_s, limits)

    def choice_with(rest_s: float) -> dict[str, int]:
        budget = max(aim_s - rest_s, 0.5 * (floor + limits.seconds - rest_s), floor)
        return dict(zip(search.options, allocate(layers, budget, limits.kept).tolist(), strict=True))

    choice = choice_with(rest_s)
    return choice if search.in_planes else choice_with(search.rest_seconds(search.sparse(choice)))
