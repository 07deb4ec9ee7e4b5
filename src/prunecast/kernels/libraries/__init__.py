"""Vendors' libraries, predicted but not compiled: cuBLAS and cuSPARSE, each a `Surrogate` with its tables.

Read first: `surrogate.py`.
"""

__all__: list[str] = []
