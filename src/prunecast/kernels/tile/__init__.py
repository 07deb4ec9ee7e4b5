"""Tiles on tensor cores: configs, planners, warp programs and CUDA of the project's own tile kernels.

Read first: `tile_plan.py`, which ends in the two shortest planners. `stspmm.py` is the project's own;
it splits heavy tiles along K, weighed by `item_cost.py`, which also ranks configs.
"""

__all__: list[str] = []
