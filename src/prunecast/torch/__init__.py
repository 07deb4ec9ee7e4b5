"""PyTorch: prune a model while it trains, and run its pruned layers on the project's kernels.

Layer: imports `codesign`; is imported by `validation`. `codesign/schedule*.py` and `patterns` compute the
schedule and the masks as NumPy arrays. This package applies the masks to parameters and gradients, and again
after every optimizer step. It contains no training loop; predicted times come from `choice` and `workload`.
Importing this package does not import PyTorch: each name below is loaded at its first use, which needs
PyTorch.

Read first: `pruner.py`; for inference `convert.py`, then `packed.py`, `sparse_linear.py` and `ops.py`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prunecast.torch.attention import PreparedAttention, attention_kernels, prepare_attention
    from prunecast.torch.calibrate import (
        expert_saliency,
        input_moments,
        input_squares,
        layer_costs,
        update_weights,
    )
    from prunecast.torch.conv import SparseConv2d, TileSparseConv2d
    from prunecast.torch.convert import Sparsified, sparsify
    from prunecast.torch.experts import SparseExperts
    from prunecast.torch.load_model import load
    from prunecast.torch.pruner import Pruner
    from prunecast.torch.sparse_linear import SparseLinear, TileSparseLinear, fuse_dense

__all__ = [
    "PreparedAttention",
    "Pruner",
    "SparseConv2d",
    "SparseExperts",
    "SparseLinear",
    "Sparsified",
    "TileSparseConv2d",
    "TileSparseLinear",
    "attention_kernels",
    "expert_saliency",
    "fuse_dense",
    "input_moments",
    "input_squares",
    "layer_costs",
    "load",
    "prepare_attention",
    "sparsify",
    "update_weights",
]

_NAMES = {
    "attention": ("PreparedAttention", "attention_kernels", "prepare_attention"),
    "calibrate": ("expert_saliency", "input_moments", "input_squares", "layer_costs", "update_weights"),
    "conv": ("SparseConv2d", "TileSparseConv2d"),
    "convert": ("Sparsified", "sparsify"),
    "experts": ("SparseExperts",),
    "load_model": ("load",),
    "pruner": ("Pruner",),
    "sparse_linear": ("SparseLinear", "TileSparseLinear", "fuse_dense"),
}
_HOME = {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> object:
    """Load a public name from its module at its first use (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module 'prunecast.torch' has no attribute {name!r}")
    value: object = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
