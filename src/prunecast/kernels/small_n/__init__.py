"""The kernel for few tokens: tiles whose weights are read once, by warps that never wait for one another.

Read first: `kernel.py` (planner), `configs.py`, `programs.py`.
"""

__all__: list[str] = []
