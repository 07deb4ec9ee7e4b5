"""The search space of a study, one more pattern for each group of layers, and the value of a set of patterns.

The value is that of the allocation over menus that also contain these patterns. Options with an additional
pattern are really pruned, near the sparsity that the layer has without them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from prunecast.codesign.search import TargetResult, Targets
from prunecast.codesign.search.model_search import ModelSearch
from prunecast.codesign.search.options import Options, joined_kernels
from prunecast.codesign.search.target import prune_to_targets
from prunecast.errors import BadInput
from prunecast.patterns import Pattern, parse_pattern
from prunecast.workload.candidates import kernels_of, tile_kernels

SPACE_VERSION = 1
"""Incremented with every change of names, choices or meaning: it is part of a study's name."""

Choose = Callable[[str, Sequence[str]], str]
"""(name of a setting, its choices) -> the selected choice."""

NOTHING = "nothing"
FAMILIES = (NOTHING, "atp", "shuffled-block", "tile-element", "tvw")
"""Families of additional patterns; `nothing` leaves a group with the normal menu."""

HEIGHTS = ("64", "96", "128", "192", "256")
QUANTA = ("8", "16", "32", "64")
INTERVALS = ("97-103", "90-110", "75-125", "50-150", "0-inf")
"""Range of the counts of tiles in percent of their mean."""
ROWS = ("neighbours", "shuffled")
SCORES = ("mean", "rms")
SMALL_HEIGHTS = ("64", "128", "256")
PERCENTS = ("1", "2", "5")
"""Percent of all elements that the sparse part of a two-part plan may keep."""


def groups_of(shapes: Mapping[str, tuple[int, int]]) -> dict[str, str]:
    """Return layer -> group: `tall` with more rows than columns, `wide` with fewer, or `square`.

    The shape decides how many tiles must be balanced and how long each is, and therefore which settings suit.
    """
    return {name: _group(m, k) for name, (m, k) in shapes.items()}


def _group(m: int, k: int) -> str:
    if m == k:
        return "square"
    return "tall" if m > k else "wide"


def plain_params(groups: Sequence[str]) -> dict[str, str]:
    """Return the settings of the trial that adds no pattern to the menus."""
    return {f"{group} family": NOTHING for group in groups}


def patterns_from(choose: Choose, groups: Sequence[str]) -> dict[str, str]:
    """Return group -> pattern string, without the groups that get none.

    The same function draws new settings and reads stored ones: `choose` calls a sampler or looks them up.
    """
    found = {group: _pattern(lambda name, of, g=group: choose(f"{g} {name}", of)) for group in groups}  # type: ignore[misc]
    return {group: pattern for group, pattern in found.items() if pattern}


def _pattern(choose: Choose) -> str:
    family = choose("family", FAMILIES)
    if family == NOTHING:
        return ""
    if family == "atp":
        text = f"atp:{choose('height', HEIGHTS)}x{choose('quantum', QUANTA)}x{choose('interval', INTERVALS)}"
        text += ":shuffled" * (choose("rows", ROWS) == "shuffled")
        return text + ":rms" * (choose("score", SCORES) == "rms")
    height = choose(f"{family} height", SMALL_HEIGHTS)
    if family == "tile-element":
        return f"tile-element:{height}x{choose('percent', PERCENTS)}"
    return f"{family}:{height}"


STEPS = (-0.08, -0.03, 0.0, 0.03, 0.08)
"""Offsets from the sparsity that the layer has without the pattern: a better pattern changes it only
slightly."""
FROM_DENSE = (0.5, 0.6, 0.7, 0.8, 0.9)
"""Sparsities that are tried for layers that stay dense without the pattern."""


class Evaluator:
    """Results for patterns by group. Menus are computed at the first request.

    Parameters
    ----------
    search : of the model
    targets : constraints on every result
    """

    def __init__(self, search: ModelSearch, targets: Targets) -> None:
        self.search = search
        self.groups = groups_of({name: layer.shape for name, layer in search.workload.layers.items()})
        self.targets = targets
        self._maker: _OptionMaker | None = None

    def plain(self) -> TargetResult:
        """Return the result without further patterns. Raise BadInput if the targets cannot be met."""
        self._prepare()
        return prune_to_targets(self.search, self.targets)

    def result(self, patterns: Mapping[str, str], plain: TargetResult) -> TargetResult:
        """Return the result if each group is also offered its pattern.

        Parameters
        ----------
        patterns : group -> pattern string
        plain : the result without them

        Raises
        ------
        BadInput : no round of the search ends within the targets
        """
        self._prepare()
        if self._maker is None:
            removed = {layer.layer: layer.removed for layer in plain.layers}
            self._maker = _OptionMaker(self.search, removed)
        maker = self._maker
        more = {
            layer: Options.joined([self.search.options[layer], *maker.options(layer, patterns[group])])
            for layer, group in self.groups.items()
            if group in patterns
        }
        return prune_to_targets(self.search.with_options({**self.search.options, **more}), self.targets)

    def _prepare(self) -> None:
        if not self.search.options:
            self.search.prepare()


class _OptionMaker:
    """Makes options and caches them, since most patterns occur again in later trials.

    Parameters
    ----------
    search : its menus must have been prepared
    removed : layer -> share of weights that are removed without any further pattern
    """

    def __init__(self, search: ModelSearch, removed: dict[str, float]) -> None:
        self._search = search
        self._removed = removed
        self._made: dict[tuple[str, str], tuple[Options, ...]] = {}

    def options(self, layer: str, pattern: str) -> tuple[Options, ...]:
        """Return the options of a layer with a pattern, empty if the layer or the GPU does not support it."""
        key = (layer, pattern)
        if key not in self._made:
            self._made[key] = tuple(self._make(layer, parse_pattern(pattern)))
        return self._made[key]

    def _make(self, layer: str, pattern: Pattern) -> Iterator[Options]:
        for sparsity in self._sparsities(layer):
            try:
                yield self._option(layer, pattern, sparsity)
            except BadInput:
                continue

    def _sparsities(self, layer: str) -> list[float]:
        removed = self._removed[layer]
        around = [removed + step for step in STEPS] if removed else FROM_DENSE
        most = self._search.caps.get(layer, self._search.most_sparsity)
        return sorted({round(min(sparsity, most), 3) for sparsity in around if sparsity > 0.0})

    def _option(self, layer: str, pattern: Pattern, sparsity: float) -> Options:
        search = self._search
        importance = search.workload.importance(layer)
        mask = pattern.prune({layer: importance}, sparsity)[layer]
        kept = pattern.map(mask)
        kernels = search.fastest(layer, kept, partial(_kernels, pattern.canonical))
        copies = search.workload.layers[layer].count
        return Options.of(
            pattern.canonical,
            {joined_kernels(kernels): search.seconds(layer, kernels, kept, search.engine.estimate)},
            sparsity=sparsity,
            importance=copies * float(importance.sum(where=mask, dtype=np.float64)),
            kept=copies * int(np.count_nonzero(mask)),
        )


def _kernels(pattern: str, tokens: int) -> tuple[str, ...]:
    """Return the candidates for the fastest kernel of a pattern: the tile kernels if it has tiles."""
    able = kernels_of(pattern)
    return tuple(kernel for kernel in tile_kernels(tokens) if kernel in able) or able[:1]
