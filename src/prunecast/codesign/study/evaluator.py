"""`Evaluator`: what a set of patterns is worth, by the allocation over menus that hold them too."""

from collections.abc import Mapping

from prunecast.codesign.search import TargetResult, Targets
from prunecast.codesign.search.model_search import ModelSearch
from prunecast.codesign.search.target import prune_to_targets
from prunecast.codesign.study.more_options import OptionMaker
from prunecast.codesign.study.space import groups_of

__all__ = ["Evaluator"]


class Evaluator:
    """Results for patterns by group; menus are made when the first is asked for, so that none cost nothing.

    Parameters
    ----------
    search : of the model
    targets : what every result meets
    """

    def __init__(self, search: ModelSearch, targets: Targets) -> None:
        self.search = search
        self.groups = groups_of(search.layers.shapes)
        self.targets = targets
        self._maker: OptionMaker | None = None

    def plain(self) -> TargetResult:
        """The result without further patterns. Raises BadInput where the targets cannot be met."""
        self._prepare()
        return prune_to_targets(self.search, self.targets)

    def result(self, patterns: Mapping[str, str], plain: TargetResult) -> TargetResult:
        """The result where each group is offered its pattern too.

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
            self._maker = OptionMaker(self.search, removed)
        maker = self._maker
        more = {
            layer: maker.options(layer, patterns[group])
            for layer, group in self.groups.items()
            if group in patterns
        }
        return prune_to_targets(self.search.with_more(more), self.targets)

    def _prepare(self) -> None:
        if not self.search.options:
            self.search.prepare()
