"""Choosing: the plan of a kernel in its fastest config for what a layer keeps.

Floor: above `prunecast.models`, whose estimates decide, and below `prunecast.codesign`. Planners, in
`prunecast.kernels`, are given a config. Read first: `fastest.py`, in which a roofline ranks
configs, so that few of them are planned.
"""

from prunecast.choice.fastest import (
    SEARCHED,
    PrunedMap,
    configs_of,
    fastest_plan,
    kept_estimate,
    plan_with,
    plans_with,
)

__all__ = ["SEARCHED", "PrunedMap", "configs_of", "fastest_plan", "kept_estimate", "plan_with", "plans_with"]
