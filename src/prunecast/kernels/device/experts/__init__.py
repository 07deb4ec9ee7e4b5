"""Launches around the products of experts: columns of B for tokens, lists of items, gated units, sums.

They are part of no plan; predictions count them by their bytes.
"""

__all__: list[str] = []
