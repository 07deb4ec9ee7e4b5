"""Arguments of `sparsify` and `fuse_dense`: a wrong one is an error that names it, and changes nothing."""

import inspect
import math

import pytest
import torch
from torch import nn

from prunecast.errors import BadInput
from prunecast.torch import fuse_dense, sparsify

VALID = {"recipe": "tile-wise:32", "gpu": "h200-sxm", "max_tokens": 64, "sparsity": 0.5, "quiet": True}
WRONG = {
    "None": None,
    "bytes": b"x",
    "object": object(),
    "list": [],
    "list of objects": [object()],
    "nan": math.nan,
    "negative": -1,
    "fraction": 1.5,
    "bool": True,
}
RIGHT = {
    **{name: {"list"} for name in ("target", "ignore")},
    **{name: {"bool"} for name in ("few_tokens", "fuse", "trainable", "convolutions", "only_gains", "quiet")},
}
PARAMETERS = inspect.signature(sparsify).parameters


@pytest.mark.parametrize("argument", PARAMETERS)
def test_a_wrong_argument_of_sparsify_is_named(argument):
    model = nn.Sequential(nn.Linear(64, 64, dtype=torch.float16))
    linear = model[0]
    for kind, value in WRONG.items():
        if (kind == "None" and PARAMETERS[argument].default is None) or kind in RIGHT.get(argument, ()):
            continue
        with pytest.raises((TypeError, BadInput), match=rf"\b{argument}\b"):
            sparsify(**{"model": model, **VALID, argument: value})
        assert model[0] is linear


@pytest.mark.parametrize("model", [None, 5, "model.pt", {"a": torch.zeros(2, 2)}])
def test_fuse_dense_is_of_modules(model):
    with pytest.raises(TypeError, match="fuse_dense: model must be a Module, got"):
        fuse_dense(model)
