"""A pattern of your own: every tile keeps one run of neighbouring columns. Nothing but the mask is needed."""

import numpy as np

import prunecast
from prunecast.choice import fastest_plan
from prunecast.patterns import tile_map_from_mask

HEIGHT = 128


def run_mask(importance: np.ndarray, share: float) -> np.ndarray:
    """Mask (M, K): the run of share * K columns that retains most, tile by tile."""
    length = round(share * importance.shape[1])
    mask = np.zeros(importance.shape, dtype=np.bool_)
    for top in range(0, importance.shape[0], HEIGHT):
        sums = np.cumsum(importance[top : top + HEIGHT].sum(axis=0))
        first = int(np.argmax(sums[length:] - sums[:-length])) + 1
        mask[top : top + HEIGHT, first : first + length] = True
    return mask


importance = np.abs(np.random.default_rng(0).normal(size=(1024, 2048)))
gpu = prunecast.load_gpu("h200-sxm")
tiles = tile_map_from_mask(run_mask(importance, 0.25), height=HEIGHT, pattern="runs:128")
result = prunecast.estimate(fastest_plan("stspmm", tiles, 4096, "fp16", gpu), gpu)
print(f"{tiles.tile_count} tiles, density {tiles.density:.2f}")
print(f"{1e6 * result.seconds:.1f} us, bound by {result.bound}")
