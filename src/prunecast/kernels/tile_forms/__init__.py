"""Forms of the tile kernel: block shapes, registers and shared memory of each compiled variant.

Read first: `tile_variant.py`, then `tile_shapes.py`, which says what a GPU has.
"""

__all__: list[str] = []
