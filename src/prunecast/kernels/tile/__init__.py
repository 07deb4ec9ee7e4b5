"""Tiles on tensor cores: the planners of the project's own tile kernels, and how they choose and cut.

Read first: `block_sparse.py`, the shortest planner, then `tile_plan.py`. `stspmm.py` is the project's own;
`choose_tiles.py` takes the form that `form_time.py` finds fastest, `splitting.py` cuts heavy tiles.
"""

__all__: list[str] = []
