"""The vendor's dense product (cuBLAS): its kernels, which of them it chooses, and what their warps do.

Its choices are not public: every form that it may have is timed by arithmetic, and the fastest is taken.
Read first: `planner.py`, `forms.py`, `times.py`.
"""

__all__: list[str] = []
