"""What each pattern keeps of trained weights at 75 %, how uneven its tiles are, and the time that it buys."""

from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

import prunecast

LAYER = "blocks.0.ffn.up.weight"
PATTERNS = (
    "tile-wise:128",
    "atp:128",
    "atp:128:shuffled",
    "vector-wise:64",
    "shuffled-block:64",
    "block:64x64",
)

weights = load_file(Path(__file__).parent / "stdlib_lm" / "weights.safetensors")[LAYER]
importance = np.abs(weights.astype(np.float64))
for pattern in PATTERNS:
    table = prunecast.predict(
        weights,
        gpu="h200-sxm",
        tokens=32768,
        pattern=pattern,
        sparsity=0.75,
        engine="model",
        crossovers=False,
    )
    best = min(table[1:], key=lambda row: row.seconds)
    tiles = best.plan.tiles
    kept = importance[tiles.mask()].sum() / importance.sum()
    uneven = tiles.kept_per_tile.max() / tiles.kept_per_tile.mean()
    print(f"{pattern:18} keeps {kept:.1%}, {best.latency_us:5.1f} us, most over mean of tiles {uneven:.2f}")
