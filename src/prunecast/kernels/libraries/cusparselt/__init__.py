"""The vendor's 2:4 product (cuSPARSELt): its tiles, which one is taken, and what their warps do.

Read first: `kernel.py`.
"""

__all__: list[str] = []
