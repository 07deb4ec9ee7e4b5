"""Tile kernels on tensor cores: configs, planners, warp programs and CUDA sources of the project's own
kernels.

Read first: `tile_plan.py`, which ends with the two shortest planners. `stspmm.py` is the project's own
algorithm: it splits heavy tiles along K, with the costs of `item_cost.py`, which also ranks configs.
"""

__all__: list[str] = []
