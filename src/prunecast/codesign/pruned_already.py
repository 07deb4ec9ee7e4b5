"""Weights that come pruned: said in a note, and run as they are by every kernel that their zeros allow."""

import numpy as np

from prunecast.codesign.contestants import Contestant, contestants, takes
from prunecast.patterns.sources import Layer

FEWEST_ZEROS = 0.05
"""Share of zeros that deserves a note: rounding to half precision makes fewer."""
IN_TILES = "zero-tiles:64"
"""Holds what was pruned in tiles of any multiple of 64 rows."""
TILE_KERNELS = ("tile-wise", "stspmm", "small-n")


def zeros_note(layer: Layer) -> str | None:
    """Says that a layer is pruned already, and whether it fits 2:4."""
    kept = layer.kept
    share = 1.0 - float(np.count_nonzero(kept)) / kept.size
    if share < FEWEST_ZEROS:
        return None
    fits = " and fit 2:4" if _fits_two_of_four(layer) else ""
    return f"{share:.0%} of these weights are zero already{fits}: --pattern zeros runs them as they are"


def _fits_two_of_four(layer: Layer) -> bool:
    m, k = layer.weights.shape
    whole = k // 4 * 4
    counts = layer.kept[:, :whole].reshape(m, -1, 4).sum(axis=2, dtype=np.uint8)
    return bool(whole) and bool((counts <= 2).all())


def zeros_contestants(tokens: int) -> tuple[Contestant, ...]:
    """Kernels that may run the zeros of a file: of elements, 2:4, and of tiles that hold them."""
    found = contestants("all", "zeros", tokens)
    tiles = [Contestant(kernel, IN_TILES) for kernel in TILE_KERNELS if takes(kernel, tokens)]
    return (*found, *tiles, Contestant("2:4", "zeros"))
