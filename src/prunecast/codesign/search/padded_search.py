"""`PaddedSearch`: what `prune --latency` would reach if sequences were padded to a multiple of 8 tokens."""

import math
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from prunecast.codesign.padding import padded_workload
from prunecast.codesign.search.floor import fastest_options
from prunecast.codesign.search.model_search import ModelSearch
from prunecast.codesign.search.rounds import MOST_REFINED_WEIGHTS
from prunecast.codesign.search.targets import TargetResult, Targets
from prunecast.errors import BadInput

LEAST_MORE = 0.005
"""Share of the importance that padding must keep in addition to be mentioned. Kind: choice."""


class PaddedSearch(NamedTuple):
    """A search, its targets, and a function that returns the search of the model with another workload.

    Large models and targets without a time are not searched again.
    """

    search: ModelSearch
    targets: Targets
    make: Callable[[str], ModelSearch]

    def remark(self, result: TargetResult, prune: Callable[[ModelSearch, Targets], TargetResult]) -> str:
        """Return a line if the padded model keeps more importance in the same time; else empty.

        Parameters
        ----------
        result : result without padding
        prune : prunes a model to targets
        """
        workload, limits = self._workload(), self.search.limits(self.targets)
        if not workload or result.sparsity == 0.0:
            return ""
        padded = self.make(workload)
        padded.prepare()
        with suppress(BadInput):  # the padded model does not meet the targets
            sparsity = self.targets.sparsity
            kept = prune(padded, Targets(latency_s=limits.seconds, sparsity=sparsity)).retained_importance
            if kept > result.retained_importance + LEAST_MORE:
                return (
                    f"padded to --workload {workload} the same time would keep {kept:.1%} of the importance"
                )
        return ""

    def floor_remark(self) -> str:
        """Return the estimated least time of the padded model if that is less than without padding."""
        workload = self._workload()
        if not workload:
            return ""
        padded = self.make(workload)
        padded.prepare()
        times_s = [fastest_options(search, {}).seconds for search in (padded, self.search)]
        if times_s[0] >= times_s[1]:
            return ""
        return f"padded to --workload {workload} the fastest model would need {1e6 * times_s[0]:.1f} us"

    def _workload(self) -> str:
        """Return the text of the padded workload; empty if it is not searched."""
        is_large = self.search.workload.weights > MOST_REFINED_WEIGHTS
        is_timed = not math.isinf(self.search.limits(self.targets).seconds)
        return padded_workload(self.search.workload) if is_timed and not is_large else ""
