"""What no choice can go below, and what it is made of."""

from collections.abc import Mapping, Sequence

from prunecast.codesign.search.allocation import Menu, floor_seconds
from prunecast.codesign.search.model_search import ModelSearch
from prunecast.errors import BadInput

__all__ = ["check_floor"]

MOST_NAMED = 7
"""Parts of the floor that a refusal names."""


def check_floor(search: ModelSearch, menus: Sequence[Menu], around_s: float, most_s: float) -> None:
    """Refuse a time that not even the fastest options of all layers reach.

    Parameters
    ----------
    menus : of `search`
    around_s : seconds of everything else
    most_s : what is wanted

    Raises
    ------
    BadInput : says the floor, its share of dense, and which operators and layers it is made of
    """
    floor_s = around_s + floor_seconds(menus)
    if floor_s <= most_s:
        return
    share = floor_s / search.total(search.dense_seconds(), frozenset())
    raise BadInput(
        f"wanted {most_s * 1e6:.1f} us or less, the floor is {floor_s * 1e6:.1f} us, {share:.1%} of dense: "
        f"{_listed({**_outside(search), **_fastest(search, menus)})}"
    )


def _outside(search: ModelSearch) -> dict[str, float]:
    """Kind of operator -> seconds, without the layers, all of them sparse."""
    time = search.time(dict.fromkeys(search.options, 0.0), frozenset(search.options))
    if time is None:
        return {}
    by_kind = time.seconds_by_kind
    names = {"gemm": "products that are not pruned", "transpose": "transposes for sparse kernels"}
    return {names.get(kind, kind): seconds for kind, seconds in by_kind.items() if seconds > 0.0}


def _fastest(search: ModelSearch, menus: Sequence[Menu]) -> dict[str, float]:
    """Shape -> seconds of all its layers with the fastest option that their caps allow."""
    own: dict[tuple[int, int], list[float]] = {}
    for name, menu in zip(search.options, menus, strict=True):
        own.setdefault(search.layers.shapes[name], []).append(float(menu.seconds.min()))
    return {f"{_layers(len(s))} of {m} x {k} at their fastest": sum(s) for (m, k), s in own.items()}


def _layers(count: int) -> str:
    return "1 layer" if count == 1 else f"{count} layers"


def _listed(parts: Mapping[str, float]) -> str:
    """Most seconds first; what is small together."""
    ranked = sorted(parts.items(), key=lambda part: -part[1])
    named, rest = ranked[:MOST_NAMED], ranked[MOST_NAMED:]
    others = [(f"in {len(rest)} smaller parts", sum(seconds for _, seconds in rest))] if rest else []
    return ", ".join(f"{seconds * 1e6:.1f} us {what}" for what, seconds in (*named, *others))
