"""`MapMaker`: sparsity maps of layers under patterns (weights -> importance -> mask -> map), cached."""

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from prunecast.choice import PrunedMap
from prunecast.errors import BadInput
from prunecast.patterns import Pattern, TileMap, parse_pattern, retained_importance, weigh
from prunecast.patterns.importance import ImportanceArray, even_parts, half_magnitude
from prunecast.patterns.pattern import LayerSeconds
from prunecast.patterns.sources import Layer
from prunecast.patterns.tile_map import MaskArray

DEFAULT_SPARSITY = 0.75
"""Fraction of weights to remove if a pattern has no fixed sparsity and none is requested. Kind: choice."""


class FittedPattern(NamedTuple):
    """A pattern whose tiles are made small enough for a layer, and a note on the change."""

    pattern: Pattern
    note: str
    """Description of the change, or empty."""


def fit_pattern(text: str, m: int, k: int) -> FittedPattern:
    """Parse a pattern and reduce a height above M, or a width or quantum above K.

    The reduced parameter is the largest power of two that is at most M or K.
    """
    pattern = parse_pattern(text)
    sides = {"height": m, "width": k, "quantum": k}
    # The largest power of two that is at most the side
    cut = {
        name: 1 << (sides[name].bit_length() - 1)
        for name, size in pattern.parameters.items()
        if size > sides.get(name, size)
    }
    if not cut:
        return FittedPattern(pattern, "")
    fitted = replace(pattern, **cut)
    return FittedPattern(
        fitted, f"{pattern.canonical} does not fit a matrix of {m}x{k}: {fitted.canonical} instead"
    )


def no_taller_than(text: str, m: int) -> Pattern:
    """Parse a pattern. `tile-wise:H` and `atp:H` with H above `m` get the height `m`, the rows of a layer."""
    pattern = parse_pattern(text)
    family, _, height = pattern.canonical.partition(":")
    is_taller = family in ("tile-wise", "atp") and height.isdecimal() and int(height) > m
    return parse_pattern(f"{family}:{m}") if is_taller else pattern


def sparsity_for(pattern: Pattern, asked: float | None, *, natural: bool) -> float | None:
    """Return the sparsity argument of `Pattern.prune`; None for patterns with a fixed sparsity, such as 2:4.

    If the pattern is the natural one of a kernel (its default pattern), a fixed sparsity replaces `asked`.
    A pattern that the user requested receives `asked`, and `Pattern.prune` may refuse it.
    """
    has_own = _accepts(pattern, None)
    if has_own:
        return None if natural else asked
    return DEFAULT_SPARSITY if asked is None else asked


def sparsity_range(pattern: Pattern) -> tuple[float, float]:
    """Return the lowest and the highest sparsity that a pattern without a fixed sparsity accepts.

    Sparsities from 0 to 0.99 are tried, in steps of 0.01.
    """
    accepted = [percent / 100 for percent in range(100) if _accepts(pattern, percent / 100)]
    return accepted[0], accepted[-1]


def sparsity_retaining(pattern: Pattern, importance: ImportanceArray, wanted: float) -> float | None:
    """Return the highest sparsity, in steps of 0.001, at which a pattern retains enough importance.

    Parameters
    ----------
    pattern : a pattern that accepts a sparsity; None is returned for others, such as 2:4
    importance : importance of the weights, shape (M, K)
    wanted : fraction of all importance, 0 to 1; None is returned if the pattern cannot retain it
    """
    if _accepts(pattern, None):
        return None
    low, high = (round(1000 * end) for end in sparsity_range(pattern))

    def retains(per_mille: int) -> bool:
        mask = pattern.prune({"": importance}, per_mille / 1000)[""]
        return retained_importance(importance, mask) >= wanted

    # Patterns never retain more at a higher sparsity
    retained = bisect_left(range(low, high + 1), True, key=lambda per_mille: not retains(per_mille))
    return (low + retained - 1) / 1000 if retained else None


def importance_of(layer: Layer, pattern: Pattern) -> ImportanceArray:
    """Return the importance (M, K) of a layer: magnitudes, or its mask for patterns that rank no weights."""
    if not pattern.ranks:
        return layer.kept.astype("float32")
    return even_parts(weigh(layer.name, layer.weights), layer.parts)


class _MapId(NamedTuple):
    """Cache key of a map: the inputs that determine it."""

    name: str
    pattern: Pattern
    sparsity: float | None
    guide: str


class Guide(NamedTuple):
    """Functions that predict the time of a tile map, for patterns that are guided by such times."""

    key: str
    """Text that identifies the kernel and the GPU, since a map depends on both."""
    seconds: LayerSeconds
    """Function that returns the closed-form seconds of a tile map."""
    confirm: LayerSeconds
    """Function that returns the simulated seconds of a tile map. A guided map that is slower in simulation
    than the map without guidance is rejected."""


class GivenMap(NamedTuple):
    """The map of a layer whose weights are already pruned."""

    pattern: str
    """Canonical pattern string."""
    make: Callable[[], PrunedMap]
    """Function that returns the map."""


