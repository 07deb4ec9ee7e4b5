"""`prune_to_targets`: select pattern, density and kernel of every layer so that a model meets its targets.

1. Every layer gets a menu: a list of options with estimated times (mostly closed-form) and their retained
   importance.
2. The time budget is allocated over the layers, with one option for each (`allocation.py`).
3. Every layer is pruned to its option, planned, and predicted by the requested engine.
4. If these times differ from the estimates, the estimates are multiplied by the ratio, and steps 2 and 3 are
   repeated until the model is closely below its target (`CLOSE_ENOUGH`). The best result that meets all
   targets is returned.
"""

import math
from collections.abc import Mapping

from prunecast.codesign.search.allocation import allocate, floor_seconds
from prunecast.codesign.search.floor import (
    Scales,
    check_floor,
    probe,
    seen_scales,
    sparse_layers,
    with_likely,
)
from prunecast.codesign.search.model_search import ModelSearch
from prunecast.codesign.search.options import RunAs
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
from prunecast.codesign.search.targets import TargetResult, Targets
from prunecast.errors import BadInput

ROUNDS = 10


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
    return result_of(search, best, dense_s)


def _search(search: ModelSearch, most_s: float, most_kept: float) -> Round:
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
        probe(search, lambda likely: chosen_by_time(search, likely, aim, most_s, most_kept), scales)
    for _ in range(ROUNDS):
        likely = with_likely(search, scales) if large else scales
        choice = chosen_by_time(search, likely, aim, most_s, most_kept)
        round_ = tried_round(search, choice)
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
        found.append(among_tried(search, found, most_s, most_kept))
    fitting = [r for r in found if meets(r, most_s, most_kept)]
    if not fitting:
        least = min(found, key=lambda r: r.seconds)
        raise BadInput(
            f"wanted {most_s * 1e6:.1f} us or less, the best of {len(found)} rounds takes "
            f"{least.seconds * 1e6:.1f} us"
        )
    best = max(fitting, key=lambda r: r.importance)
    return with_fewer_sparse(search, best, most_s, most_kept) if search.in_planes else best


def chosen_by_time(
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
