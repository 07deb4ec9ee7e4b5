"""Read and write weight files: safetensors, npy and npz, Matrix Market, smtx, ONNX and torch checkpoints.

The package converts a file to named matrices and back. It does not score or prune, and it downloads nothing.
It refuses pickles, except in torch's files, which it reads with `weights_only`. Readers check headers before
they allocate memory, so that a damaged or hostile file gives an error message of one line. Heavy libraries
are imported only when a file of their kind is opened.

Layer: part of `patterns`. It imports top-level helper modules and the array types of `patterns.tile_map`.

Read first: `read` (which tensors count as weight matrices), `weight_set`, `stored_tensor`.
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
