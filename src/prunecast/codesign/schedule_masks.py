"""Masks at the intermediate sparsities of a pruning schedule.

A weight that was pruned should stay pruned at later stages. There are two methods:

* `stepwise`: the mask of every stage has the pattern. Pruned weights get importance 0. Patterns that divide
  the matrix into fixed pieces and drop the least important ones (`NESTED_FAMILIES`) therefore never restore a
  weight. Other families divide the matrix anew at every stage and may restore weights.
* `towards`: the final mask is chosen at the first stage. The weights outside it are then pruned stage by
  stage, the least important first. No weight is ever restored, but only the last mask has the pattern.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput, check_choice
from prunecast.patterns.adaptive_tile_pattern import AdaptiveTilePattern
from prunecast.patterns.cut import CountArray, elements_to_prune, keep_highest
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.pattern import Pattern
from prunecast.patterns.shuffled_block import ShuffledBlockPattern, group_rows, prune_in_groups
from prunecast.patterns.tile_map import MaskArray

WAYS = ("stepwise", "towards")
NESTED_FAMILIES = frozenset(
    {"unstructured", "block", "balanced", "vector-wise", "shuffled-block", "tile-wise", "atp", "dense"}
)
"""Pattern families for which `stepwise` never restores a weight: each mask is a subset of the mask of the
stage before. Families that shuffle rows form their groups of rows once, at the first stage."""


def natural_way(pattern: Pattern, scope: str = "layer") -> str:
    """Return `stepwise` if it never restores a weight of this pattern, else `towards`.

    With the scope `global`, patterns with shuffled rows need `towards` too.
    """
    anew = pattern.family not in NESTED_FAMILIES or (scope == "global" and _shuffles(pattern))
    return "towards" if anew else "stepwise"


class MaskPath:
    """The masks of all layers during a pruning schedule, from dense to the pattern.

    Parameters
    ----------
    pattern : pattern of the last masks
    sparsity : sparsity of the last masks; None for patterns with a fixed sparsity
    scope : `layer`, or `global` to rank the weights of all layers together that are pruned in one call
    way : method, `stepwise` or `towards`; None for the result of `natural_way`
    final : layer -> its last mask, if the last masks are known. Only weights outside of these masks are then
        pruned, whatever the pattern. After each stage, every layer has lost the same share of these weights

    Raises
    ------
    BadInput : the pattern cannot have the sparsity, or the method is unknown
    """

    def __init__(
        self,
        pattern: Pattern,
        sparsity: float | None,
        *,
        scope: str = "layer",
        way: str | None = None,
        final: Mapping[str, MaskArray] | None = None,
    ) -> None:
        self.pattern = pattern
        self.sparsity = pattern.sparsity_to_prune(sparsity)
        self.way = natural_way(pattern, scope) if way is None else check_choice("way", way, WAYS)
        self.masks: dict[str, MaskArray] = {}
        """Layer -> its current mask."""
        self._given_sparsity = sparsity
        self.scope = scope
        self._groups: dict[str, CountArray] = {}
        self._final, self._is_given = dict(final or {}), final is not None

    def advance(self, importances: Mapping[str, ImportanceArray], sparsity: float) -> dict[str, MaskArray]:
        """Prune some or all layers to `sparsity` and return their masks.

        Parameters
        ----------
        importances : layer -> importance (M, K), not negative
        sparsity : at most the sparsity of the last masks

        Raises
        ------
        BadInput : the sparsity is above that of the last masks, or the pattern cannot rank the importance
        """
        if sparsity > self.sparsity + 1e-12:
            raise BadInput(f"sparsity: wanted at most the final {self.sparsity}, got {sparsity}")
        last = sparsity >= self.sparsity - 1e-12
        alive = {name: without_pruned(scores, self.masks.get(name)) for name, scores in importances.items()}
        if self.way == "towards" or self._is_given:
            found = {name: self._nearer(name, alive, sparsity, last=last) for name in alive}
        else:
            found = self._stepwise(alive, self._given_sparsity if last else sparsity)
        self.masks.update(found)
        return {name: self.masks[name] for name in importances}

    def state(self) -> dict[str, dict[str, MaskArray] | dict[str, CountArray]]:
        """Return the state as arrays for each layer, to be passed to `take_state` of an equal `MaskPath`."""
        return {"masks": dict(self.masks), "groups": dict(self._groups), "final": dict(self._final)}

    def take_state(self, state: Mapping[str, Mapping[str, npt.ArrayLike]]) -> None:
        """Continue from a state that `state` of another `MaskPath` returned."""
        self.masks, self._groups, final = (
            {name: np.asarray(array) for name, array in state[part].items()}
            for part in ("masks", "groups", "final")
        )
        self._final |= final

    def _stepwise(self, alive: Mapping[str, ImportanceArray], sparsity: float | None) -> dict[str, MaskArray]:
        # A coarse pattern may remove all of a small layer before the last stage
        gone = {name for name, mask in self.masks.items() if not mask.any()}
        going = {name: scores for name, scores in alive.items() if name not in gone}
        if self.scope == "layer" or not going:
            return {name: self._alone(name, scores, sparsity) for name, scores in going.items()}
        wanted = self._at_least(sparsity, alive)
        if wanted is not None:
            share = _size(alive) / _size(going)
            wanted = max(1.0 - (1.0 - wanted) * share, 0.0)
        return self.pattern.prune(going, wanted, self.scope)

    def _alone(self, name: str, scores: ImportanceArray, sparsity: float | None) -> MaskArray:
        wanted = self._at_least(sparsity, (name,))
        if wanted is None or not _shuffles(self.pattern):
            return self.pattern.prune({name: scores}, wanted)[name]
        if name not in self._groups:
            height = self.pattern.parameters["height"]
            self._groups[name] = group_rows(scores, self.sparsity, height=height)
        if isinstance(self.pattern, AdaptiveTilePattern):
            # Each adaptive tile has the rows of one group; groups with fewer rows come last
            groups = self._groups[name]
            order = np.lexsort((groups, -np.bincount(groups)[groups]))
            mask: MaskArray = np.empty(scores.shape, dtype=np.bool_)
            own = replace(self.pattern, shuffled=False)
            mask[order] = own.prune({"": scores[order]}, wanted)[""]
            return mask
        return prune_in_groups(scores, wanted, self._groups[name])

    def _at_least(self, sparsity: float | None, layers: Iterable[str]) -> float | None:
        """Return the larger of `sparsity` and the present sparsity of the layers.

        A coarse pattern may exceed the sparsity of a stage. If the next stage then had a lower sparsity, it
        would restore weights.
        """
        known = [self.masks[name] for name in layers if name in self.masks]
        total = sum(mask.size for mask in known)
        if sparsity is None or total == 0:
            return sparsity
        return max(sparsity, 1.0 - sum(int(mask.sum()) for mask in known) / total)

    def _nearer(
        self, name: str, alive: Mapping[str, ImportanceArray], sparsity: float, *, last: bool
    ) -> MaskArray:
        if name not in self._final:
            self._final |= self.pattern.prune(alive, self._given_sparsity, self.scope)
        final = self._final[name]
        if last:
            return final
        scores = alive[name].astype(np.float64)
        above_all = 2.0 * float(scores.max())
        pruned = final.size - int(final.sum())
        target = min(elements_to_prune(sparsity, final.size), pruned)
        if self._is_given:
            target = elements_to_prune(sparsity / self.sparsity, pruned)
        ranked = {name: np.where(final, above_all, scores)}
        return keep_highest(ranked, {name: np.ones(1, np.int64)}, target)[name]


def without_pruned(scores: ImportanceArray, mask: MaskArray | None) -> ImportanceArray:
    """Return `scores` (M, K) with 0 where the mask is False, and more than 0 where it is True."""
    if mask is None:
        return scores
    return np.where(mask, np.maximum(scores, np.finfo(scores.dtype).tiny), scores.dtype.type(0))


def _size(layers: Mapping[str, ImportanceArray]) -> int:
    return sum(scores.size for scores in layers.values())


def _shuffles(pattern: Pattern) -> bool:
    adaptive = isinstance(pattern, AdaptiveTilePattern) and pattern.shuffled and not pattern.rows_first
    return adaptive or isinstance(pattern, ShuffledBlockPattern)
