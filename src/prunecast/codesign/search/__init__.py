"""Search for the pattern, density and kernel of each layer with which a model meets its targets.

Layer: inside `codesign`, above `graph`. This package requests times from the engines and masks from the
patterns, and selects between options. It contains neither performance models nor pruning rules. The options
of one layer are called its menu, the classes of a multiple-choice knapsack.

Read first: `allocation.py` (the knapsack), `menus.py` (the options of a layer), `target.py` (the loop).
"""

from prunecast.codesign.search.allocation import Menu, allocate
from prunecast.codesign.search.prune_model import PrunedModel, prune_model
from prunecast.codesign.search.targets import ChosenLayer, FrontPoint, TargetResult, Targets, parse_latency

__all__ = [
    "ChosenLayer",
    "FrontPoint",
    "Menu",
    "PrunedModel",
    "TargetResult",
    "Targets",
    "allocate",
    "parse_latency",
    "prune_model",
]
