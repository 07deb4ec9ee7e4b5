"""Arguments of `sparsify` and `fuse_dense`: a wrong one is an error that names it, and changes nothing."""

import inspect
import math

import pytest
import torch
from torch import nn

from prunecast.errors import BadInput
from prunecast.torch import fuse_dense, load, sparsify

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


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (nn.Linear(256, 256), "model is a Linear, in which no layer can be replaced: wanted nn.Sequential"),
        (nn.Sequential(nn.Linear(256, 1)), "0: 1 x 256 is no multiple of 8"),
        (nn.Sequential(nn.Conv2d(64, 64, 3, padding=1)), "its convolutions need convolutions=True"),
        (nn.Sequential(nn.ReLU()), "it has no linear layers"),
    ],
)
def test_a_model_without_a_layer_for_sparse_weights_is_refused_with_the_reason(model, reason):
    with pytest.raises(BadInput, match=reason):
        sparsify(model, "tile-wise:128", gpu="h200-sxm", max_tokens=64, sparsity=0.75)


def test_a_model_that_is_sparse_already_is_refused():
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256)).half()
    options = {"gpu": "h200-sxm", "max_tokens": 64, "sparsity": 0.75, "quiet": True}
    sparsify(model, "tile-wise:128", **options)
    with pytest.raises(BadInput, match="its layers are sparse already"):
        sparsify(model, "tile-wise:128", **options)


@pytest.mark.parametrize("arguments", [(None,), (5,), (b"n",), ("n", "bert"), ("",)])
def test_a_wrong_argument_of_load_is_named(arguments):
    with pytest.raises((TypeError, BadInput), match=r"load: (folder|model) must be") as refusal:
        load(*arguments)
    assert "\n" not in str(refusal.value)


def test_a_value_of_several_lines_is_named_in_one():
    with pytest.raises(TypeError, match="sparsify: model must be a Module, got") as refusal:
        sparsify([nn.Sequential(nn.ReLU())], "tile-wise:128", gpu="h200-sxm", max_tokens=64)
    assert "\n" not in str(refusal.value)
