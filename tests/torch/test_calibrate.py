"""Mean squares of inputs, and pruning by them."""

import numpy as np
import pytest
import torch

from prunecast.errors import BadInput
from prunecast.patterns.calibration import read_calibration
from prunecast.torch import input_squares, sparsify


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(48, 64), torch.nn.ReLU(), torch.nn.Linear(64, 48)).half()


def test_mean_squares_are_those_of_all_tokens_of_all_passes(tmp_path):
    made, x = model(), torch.randn(5, 7, 48).half()
    found = input_squares(made, lambda: [made(part) for part in x], tmp_path / "squares.safetensors")
    hidden = made[1](made[0](x)).reshape(-1, 64).detach().double()
    assert list(found) == ["0.weight", "2.weight"]
    assert np.allclose(found["0.weight"], x.double().reshape(-1, 48).square().mean(0), rtol=1e-5)
    assert np.allclose(found["2.weight"], hidden.square().mean(0), rtol=1e-2, atol=1e-6)
    known, magnitudes = read_calibration(tmp_path / "squares.safetensors"), np.ones((64, 48), np.float32)
    assert np.allclose(known.weigh("0.weight", magnitudes)[0] ** 2, found["0.weight"], rtol=1e-5)
    assert not made[0]._forward_pre_hooks


def test_sparsify_keeps_the_columns_that_have_input():
    made = model()
    used = torch.arange(48) % 2
    squares = input_squares(made, lambda: made(torch.randn(200, 48).half() * used))
    sparsify(made, "tile-wise:32", sparsity=0.5, squares=squares, gpu="h200-sxm", max_tokens=64, quiet=True)
    assert torch.equal(made[0].weight.count_nonzero(0) > 0, used > 0)


def test_a_pass_that_reaches_no_layer_is_said():
    with pytest.raises(BadInput, match="wanted passes through linear layers"):
        input_squares(model(), lambda: None)
