"""Weight files in and out: safetensors, npy and npz, Matrix Market, smtx. No pickles, ever.

This room turns a file into named matrices and back. It does not score or prune, and it downloads nothing.
A reader looks at headers first, so that a damaged or hostile file is one line of error and not an
allocation; heavy libraries are imported when a file of their kind is opened.

Floor: inside `patterns`; it imports `errors` and the array types of `patterns.tile_map`.

Read first: `read` (what counts as a weight matrix), `weight_set`, `stored_tensor`.
"""

from prunecast.patterns.sources.checkpoint import Checkpoint, masked_checkpoint
from prunecast.patterns.sources.read import read_weights
from prunecast.patterns.sources.weight_set import FilterShape, Layer, WeightSet, write_weights

__all__ = [
    "Checkpoint",
    "FilterShape",
    "Layer",
    "WeightSet",
    "masked_checkpoint",
    "read_weights",
    "write_weights",
]
