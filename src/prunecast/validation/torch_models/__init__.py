"""Build, time and trace whole models in PyTorch, dense and pruned, and compare them with their predictions.

Layer: part of `validation`. `torch` and `transformers` are imported only when a model is measured. Read
first: `measure.py`.
"""

from prunecast.validation.torch_models.predicted import ModelCase

__all__ = ["ModelCase"]
