"""The vendor's 2:4 product (cuSPARSELt): its tiles, the choice of a tile, and its warp programs.

Read first: `kernel.py`.
"""

__all__: list[str] = []
