"""NVIDIA's library for 2:4 products (cuSPARSELt): its tiles, the choice of a tile, and its warp programs.

Read first: `kernel.py`.
"""

__all__: list[str] = []
