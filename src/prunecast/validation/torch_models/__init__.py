"""Whole models on a GPU in PyTorch, dense and pruned: built, timed, traced, set beside their predictions.

Floor: inside `validation`. It imports torch when something is measured; `transformers` where it is installed.
Read first: `measure.py`.
"""

from prunecast.validation.torch_models.predicted import Case

__all__ = ["Case"]
