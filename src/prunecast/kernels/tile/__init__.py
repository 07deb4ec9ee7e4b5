"""Tile kernels: configs, planners, warp programs and CUDA sources.

Read first: `tile_plan.py`, which ends with the two shortest planners. `stspmm.py` is the project's own
algorithm, which splits heavy tiles along K by the costs of `item_cost.py`. These costs also rank configs.
"""

__all__: list[str] = []
