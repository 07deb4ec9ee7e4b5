"""Search for the pattern, density and kernel of each layer with which a model meets its targets.

Layer: part of `codesign`; imports `workload.graph`. This package gets times from the engines and masks from
the patterns, and selects one option for each layer. It contains neither performance models nor pruning rules.
The selection is a multiple-choice knapsack problem. A class of it is the list of options of one layer, with
the seconds, the retained importance and the number of kept weights of each option.

Read first: `allocation.py` (the knapsack), `layer_options.py`, `target.py` (its loop of
rounds), `rounds.py` (a round), `even_shares.py` (one sparsity for all layers).
"""

from prunecast.codesign.search.allocation import OptionValues, allocate
from prunecast.codesign.search.prune_model import PrunedModel, prune_model
from prunecast.codesign.search.targets import ChosenLayer, FrontPoint, TargetResult, Targets, parse_latency

__all__ = [
    "ChosenLayer",
    "FrontPoint",
    "OptionValues",
    "PrunedModel",
    "TargetResult",
    "Targets",
    "allocate",
    "parse_latency",
    "prune_model",
]
