"""Search space of a study, and evaluation of its trials.

A trial adds at most one pattern to the options of each group of layers. Its value is the importance that the
model retains within the targets, if the search may also choose these patterns. For an additional pattern,
each layer is pruned at a few sparsities near the one that it gets without the pattern.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
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
"""Version of the search space, which is part of a study's name. It must be incremented when names, choices or
meanings of settings change."""

Choose = Callable[[str, Sequence[str]], str]
"""Function that returns the selected choice, given the name of a setting and its choices."""

NOTHING = "nothing"
FAMILIES = (NOTHING, "atp", "shuffled-block", "tile-element", "tvw")
"""Families of additional patterns; `nothing` adds no pattern to a group."""

HEIGHTS = ("64", "96", "128", "192", "256")
QUANTA = ("8", "16", "32", "64")
INTERVALS = ("97-103", "90-110", "75-125", "50-150", "0-inf")
"""Allowed ranges of the column counts of tiles, in percent of their mean."""
ROWS = ("neighbours", "shuffled")
SCORES = ("mean", "rms")
SMALL_HEIGHTS = ("64", "128", "256")
PERCENTS = ("1", "2", "5")
"""Choices for the percentage of all elements that the sparse part of a two-part plan may keep."""


def groups_of(shapes: Mapping[str, tuple[int, int]]) -> dict[str, str]:
    """Return layer -> its group: `tall` (more rows than columns), `wide` (fewer) or `square`.

    Layers are grouped by shape because the shape determines the number of tiles and the work of each tile,
    and therefore which patterns are suitable.

    Parameters
    ----------
    shapes : layer -> (M, K)
    """
    return {name: _group(m, k) for name, (m, k) in shapes.items()}


def _group(m: int, k: int) -> str:
    if m == k:
        return "square"
    return "tall" if m > k else "wide"


def plain_params(groups: Sequence[str]) -> dict[str, str]:
    """Return the settings of the trial without additional patterns."""
    return {f"{group} family": NOTHING for group in groups}


def patterns_from(choose: Choose, groups: Sequence[str]) -> dict[str, str]:
    """Return group -> additional pattern string, without groups that get none.

    Parameters
    ----------
    choose : returns the value of a setting, given the setting's name and choices. The value is drawn by a
        sampler or read from a stored trial
    groups : names of the groups of layers
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
"""Offsets of the sparsities at which an additional pattern is tried, from the sparsity that the layer has
without the pattern. A better pattern changes the sparsity only slightly."""
FROM_DENSE = (0.5, 0.6, 0.7, 0.8, 0.9)
"""Sparsities at which an additional pattern is tried for layers that stay dense without the pattern."""


class Evaluator:
    """Evaluator of trials: prunes the model to its targets with additional patterns.

    The options of all layers are computed when the first result is requested. Those of additional patterns
    are cached, since most patterns recur in later trials.

    Parameters
    ----------
    search : search of the model
    targets : targets of every result
    """

    def __init__(self, search: ModelSearch, targets: Targets) -> None:
        self.search = search
        self.groups = groups_of({name: layer.shape for name, layer in search.workload.layers.items()})
        self.targets = targets
        self._made: dict[tuple[str, str], tuple[Options, ...]] = {}
        """Options of a pattern, by layer and pattern; empty if the layer or the GPU does not support it."""

    def plain(self) -> TargetResult:
        """Return the result of the search without a trial's additional patterns.

        Raises
        ------
        BadInput : the targets cannot be met
        """
        self._prepare()
        return prune_to_targets(self.search, self.targets)

    def result(self, patterns: Mapping[str, str], plain: TargetResult) -> TargetResult:
        """Return the result of the search if each layer may also get the additional pattern of its group.

        Parameters
        ----------
        patterns : group -> pattern string
        plain : the result without additional patterns

        Raises
        ------
        BadInput : no round of the search meets the targets
        """
        self._prepare()
        options = dict(self.search.options)
        for layer in plain.layers:
            pattern = patterns.get(self.groups[layer.layer])
            if pattern is not None:
                key = (layer.layer, pattern)
                if key not in self._made:
                    self._made[key] = tuple(self._options(*key, layer.removed))
                options[layer.layer] = Options.joined([options[layer.layer], *self._made[key]])
        return prune_to_targets(self.search.with_options(options), self.targets)

    def _prepare(self) -> None:
        if not self.search.options:
            self.search.prepare()

    def _options(self, layer: str, pattern: str, removed: float) -> Iterator[Options]:
        """Yield the options of a layer for an additional pattern.

        They have sparsities near `removed`, the share of the layer's weights that is removed without it.
        """
        around = [removed + step for step in STEPS] if removed else FROM_DENSE
        most = self.search.caps.get(layer, self.search.most_sparsity)
        for sparsity in sorted({round(min(sparsity, most), 3) for sparsity in around if sparsity > 0.0}):
            with suppress(BadInput):
                yield self._option(layer, parse_pattern(pattern), sparsity)

    def _option(self, layer: str, pattern: Pattern, sparsity: float) -> Options:
        search = self.search
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
    """Return the kernels to compare for a pattern: tile kernels that can run it, else its first kernel."""
    able = kernels_of(pattern)
    return tuple(kernel for kernel in tile_kernels(tokens) if kernel in able) or able[:1]
