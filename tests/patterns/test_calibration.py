"""Importance that knows what layers are given."""

import numpy as np
import pytest

from prunecast.codesign import prune
from prunecast.codesign.search import Targets, prune_model
from prunecast.errors import BadInput
from prunecast.patterns.calibration import EXPERTS, Calibration, read_calibration
from prunecast.patterns.sources import read_weights

M, K = 64, 96


@pytest.fixture
def weights():
    return np.random.default_rng(0).normal(size=(M, K)).astype(np.float32)


def squares_file(folder, **squares):
    path = folder / "squares.npz"
    np.savez(path, **squares)
    return path


def kept_columns(folder):
    """Share of each column that is left."""
    (layer,) = read_weights(folder / "weights.safetensors").layers.values()
    return (layer.weights != 0).mean(0)


def test_weights_are_multiplied_by_the_root_of_their_inputs_mean_square(weights):
    squares = np.linspace(0.0, 4.0, K, dtype=np.float32)
    known = Calibration("here", {"w": squares})
    assert np.allclose(known.weigh("w", np.abs(weights)), np.abs(weights) * np.sqrt(squares), rtol=1e-6)


def test_columns_without_input_go_first(weights, tmp_path):
    squares = np.where(np.arange(K) % 2, 1.0, 0.0)
    path = squares_file(tmp_path, w=squares)
    recipe = prune({"w": weights}, pattern="tile-wise:32", sparsity=0.5, calibrate=path, out=tmp_path / "out")
    assert np.array_equal(kept_columns(tmp_path / "out") > 0, squares > 0)
    assert recipe.document()["criterion"] == "inputs"


def test_equal_inputs_change_nothing(weights, tmp_path):
    path = squares_file(tmp_path, w=np.full(K, 2.0))
    for name, given in (("plain", None), ("calibrated", path)):
        prune({"w": weights}, pattern="unstructured", sparsity=0.6, calibrate=given, out=tmp_path / name)
    files = [read_weights(tmp_path / name / "weights.safetensors") for name in ("plain", "calibrated")]
    plain, calibrated = (next(iter(file.layers.values())).weights for file in files)
    assert np.array_equal(plain, calibrated)


def test_a_search_for_a_time_knows_the_inputs(weights, tmp_path):
    wide = np.tile(weights, (8, 8))
    squares = np.where(np.arange(8 * K) % 2, 1.0, 0.0)
    path = squares_file(tmp_path, w=squares)
    options = {"gpu": "h200-sxm", "engine": "model", "families": ("atp",), "most_sparsity": 0.6}
    found = prune_model({"w": wide}, Targets(sparsity=0.5), calibrate=path, out=tmp_path / "out", **options)
    assert found.document()["criterion"] == "inputs"
    assert (
        kept_columns(tmp_path / "out")[squares == 0].max()
        <= kept_columns(tmp_path / "out")[squares > 0].min()
    )


@pytest.mark.parametrize(
    ("squares", "said"),
    [
        ({"other": np.ones(K)}, "got none of 'w'"),
        ({"w": np.ones(K + 1)}, r"wanted 96 values, got \(97,\)"),
        ({"w": np.full(K, -1.0)}, "wanted values in"),
        ({"w": np.full(K, np.nan)}, "wanted finite values"),
    ],
)
def test_what_is_no_calibration_is_refused_and_nothing_is_written(weights, tmp_path, squares, said):
    path = squares_file(tmp_path, **squares)
    with pytest.raises(BadInput, match=said):
        prune({"w": weights}, pattern="tile-wise:32", calibrate=path, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_random_weights_of_a_standard_model_have_no_inputs(tmp_path):
    path = squares_file(tmp_path, w=np.ones(K))
    with pytest.raises(BadInput, match="has random ones"):
        prune_model("gpt2", Targets(latency_share=0.9), gpu="h200-sxm", calibrate=path)


def test_a_file_that_is_none_is_one_line(tmp_path):
    (tmp_path / "x.npz").write_bytes(b"nothing")
    with pytest.raises(BadInput):
        read_calibration(tmp_path / "x.npz")


def test_layers_that_read_some_inputs_have_the_statistics_of_those():
    """As if the inputs that are left had been observed alone."""
    inputs = np.random.default_rng(0).standard_normal((50, 4)) * [1.0, 2.0, 3.0, 4.0]
    moments = inputs.T @ inputs / 50
    known = Calibration("here", {"a": np.diag(moments).copy(), "b": moments})
    few = known.of_columns(
        {"a2": ("a", np.array([3, 1])), "b2": ("b", np.array([3, 1])), "a4": ("a", None), "c": ("none", None)}
    )
    seen = inputs[:, [3, 1]]
    alone = Calibration(
        "here", {"a2": (seen**2).mean(0), "b2": seen.T @ seen / 50, "a4": (inputs**2).mean(0)}
    )
    for name, columns in (("a2", 2), ("b2", 2), ("a4", 4)):
        ones = np.ones((3, columns), np.float32)
        assert np.allclose(few.weigh(name, ones), alone.weigh(name, ones), rtol=1e-5)
    with pytest.raises(BadInput, match="got none of 'c'"):
        few.weigh("c", np.ones((3, 4), np.float32))


def test_the_saliency_of_experts_is_that_of_their_layer():
    saliency = np.array([0.5, 2.0], np.float32)
    known = Calibration("here", {EXPERTS.format(layer=3): saliency})
    assert known.expert_saliency(3).tolist() == saliency.tolist()
    assert known.expert_saliency(3).dtype == np.float64
    assert known.expert_saliency(2) is None
