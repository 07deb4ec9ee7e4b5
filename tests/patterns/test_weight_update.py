"""Kept weights make up for pruned ones: against one least-squares fit a row, and what must hold of any."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunecast.codesign import prune
from prunecast.errors import BadInput
from prunecast.patterns import parse_pattern
from prunecast.patterns.calibration import DAMPING, Calibration, damped, least_loss, updated_weights
from prunecast.patterns.sources.readers import open_tensors
from tests.naive.weight_update import rise_of_one, updated

M, K = 12, 10


def case(seed, pattern="unstructured", sparsity=0.4):
    rng = np.random.default_rng(seed)
    weights = rng.standard_normal((M, K))
    inputs = rng.standard_normal((40, K)) @ rng.standard_normal((K, K)) + rng.standard_normal(K)
    mask = parse_pattern(pattern).prune({"": np.abs(weights)}, sparsity)[""]
    return weights, mask, inputs, inputs.T @ inputs / len(inputs)


def loss(weights, changed, h):
    return float(np.einsum("mi,ij,mj->", changed - weights, h, changed - weights))


@given(st.integers(0, 10**6), st.sampled_from(["unstructured", "tile-wise:4", "2:4", "block:3x2"]))
def test_every_row_is_a_least_squares_fit(seed, pattern):
    weights, mask, inputs, h = case(seed, pattern, None if pattern == "2:4" else 0.4)
    found = updated_weights(weights, mask, h)
    assert np.allclose(found, updated(weights, mask, inputs, DAMPING), rtol=1e-6, atol=1e-8)
    assert not found[~mask].any()


@given(st.integers(0, 10**6))
def test_no_other_kept_weights_come_nearer(seed):
    weights, mask, _, h = case(seed)
    found, rng = updated_weights(weights, mask, h), np.random.default_rng(seed)
    least = loss(weights, found, damped(h))
    assert least <= loss(weights, np.where(mask, weights, 0.0), damped(h)) * (1 + 1e-9)
    for _ in range(5):
        other = found + 0.1 * rng.standard_normal(found.shape) * mask
        assert least <= loss(weights, other, damped(h)) * (1 + 1e-9)


def test_nothing_pruned_changes_nothing_and_all_pruned_leaves_nothing():
    weights, mask, _, h = case(0)
    assert np.array_equal(updated_weights(weights, np.ones_like(mask), h), weights)
    assert not updated_weights(weights, np.zeros_like(mask), h).any()


def test_inputs_that_do_not_go_together_move_nothing():
    weights, mask, _, _ = case(0)
    found = updated_weights(weights, mask, np.diag(np.arange(1.0, K + 1)))
    assert np.allclose(found, np.where(mask, weights, 0.0))


def test_an_input_twice_is_taken_over_by_its_copy():
    h = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    found = updated_weights(np.array([[2.0, 3.0, 5.0]]), np.array([[True, False, True]]), h)
    assert found[0] == pytest.approx([2.0 + 3.0 / (1.0 + DAMPING), 0.0, 5.0])


def test_the_least_loss_of_a_weight_is_that_of_pruning_it_alone():
    _, _, inputs, h = case(3)
    found = least_loss(h)
    for column in range(K):
        assert found[column] == pytest.approx(rise_of_one(inputs, DAMPING, column), rel=1e-6)


def test_inputs_that_are_all_zero_can_be_asked_for():
    assert np.array_equal(least_loss(np.zeros((3, 3))), np.ones(3))


@pytest.mark.parametrize("moments", [np.eye(K + 1), np.full((K, K), np.nan), np.ones(K)])
def test_moments_that_do_not_fit_are_refused(moments):
    weights, mask, _, _ = case(0)
    with pytest.raises(BadInput):
        updated_weights(weights, mask, moments)


@pytest.mark.parametrize("moments", [np.full((K, K), np.nan), np.ones((K, K + 1))])
def test_the_file_and_the_layer_of_such_moments_are_named(moments):
    with pytest.raises(BadInput, match=r"m\.npz: 'w': second moments must be finite, \(K, K\), got"):
        Calibration("m.npz", {"w": moments}).weigh("w", np.ones((2, K), np.float32))


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_pruned_files_hold_updated_weights(dtype, tmp_path):
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((64, 32)).astype(dtype)
    inputs = rng.standard_normal((200, 32)) @ rng.standard_normal((32, 32))
    moments = (inputs.T @ inputs / 200).astype(np.float32)
    np.savez(tmp_path / "moments.npz", w=moments)
    options = {"pattern": "tile-wise:32", "sparsity": 0.5}
    prune({"w": weights}, **options, calibrate=tmp_path / "moments.npz", out=tmp_path / "out")
    found = open_tensors(tmp_path / "out/weights.safetensors")["w"].load()
    importance = Calibration("", {"w": moments}).weigh("w", np.abs(weights).astype(np.float32))
    mask = parse_pattern(options["pattern"]).prune({"w": importance}, 0.5)["w"]
    assert found.dtype == dtype
    assert np.array_equal(found, updated_weights(weights.astype(float), mask, moments).astype(dtype))
