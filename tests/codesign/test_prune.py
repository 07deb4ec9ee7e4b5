import json
import os

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from prunecast.codesign import predict, prune
from prunecast.codesign.tile_maps import read_tile_maps
from prunecast.errors import BadInput
from prunecast.patterns import parse_pattern, weigh
from tests.codesign.weights import uneven

PATTERN = "tile-wise:64"


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.safetensors"
    tensors = {
        "a.weight": uneven(256, 128),
        "b.weight": uneven(128, 128, seed=1, dtype=ml_dtypes.bfloat16),
        "conv": uneven(64, 64, seed=2, dtype=np.float32).reshape(64, 16, 2, 2),
        "a.bias": np.ones(256, np.float16),
    }
    save_file(tensors, path, metadata={"format": "pt"})
    return path, tensors


def test_what_is_written_is_the_input_with_zeros_where_the_mask_says(model, tmp_path):
    path, tensors = model
    recipe = prune(path, pattern=PATTERN, sparsity=0.5, out=tmp_path / "out")
    written = load_file(tmp_path / "out" / "weights.safetensors")
    assert set(written) == set(tensors)
    np.testing.assert_array_equal(written["a.bias"], tensors["a.bias"])
    for name in ("a.weight", "b.weight", "conv"):
        before = tensors[name].reshape(tensors[name].shape[0], -1)
        mask = parse_pattern(PATTERN).prune({name: weigh(name, before)}, 0.5)[name]
        assert written[name].dtype == tensors[name].dtype
        expected = np.where(mask, before, before.dtype.type(0)).reshape(tensors[name].shape)
        np.testing.assert_array_equal(written[name], expected)
    assert [layer.layer for layer in recipe.layers] == list(json_layers(tmp_path / "out"))


def test_tiles_of_an_earlier_result_do_not_stay_beside_weights_without_tiles(model, tmp_path):
    """They would be read as those of the new weights. No other file is removed."""
    path, out = model[0], tmp_path / "out"
    prune(path, pattern=PATTERN, out=out)
    (out / "notes.npz").write_bytes(b"the user's")
    assert read_tile_maps(out / "tiles.npz")
    prune(path, pattern=PATTERN, sparsity=0.5, out=out)
    assert read_tile_maps(out / "tiles.npz")
    prune(path, pattern="2:4", out=out)
    assert sorted(os.listdir(out)) == ["notes.npz", "recipe.json", "weights.safetensors"]