class MapMaker:
    """Maker of the sparsity maps of layers under patterns, which caches results.

    The importance and the map of the last layer are always cached, so that other kernels can use them.

    Parameters
    ----------
    layers : all layers, by name
    scope : `layer` to prune each layer by itself, `global` to rank the weights of all layers that have the
        same pattern together
    remember : also cache all tile maps, which are small
    of_layer : also cache all maps of the last layer, for several GPUs or passes
    given : maps of layers that are already pruned; pattern and sparsity do not apply to them
    """

    def __init__(
        self,
        layers: Mapping[str, Layer],
        scope: str,
        *,
        remember: bool = False,
        of_layer: bool = False,
        given: Mapping[str, GivenMap] | None = None,
    ) -> None:
        self.layers = layers
        by_load: dict[int, str] = {}
        self._first: dict[str, str] = {}
        """Row -> the first row with the same weights: rows of several passes share maps."""
        for name, layer in layers.items():
            self._first[name] = by_load.setdefault(id(layer.load), name)
        self.given = given or {}
        self._of_layer = of_layer
        self._scope = scope
        self._remember = remember
        self._importance: dict[tuple[str, bool, bool], ImportanceArray] = {}
        self._made: dict[_MapId, PrunedMap] = {}
        self._ranked_together: dict[tuple[Pattern, float | None, str], dict[str, MaskArray]] = {}

    def map_of(
        self, name: str, wanted: str, sparsity: float | None, *, natural: bool, guide: Guide | None = None
    ) -> PrunedMap:
        """Return the map of one layer under a pattern, which is limited to the size of the layer (see `fit`).

        Parameters
        ----------
        name : name of the layer
        wanted : pattern string
        sparsity : the requested sparsity, or None
        natural : the pattern is the natural one of the kernel, see `sparsity_for`
        guide : predictions of time for guided patterns; None for other patterns

        Raises
        ------
        BadInput : the pattern does not fit the layer, or does not accept the sparsity
        """
        if name in self.given:
            return self.given[name].make()
        fitted = self.fit(name, wanted, natural=natural)
        target_sparsity = sparsity_for(fitted.pattern, sparsity, natural=natural)
        # Only the map of a guided pattern depends on the kernel
        guided_by = guide.key if guide is not None and fitted.pattern.needs_times else ""
        shares = self._scope == "layer" and not fitted.pattern.needs_times
        key = _MapId(self._first[name] if shares else name, fitted.pattern, target_sparsity, guided_by)
        if key not in self._made:
            # Drop old maps before the mask is made, since the mask needs memory too
            self._made = {
                other: kept
                for other, kept in self._made.items()
                if (self._remember and isinstance(kept, TileMap))
                or (self._of_layer and self._first[other.name] == self._first[name])
            }
            masks = self._masks(wanted, key, guide, natural=natural)
            self._made[key] = fitted.pattern.map(masks[key.name])
        return self._made[key]

    def fit(self, name: str, wanted: str, *, natural: bool) -> FittedPattern:
        """Return the pattern to which a layer is pruned.

        `fit_pattern` limits a natural pattern to the size of the layer. For other patterns, `no_taller_than`
        limits only the height of tiles.
        """
        m, k = self.layers[name].shape
        return fit_pattern(wanted, m, k) if natural else FittedPattern(no_taller_than(wanted, m), "")

    def _masks(self, wanted: str, key: _MapId, guide: Guide | None, *, natural: bool) -> dict[str, MaskArray]:
        pattern = key.pattern if guide is None else key.pattern.timed_by(guide.seconds, guide.confirm)
        if self._scope == "layer":
            return pattern.prune({key.name: self.importance(key.name, pattern)}, key.sparsity)
        together = pattern, key.sparsity, key.guide
        if together not in self._ranked_together:
            alike = {
                other: importance_of(layer, pattern)
                for other, layer in self.layers.items()
                if self.fit(other, wanted, natural=natural).pattern == pattern
            }
            self._ranked_together[together] = pattern.prune(alike, key.sparsity, self._scope)
        return self._ranked_together[together]

    def importance(self, name: str, pattern: Pattern) -> ImportanceArray:
        """Return the (M, K) importance that ranks the weights of a layer under a pattern.

        The array is float16 only if the weights are float16 and the pattern converts it block by block.
        """
        key = (self._first[name], pattern.ranks, pattern.by_blocks)
        converted = (*key[:2], False)
        if converted in self._importance:
            return self._importance[converted]
        if key not in self._importance:
            self._importance.clear()
            layer = self.layers[name]
            is_half = pattern.by_blocks and layer.parts == 1 and layer.weights.dtype == np.float16
            self._importance[key] = (
                half_magnitude(layer.weights) if is_half else importance_of(layer, pattern)
            )
        return self._importance[key]


def _accepts(pattern: Pattern, sparsity: float | None) -> bool:
    try:
        pattern.sparsity_to_prune(sparsity)
    except BadInput:
        return False
    return True
