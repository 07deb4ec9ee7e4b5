"""Kernels around the grouped products of experts: routing, work lists, gated units, sums over experts.

They are not part of any plan; predictions account for them by the bytes that they move.
"""

__all__: list[str] = []