def test_a_file_that_only_has_the_name_of_tile_maps_stays(model, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    np.savez(out / "tiles.npz", photographs=np.ones(3))
    prune(model[0], pattern="2:4", out=out)
    assert "photographs" in np.load(out / "tiles.npz")
    (out / "tiles.npz").write_bytes(b"no archive")
    prune(model[0], pattern="2:4", out=out)
    assert (out / "tiles.npz").read_bytes() == b"no archive"


@pytest.mark.parametrize("name", ["out", "calibrate"])
def test_an_empty_path_is_not_the_current_folder(model, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match=f"prune: {name} must be a text that is not empty"):
        prune(model[0], **{"pattern": "2:4", "out": "out", name: ""})
    assert os.listdir() == ["model.safetensors"]


def json_layers(folder):
    return {layer["layer"]: layer for layer in json.loads((folder / "recipe.json").read_text())["layers"]}


def test_the_recipe_says_how_it_was_made(model, tmp_path):
    prune(model[0], pattern="TW:64", sparsity=0.5, out=tmp_path / "out", target=["a.weight"])
    recipe = json.loads((tmp_path / "out" / "recipe.json").read_text())
    assert recipe["schema_version"] == 1
    assert (recipe["pattern"], recipe["sparsity"], recipe["scope"]) == (PATTERN, 0.5, "layer")
    assert recipe["criterion"] == "magnitude"
    (layer,) = recipe["layers"]
    assert (layer["layer"], layer["m"], layer["k"], layer["sparsity"]) == ("a.weight", 256, 128, 0.5)
    assert 0.5 < layer["retained_importance"] < 1.0
    hashed = predict(
        model[0], gpu="t4", tokens=8, engine="model", crossovers=False, target=["a.weight"], kernels="csr"
    )
    assert recipe["weights_hash"] == hashed.provenance.weights_hash


def test_layers_that_are_not_selected_go_through_unchanged(model, tmp_path):
    prune(model[0], pattern=PATTERN, out=tmp_path / "out", ignore=["re:b"])
    written = load_file(tmp_path / "out" / "weights.safetensors")
    np.testing.assert_array_equal(written["b.weight"], model[1]["b.weight"])


def test_the_outcome_is_an_input(model, tmp_path):
    prune(model[0], pattern=PATTERN, sparsity=0.75, out=tmp_path / "out")
    out = tmp_path / "out" / "weights.safetensors"
    options = {"gpu": "h200-sxm", "tokens": 128, "engine": "model", "crossovers": False}
    zeros = [row.sparsity for row in predict(out, pattern="zeros", **options) if row.kernel == "csr"]
    assert zeros == [0.75, 0.75, 0.75]
    before, after = (
        {
            row.layer: row.plan
            for row in predict(source, pattern=PATTERN, sparsity=0.75, kernels="stspmm", **options)
        }
        for source in (model[0], out)
    )
    assert {name: plan.fingerprint() for name, plan in before.items()} == {
        name: plan.fingerprint() for name, plan in after.items()
    }


def test_arrays_need_no_file(tmp_path):
    prune({"w": uneven(64, 64)}, pattern="2:4", out=tmp_path / "out")
    assert np.count_nonzero(load_file(tmp_path / "out" / "weights.safetensors")["w"]) == 64 * 64 // 2


def test_an_older_outcome_is_replaced_whole_or_left_alone(model, tmp_path, monkeypatch):
    out = tmp_path / "out"
    prune(model[0], pattern=PATTERN, sparsity=0.5, out=out)
    old = {file.name: file.read_bytes() for file in out.iterdir()}

    def fail(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fail)
        with pytest.raises(BadInput, match="No space left on device"):
            prune(model[0], pattern="2:4", out=out)
    assert {file.name: file.read_bytes() for file in out.iterdir()} == old
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.safetensors", "out"]
    prune(model[0], pattern="2:4", out=out)
    assert json.loads((out / "recipe.json").read_text())["pattern"] == "2:4"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"pattern": "tilewise"}, "unknown pattern"),
        ({"pattern": "tile-wise:4096"}, "needs a matrix of 4096x1 or more"),
        ({"pattern": PATTERN, "sparsity": 1.0}, "sparsity must be in"),
        ({"pattern": "2:4", "sparsity": 0.9}, "only has sparsity 0.5"),
        ({"pattern": PATTERN, "scope": "all"}, "scope: wanted"),
        ({"pattern": PATTERN, "target": ["nothing"]}, "matches no tensor"),
    ],
)
def test_bad_input_writes_nothing(model, tmp_path, options, complaint):
    with pytest.raises(BadInput, match=complaint):
        prune(model[0], out=tmp_path / "out", **options)
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


def test_folders_that_cannot_be_used(model, tmp_path):
    with pytest.raises(BadInput, match="must lie in a folder that exists"):
        prune(model[0], pattern=PATTERN, out=tmp_path / "no" / "out")
    with pytest.raises(BadInput, match="out must be a folder, got the file"):
        prune(model[0], pattern=PATTERN, out=model[0])
    prune(model[0], pattern=PATTERN, out=tmp_path / "out")
    with pytest.raises(BadInput, match=r"would overwrite .*, which is read"):
        prune(tmp_path / "out" / "weights.safetensors", pattern=PATTERN, out=tmp_path / "out")


def test_the_seed_of_a_recipe_is_that_of_its_pattern(tmp_path):
    weights = uneven(128, 128)
    for pattern, seed in (("shuffled-block:64", 0), ("tile-wise:64", None)):
        recipe = prune(weights, pattern=pattern, out=tmp_path / pattern.split(":")[0])
        assert recipe.document()["seed"] == seed


