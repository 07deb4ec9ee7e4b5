"""The kernel for few tokens: tiles whose weights are read once, by warps that need no barrier in the main
loop.

Read first: `kernel.py` (planner), `configs.py`, `programs.py`.
"""

__all__: list[str] = []
