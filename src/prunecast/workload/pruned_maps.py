"""The map of each layer under each pattern: weights -> importance -> mask -> map, each made once."""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from prunecast.choice import PrunedMap
from prunecast.errors import BadInput
from prunecast.patterns import Pattern, TileMap, parse_pattern, weigh
from prunecast.patterns.importance import ImportanceArray, even_parts
from prunecast.patterns.pattern import LayerSeconds
from prunecast.patterns.sources import Layer
from prunecast.patterns.tile_map import MaskArray

DEFAULT_SPARSITY = 0.75


class FittedPattern(NamedTuple):
    """A kernel's own pattern as a layer can have it."""

    pattern: Pattern
    note: str
    """What had to be changed, or empty."""


def fit_pattern(text: str, m: int, k: int) -> FittedPattern:
    """The pattern, heights above M, widths and quanta above K cut to the largest power of two that fits."""
    pattern = parse_pattern(text)
    sides = {"height": m, "width": k, "quantum": k}
    cut = {
        name: _power_of_two_in(sides[name])
        for name, size in pattern.parameters.items()
        if size > sides.get(name, size)
    }
    if not cut:
        return FittedPattern(pattern, "")
    fitted = replace(pattern, **cut)
    return FittedPattern(
        fitted, f"{pattern.canonical} does not fit a matrix of {m}x{k}: {fitted.canonical} instead"
    )


def sparsity_for(pattern: Pattern, asked: float | None, *, natural: bool) -> float | None:
    """What `Pattern.prune` is told; None for patterns with a sparsity of their own, as 2:4 has.

    A pattern that came with the kernel takes its own over the one asked for; one that was asked for gets
    both and may refuse.
    """
    if _has_own_sparsity(pattern):
        return None if natural else asked
    return DEFAULT_SPARSITY if asked is None else asked


class SparsityRange(NamedTuple):
    """The lowest and the highest sparsity that a pattern can prune to, in whole percent."""

    low: float
    high: float


def sparsity_range(pattern: Pattern) -> SparsityRange:
    """The sparsities in 0 to 0.99 that a pattern with a choice of them accepts."""
    accepted = [percent / 100 for percent in range(100) if _accepts(pattern, percent / 100)]
    return SparsityRange(accepted[0], accepted[-1])


def importance_of(layer: Layer, pattern: Pattern) -> ImportanceArray:
    """Magnitude of the weights; for patterns that rank nothing, what the source says is kept."""
    if not pattern.ranks:
        return layer.kept.astype("float32")
    return even_parts(weigh(layer.name, layer.weights), layer.parts)


class _Key(NamedTuple):
    """What a map was made from."""

    name: str
    pattern: Pattern
    sparsity: float | None
    guide: str


class Guide(NamedTuple):
    """What predicts the layouts of patterns that are guided by time."""

    kernel: str
    seconds: LayerSeconds


class MapMaker:
    """Prunes layers to patterns; it remembers the last layer's importance and map, which kernels share.

    Parameters
    ----------
    layers : all layers, by name
    scope : `layer` or `global`, which ranks all layers of a pattern together
    remember : also keep all tile maps, which are small
    """

    def __init__(self, layers: Mapping[str, Layer], scope: str, *, remember: bool = False) -> None:
        self.layers = layers
        self._scope = scope
        self._remember = remember
        self._importance: dict[tuple[str, bool], ImportanceArray] = {}
        self._made: dict[_Key, PrunedMap] = {}
        self._ranked_together: dict[tuple[Pattern, str], dict[str, MaskArray]] = {}

    def map_of(
        self, name: str, wanted: str, sparsity: float | None, *, natural: bool, guide: Guide | None = None
    ) -> PrunedMap:
        """Map of one layer under a pattern; only one that came with the kernel is cut to fit the layer.

        Parameters
        ----------
        name : the layer
        wanted : pattern string
        sparsity : asked for, or None
        natural : the pattern came with the kernel, see `sparsity_for`
        guide : for patterns that ask for times

        Raises
        ------
        BadInput : the pattern does not fit the layer, or cannot have the sparsity
        """
        fitted = self.fit(name, wanted, natural=natural)
        told = sparsity_for(fitted.pattern, sparsity, natural=natural)
        key = _Key(name, fitted.pattern, told, _kernel_of(guide, fitted.pattern))
        if key not in self._made:
            masks = self._masks(wanted, key, guide, natural=natural)
            self._made = {
                other: kept
                for other, kept in self._made.items()
                if self._remember and isinstance(kept, TileMap)
            }
            self._made[key] = fitted.pattern.map(masks[name])
        return self._made[key]

    def fit(self, name: str, wanted: str, *, natural: bool) -> FittedPattern:
        """The pattern that a layer is pruned to."""
        m, k = self.layers[name].shape
        return fit_pattern(wanted, m, k) if natural else FittedPattern(parse_pattern(wanted), "")

    def _masks(self, wanted: str, key: _Key, guide: Guide | None, *, natural: bool) -> dict[str, MaskArray]:
        pattern = key.pattern if guide is None else key.pattern.timed_by(guide.seconds)
        if self._scope == "layer":
            return pattern.prune({key.name: self.importance(key.name, pattern)}, key.sparsity)
        together = pattern, key.guide
        if together not in self._ranked_together:
            alike = {
                other: importance_of(layer, pattern)
                for other, layer in self.layers.items()
                if self.fit(other, wanted, natural=natural).pattern == pattern
            }
            self._ranked_together[together] = pattern.prune(alike, key.sparsity, self._scope)
        return self._ranked_together[together]

    def importance(self, name: str, pattern: Pattern) -> ImportanceArray:
        """(M, K): what decides which weights of a layer go under a pattern."""
        key = (name, pattern.ranks)
        if key not in self._importance:
            self._importance.clear()
            self._importance[key] = importance_of(self.layers[name], pattern)
        return self._importance[key]


def _kernel_of(guide: Guide | None, pattern: Pattern) -> str:
    """The kernel on which a map depends, or empty."""
    return guide.kernel if guide is not None and pattern.needs_times else ""


def _has_own_sparsity(pattern: Pattern) -> bool:
    return _accepts(pattern, None)


def _accepts(pattern: Pattern, sparsity: float | None) -> bool:
    try:
        pattern.sparsity_to_prune(sparsity)
    except BadInput:
        return False
    return True


def _power_of_two_in(limit: int) -> int:
    """The largest power of two that is at most `limit`, from 1."""
    return 1 << (limit.bit_length() - 1)
