"""The kernel for few tokens: tiles whose weights are read once, by warps that need no barrier in the main
loop.

Read first: `kernel.py` (planner), then `configs.py` and `programs.py`.
"""

__all__: list[str] = []
