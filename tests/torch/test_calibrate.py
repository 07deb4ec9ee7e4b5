"""Mean squares of inputs, and pruning by them."""

import copy

import numpy as np
import pytest
import torch

from prunecast.errors import BadInput
from prunecast.patterns import parse_pattern
from prunecast.patterns.calibration import Calibration, read_calibration
from prunecast.torch import input_moments, input_squares, layer_costs, sparsify, update_weights
from prunecast.torch.calibrate import _weighted_norms


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


def test_moments_are_the_mean_products_of_inputs_and_updates_follow_them(tmp_path):
    made, x = model().float(), torch.randn(300, 48) @ torch.randn(48, 48)
    moments = input_moments(made, lambda: [made(part) for part in x.split(100)], tmp_path / "m.safetensors")
    wanted = (x.double().t() @ x.double() / 300).numpy()
    assert np.allclose(moments["0.weight"], wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())
    assert read_calibration(tmp_path / "m.safetensors").weigh("2.weight", np.ones((48, 64))).shape == (48, 64)
    dense, mask = made[0].weight.detach().clone(), np.arange(48) % 3 > 0
    masks = {"0.weight": np.tile(mask, (64, 1))}
    update_weights(made, masks, moments)
    assert np.array_equal((made[0].weight != 0).numpy(), masks["0.weight"])
    pruned = dense * torch.from_numpy(mask)
    errors = [float((x @ (each - dense).t()).detach().square().mean()) for each in (made[0].weight, pruned)]
    assert errors[0] < 0.8 * errors[1]
    with pytest.raises(BadInput, match=r"got none of '2\.weight'"):
        update_weights(made, {"2.weight": np.ones((48, 64), bool)}, {"0.weight": moments["0.weight"]})


def lost_alone(made, name, mask, x):
    """How far outputs are with one layer pruned, by definition."""
    other = copy.deepcopy(made)
    with torch.no_grad():
        other.get_parameter(name).mul_(torch.from_numpy(mask))
        return float((other(x) - made(x)).square().mean())


def half_of(importance):
    pattern = parse_pattern(f"tile-wise:{len(importance)}")
    return pattern.prune({"": importance}, 0.5)[""]


def test_costs_are_what_layers_lose_when_each_is_pruned_alone():
    made, x = model().float(), torch.randn(50, 48)
    weights = {name: each.data for name, each in made.named_parameters() if each.dim() == 2}
    importance = {name: each.abs().numpy() for name, each in weights.items()}
    before, dense = copy.deepcopy(made.state_dict()), made(x).detach()
    costs = layer_costs(weights, importance, lambda: float((made(x) - dense).square().mean()))
    for name, scores in importance.items():
        mask = half_of(scores)
        assert costs[name] * scores.sum(where=~mask) == pytest.approx(
            lost_alone(made, name, mask, x), rel=1e-4
        )
    assert all(torch.equal(before[name], each) for name, each in made.state_dict().items())


def test_squares_by_loss_let_layers_compete_by_what_they_lose():
    made, x = model().float(), torch.randn(50, 48)
    with torch.no_grad():
        made[0].weight *= 100  # what follows undoes it: the layer matters no more than before
        made[0].bias *= 100
        made[2].weight /= 100
    dense = made(x).detach()
    squares = input_squares(made, lambda: made(x), loss=lambda: float((made(x) - dense).square().mean()))
    known, removed, lost = Calibration("squares", squares), {}, {}
    for name, each in made.named_parameters():
        if each.dim() == 2:
            importance = known.weigh(name, each.detach().abs().numpy())
            mask = half_of(importance)
            removed[name], lost[name] = importance.sum(where=~mask), lost_alone(made, name, mask, x)
    shares = [removed[name] / lost[name] for name in lost]
    assert shares[0] == pytest.approx(shares[1], rel=1e-3)


class Scaling(torch.nn.Module):
    """Experts that multiply x by their index and 1."""

    def forward(self, x, chosen, weights):
        return ((chosen + 1) * weights).sum(1, keepdim=True) * x


def test_experts_are_as_important_as_the_weighted_norms_of_their_outputs():
    """Tokens of norms 5, 10 and 0 choose two of three experts each."""
    x = torch.tensor([[3.0, 4.0], [6.0, -8.0], [0.0, 0.0]])
    chosen = torch.tensor([[0, 2], [2, 1], [0, 1]])
    weights = torch.tensor([[0.5, 0.25], [0.75, 0.125], [1.0, 1.0]])
    found = _weighted_norms(Scaling(), x, chosen, weights)
    wanted = {0: [0.5 * 5, 0.0], 1: [0.125 * 2 * 10, 0.0], 2: [0.25 * 3 * 5, 0.75 * 3 * 10]}
    assert {expert: norms.tolist() for expert, norms in found.items()} == wanted
