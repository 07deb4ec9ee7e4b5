"""Search: which pattern, density and kernel each layer of a model gets, so that the whole meets its targets.

Floor: inside `codesign`, above `graph`. It asks the engines for times and the patterns for masks, and decides
between options; it knows nothing about how a time is predicted or a mask is made.

Read first: `allocation.py` (the choice), `menus.py` (what there is to choose from), `target.py` (the loop).
"""

from prunecast.codesign.search.allocation import Menu, allocate
from prunecast.codesign.search.prune_model import PrunedModel, prune_model
from prunecast.codesign.search.targets import (
    ChosenLayer,
    FrontPoint,
    TargetResult,
    Targets,
    parse_latency,
)

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