def test_filters_that_are_arrays_keep_their_shape(tmp_path):
    filters = uneven(64, 64).reshape(64, 16, 2, 2)
    prune({"conv": filters}, pattern="tile-wise:64", sparsity=0.5, out=tmp_path / "out")
    written = load_file(tmp_path / "out" / "weights.safetensors")["conv"]
    assert written.shape == filters.shape
    assert np.count_nonzero(written) == filters.size // 2


def scaled_layers():
    """Two layers of the same shape, one with ten times the weights of the other."""
    return {"large": 10 * uneven(128, 128).astype(np.float32), "small": uneven(128, 128, seed=1)}


@pytest.mark.parametrize(("scope", "shares"), [("layer", [0.5, 0.5]), ("global", [0.17, 0.83])])
def test_the_scope_is_each_layer_or_all_layers_ranked_together(tmp_path, scope, shares):
    layers = scaled_layers()
    recipe = prune(layers, pattern="unstructured", sparsity=0.5, scope=scope, out=tmp_path / "out")
    found = [layer.sparsity for layer in recipe.layers]
    assert found == pytest.approx(shares, abs=0.01)
    assert sum(found) == pytest.approx(1.0, abs=1e-4)
    assert recipe.document()["scope"] == scope
    scores = {name: weigh(name, weights) for name, weights in layers.items()}
    masks = parse_pattern("unstructured").prune(scores, 0.5, scope)
    written = load_file(tmp_path / "out" / "weights.safetensors")
    for name, mask in masks.items():
        np.testing.assert_array_equal(written[name] != 0, mask)


def test_every_layer_is_ranked_alone_by_default(tmp_path):
    recipe = prune(scaled_layers(), pattern="unstructured", sparsity=0.5, out=tmp_path / "out")
    assert [layer.sparsity for layer in recipe.layers] == [0.5, 0.5]


def test_without_a_sparsity_three_quarters_are_removed_or_what_the_pattern_fixes(tmp_path):
    for pattern, removed in ((PATTERN, 0.75), ("2:4", 0.5), ("dense", 0.0)):
        recipe = prune({"w": uneven(128, 128)}, pattern=pattern, out=tmp_path / pattern[:2].replace(":", ""))
        assert [layer.sparsity for layer in recipe.layers] == [removed]


@pytest.mark.parametrize("name", ["a\0b", "x" * 60_001])
def test_names_that_tiles_cannot_have_are_refused_only_with_tiles(tmp_path, name):
    weights = {name: uneven(64, 64)}
    with pytest.raises(BadInput, match=r"tiles.npz cannot hold a layer whose name has a zero byte"):
        prune(weights, pattern=PATTERN, out=tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
    recipe = prune(weights, pattern="2:4", out=tmp_path / "out")
    assert [layer.layer for layer in recipe.layers] == [name]


@pytest.mark.parametrize(
    ("pattern", "files"),
    [
        (PATTERN, {"weights.safetensors", "recipe.json", "tiles.npz"}),
        ("2:4", {"weights.safetensors", "recipe.json"}),
        ("dense", {"weights.safetensors", "recipe.json"}),
    ],
)
def test_tiles_are_written_if_the_pattern_has_them(tmp_path, pattern, files):
    recipe = prune({"w.weight": uneven(64, 64)}, pattern=pattern, out=tmp_path / "out")
    assert {path.name for path in recipe.folder.iterdir()} == files
    assert set(recipe.tiles) == ({"w"} if "tiles.npz" in files else set())
    if recipe.tiles:
        (stored,) = read_tile_maps(tmp_path / "out" / "tiles.npz").items()
        assert stored[0] == "w.weight"
        assert stored[1].fingerprint() == recipe.tiles["w"].fingerprint()


def test_the_calibration_file_is_read_and_stays(tmp_path):
    out = tmp_path / "out"
    prune({"w": uneven(64, 64)}, pattern=PATTERN, out=out)
    squares = out / "weights.safetensors"
    save_file({"w": np.ones(64, np.float32)}, squares)
    before = squares.read_bytes()
    with pytest.raises(BadInput, match=r"would overwrite .*weights.safetensors, which is read"):
        prune({"w": uneven(64, 64)}, pattern=PATTERN, calibrate=squares, out=out)
    assert squares.read_bytes() == before
