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

from prunecast.codesign.search.allocation import allocate, floor_seconds
from prunecast.codesign.search.floor import check_floor, probe, with_likely
from prunecast.codesign.search.model_search import ModelSearch
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
    """Return the round with the most importance that keeps the limits.

    Each round chooses options by their estimated times, prunes the layers to them and predicts these. The
    ratios of predicted to estimated seconds correct the estimates of later rounds. The time budget of the
    next allocation is changed by the amount by which the round missed the target.
    """
    rounds = Rounds(search, limits)
    if rounds.is_large and not math.isinf(limits.seconds):
        probe(search, lambda likely: chosen_by_time(search, likely, rounds.aim_s, limits), rounds.scales)
    for done in range(1, ROUNDS + 1):
        likely = with_likely(search, rounds.scales) if rounds.is_large else rounds.scales
        choice = chosen_by_time(search, likely, rounds.aim_s, limits)
        round_ = rounds.add(choice)
        is_dense, is_fast = not sparse_layers(choice), round_.seconds <= limits.seconds
        is_done = is_dense or (rounds.is_close(round_) and (rounds.is_large or done >= FEWEST_ROUNDS))
        if (is_fast and is_done) or math.isinf(limits.seconds):
            break
        if done > 2 or is_dense:
            # Multiply the budget by limit / time if the round was too slow, else by the root of this ratio:
            # estimates tend to be too low
            off = limits.seconds / round_.seconds
            rounds.aim_s = min(rounds.aim_s * (off if off < 1.0 else math.sqrt(off)), limits.seconds)
    best = rounds.best()
    if best is None:
        least_s = min(round_.seconds for round_ in rounds.found)
        raise BadInput(
            f"wanted {limits.seconds * 1e6:.1f} us or less, the best of {len(rounds.found)} rounds takes "
            f"{least_s * 1e6:.1f} us"
        )
    return best


def chosen_by_time(
    search: ModelSearch, scales: Mapping[str, Mapping[RunAs, float]], aim_s: float, limits: Limits
) -> dict[str, int]:
    """Return layer -> index of its option for an end-to-end time budget of `aim_s`.

    The time of the model outside of the prunable layers is subtracted from the budget first. The remaining
    budget of the layers is raised, if it is less, to the mean of their fastest possible time and the time
    that the time limit leaves for them.

    The time of transposes depends on the layers that stay dense. The first allocation assumes that no layer
    stays dense. The second allocation uses the time that follows from the dense layers of the first. For
    convolutions on padded images there is only the first allocation, since dense convolutions keep the
    padded layout and its assumption is better.
    """
    layers = search.option_values(scales)
    if math.isinf(aim_s):
        return dict(zip(search.options, allocate(layers, math.inf, limits.kept).tolist(), strict=True))
    floor, rest_s = floor_seconds(layers), search.rest_seconds(search.all_sparse)
    check_floor(search, layers, rest_s, limits)

    def choice_with(rest_s: float) -> dict[str, int]:
        budget = max(aim_s - rest_s, 0.5 * (floor + limits.seconds - rest_s), floor)
        return dict(zip(search.options, allocate(layers, budget, limits.kept).tolist(), strict=True))

    choice = choice_with(rest_s)
    return choice if search.in_planes else choice_with(search.rest_seconds(search.sparse(choice)))
