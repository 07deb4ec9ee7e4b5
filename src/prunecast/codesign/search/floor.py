"""Check of the floor (the least time that pruning can reach), and correction factors of option times.

The factor of a layer's kernel and pattern is a ratio of two times: the one that the engine predicts for the
pruned layer, over the estimate in the layer's options.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from prunecast.codesign.search.allocation import FloatArray
from prunecast.codesign.search.model_search import ModelSearch, SparseLayers, Tried
from prunecast.codesign.search.options import Options, RunAs, sparse_layers
from prunecast.codesign.search.targets import Limits
from prunecast.codesign.whole_choice import fastest_choice, role_of
from prunecast.errors import BadInput
from prunecast.kernels import KERNELS

MOST_NAMED = 7
"""Number of parts of the floor that an error message lists."""
Scales = dict[str, dict[RunAs, float]]
"""Layer -> (kernel, pattern) -> correction factor: predicted seconds over the estimate of the option."""
PROBES = 3
"""Number of times that `probe` chooses options and prunes sample layers to them, before all layers are
pruned."""


class FastestModel(NamedTuple):
    """The options of all layers with which a model is fastest, by estimated times."""

    choice: dict[str, int]
    """Layer -> index of its option."""
    layer_s: dict[str, float]
    """Layer -> estimated seconds with this option."""
    seconds: float
    """Estimated end-to-end seconds of the model."""


def fastest_options(search: ModelSearch, scales: Mapping[str, Mapping[RunAs, float]]) -> FastestModel:
    """Return the options with which the model is fastest, by estimated times.

    Each layer is dense or has its fastest option of a kernel that fuses epilogues, or does not.

    Parameters
    ----------
    scales : as in `ModelSearch.option_values`
    """
    seconds = {name: own.values(scales.get(name, {})).seconds for name, own in search.options.items()}
    places = {name: _fastest_places(own, seconds[name]) for name, own in search.options.items()}
    return fastest_among(search, places, seconds)


def fastest_among(
    search: ModelSearch, places: Mapping[str, Sequence[int]], seconds: Mapping[str, FloatArray]
) -> FastestModel:
    """Return the fastest model whose layers have options among given ones, by the time of the whole pass.

    Layers of equal size with equal neighbours in the graph are chosen together, see `fastest_choice`.

    Parameters
    ----------
    places : layer -> indices of its options, equally many for all layers, the first one of the dense option
    seconds : layer -> estimated seconds of all its options
    """
    graph = next(iter(search.workload.graphs), None)
    groups: dict[object, list[str]] = {}
    for name, layer in search.workload.layers.items():
        groups.setdefault(name if graph is None else role_of(layer, graph), []).append(name)
    kinds_count = max(map(len, places.values()), default=1)

    def model(kinds: Sequence[int]) -> FastestModel:
        of_name = {name: kind for kind, own in zip(kinds, groups.values(), strict=True) for name in own}
        choice = {name: places[name][of_name[name]] for name in search.options}
        layer_s = {name: float(seconds[name][place]) for name, place in choice.items()}
        return FastestModel(choice, layer_s, search.total(layer_s, search.sparse(choice)))

    def alone(names: Sequence[str]) -> int:
        kinds = range(kinds_count)
        return min(kinds, key=lambda kind: sum(float(seconds[name][places[name][kind]]) for name in names))

    first = tuple(map(alone, groups.values()))
    return model(fastest_choice([kinds_count] * len(groups), lambda kinds: model(kinds).seconds, first))


def _fastest_places(options: Options, seconds: FloatArray) -> tuple[int, int, int]:
    """Return the index of the dense option, and of the fastest with and without fused epilogues.

    The index is 0 (dense) where there is no such option.
    """
    fuses = np.array(
        [all(KERNELS[name].fuses_in_torch for name in run.kernel.split("+")) for run in options.runs]
    )
    is_sparse = np.arange(seconds.size) > 0
    found = [
        int(np.argmin(np.where(allowed, seconds, np.inf))) if allowed.any() else 0
        for allowed in (is_sparse & fuses[options.run], is_sparse & ~fuses[options.run])
    ]
    return 0, found[0], found[1]


def check_floor(
    search: ModelSearch, scales: Mapping[str, Mapping[RunAs, float]], rest_s: float, limits: Limits
) -> None:
    """Raise BadInput if the model exceeds the time limit even with the fastest options of its layers.

    Two estimates must both exceed the limit: the sum of `rest_s` and the fastest option of every layer, and
    the time of the fastest model that `fastest_options` finds, which may have dense layers. The latter is not
    slower than the dense model.

    Parameters
    ----------
    scales : as in `ModelSearch.option_values`
    rest_s : seconds of the model without its prunable layers, if all these layers are sparse

    Raises
    ------
    BadInput : the requested time is below the floor. The message gives the floor, its ratio to the dense
        time, and its parts: kinds of operators, and layers grouped by shape
    """
    values = search.option_values(scales)
    sums = {name: float(own.seconds.min()) for name, own in zip(search.options, values, strict=True)}
    sum_s = rest_s + sum(sums.values())
    if sum_s <= limits.seconds:
        return
    choice, layer_s, floor_s = fastest_options(search, scales)
    if floor_s <= limits.seconds:
        return
    sparse = search.sparse(choice)
    if sum_s < floor_s:
        sparse, layer_s, floor_s = search.all_sparse, sums, sum_s
    wanted, floor = apart(limits.seconds * 1e6, floor_s * 1e6)
    raise BadInput(
        f"wanted {wanted} us or less, the floor is {floor} us, {floor_s / limits.dense_s:.1%} of dense: "
        f"{_listed({**_outside(search, sparse), **_by_shape(search, layer_s)})}"
    )


def apart(low: float, high: float) -> tuple[str, str]:
    """Return two numbers as texts, with the fewest decimals (one to six) with which the texts differ."""
    texts = ((f"{low:.{places}f}", f"{high:.{places}f}") for places in range(1, 7))
    return next((pair for pair in texts if pair[0] != pair[1]), (f"{low:.6f}", f"{high:.6f}"))


def _outside(search: ModelSearch, sparse: SparseLayers) -> dict[str, float]:
    """Return kind of operator -> seconds outside of prunable layers."""
    time = search.time(dict.fromkeys(search.options, 0.0), sparse)
    if time is None:
        return {}
    by_kind = time.seconds_by_kind
    names = {"gemm": "products that are not pruned", "transpose": "transposes for sparse kernels"}
    return {names.get(kind, kind): seconds for kind, seconds in by_kind.items() if seconds > 0.0}


def _by_shape(search: ModelSearch, seconds_of: Mapping[str, float]) -> dict[str, float]:
    """Return a text for each layer shape -> seconds of its layers, given those of each layer."""
    own: dict[tuple[int, int], list[float]] = {}
    for name, seconds in seconds_of.items():
        own.setdefault(search.workload.layers[name].shape, []).append(seconds)
    return {
        f"{len(s)} layer{'s' * (len(s) > 1)} of {m} x {k} at their fastest": sum(s)
        for (m, k), s in own.items()
    }


def _listed(parts: Mapping[str, float]) -> str:
    """Return the parts (name -> seconds) as text, the longest first; parts after `MOST_NAMED` are summed."""
    ranked = sorted(parts.items(), key=lambda part: -part[1])
    named, rest = ranked[:MOST_NAMED], ranked[MOST_NAMED:]
    others = [(f"in {len(rest)} smaller parts", sum(seconds for _, seconds in rest))] if rest else []
    return ", ".join(f"{seconds * 1e6:.1f} us {what}" for what, seconds in (*named, *others))


def seen_scales(search: ModelSearch, choice: Mapping[str, int], tried: Mapping[str, Tried]) -> Scales:
    """Return the correction factor (predicted over estimated time) of each sparse layer's chosen option.

    Parameters
    ----------
    choice : layer -> index of its option
    tried : layer -> prediction of that option
    """
    found = {}
    for name in sparse_layers(choice):
        options, place = search.options[name], choice[name]
        found[name] = {options.run_of(place): tried[name].seconds / float(options.seconds[place])}
    return found


def with_likely(search: ModelSearch, seen: Mapping[str, Mapping[RunAs, float]]) -> Scales:
    """Return the correction factors in `seen`, completed by estimates.

    If `seen` has no factor for a layer's (kernel, pattern), the estimate is the mean factor of the layers
    with the same M, K and N.
    """
    of_shape: dict[tuple[int, int, int], dict[RunAs, list[float]]] = {}
    for name, scales in seen.items():
        known = of_shape.setdefault(_shape(search, name), {})
        for run_as, scale in scales.items():
            known.setdefault(run_as, []).append(scale)
    likely = {
        shape: {run_as: float(np.mean(scales)) for run_as, scales in known.items()}
        for shape, known in of_shape.items()
    }
    return {name: {**likely[_shape(search, name)], **scales} for name, scales in seen.items()}


def probe(search: ModelSearch, choose: Callable[[Scales], dict[str, int]], scales: Scales) -> None:
    """Prune one layer for each shape, kernel and pattern of a choice, and add its factor to `scales`.

    Pruning all layers of a model with billions of weights needs minutes for each round of the search. Probing
    needs seconds and saves most of these rounds.

    Parameters
    ----------
    choose : returns layer -> index of its option, given correction factors
    scales : layer -> factors; extended in place
    """
    for _ in range(PROBES):
        choice = choose(with_likely(search, scales))
        known = {(_shape(search, name), run_as) for name, seen in scales.items() for run_as in seen}
        of_kind: dict[tuple[tuple[int, int, int], RunAs], str] = {}
        for name in sorted(sparse_layers(choice)):
            of_kind.setdefault((_shape(search, name), search.options[name].run_of(choice[name])), name)
        some = {name: choice[name] for kind, name in of_kind.items() if kind not in known}
        for name, seen in seen_scales(search, some, search.realise(some)).items():
            scales[name].update(seen)


def _shape(search: ModelSearch, name: str) -> tuple[int, int, int]:
    """Return (M, K, N) of a layer."""
    layer = search.workload.layers[name]
    return (*layer.shape, layer.n)
