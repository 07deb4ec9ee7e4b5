"""Folders that `prune` wrote, predicted by their recipe and never pruned again unasked."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from prunecast.cli import main
from prunecast.codesign import predict, prune
from prunecast.codesign.recipe import read_recipe
from prunecast.codesign.search import Targets, prune_model
from prunecast.errors import BadInput
from tests.codesign.test_model_folder import CONFIG, PATTERN, tensors

SETTINGS = {"gpu": "h200-sxm", "engine": "model", "crossovers": False, "workload": "prefill:256"}


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "llama"
    folder.mkdir()
    save_file(tensors(), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


@pytest.mark.parametrize("pattern", [PATTERN, "2:4", "tvw:64"])
def test_the_outcome_is_predicted_as_the_pruning_was(source, tmp_path, pattern):
    out = tmp_path / "out"
    prune(source, pattern=pattern, out=out)
    # torch joins gate and up, which share their tiles until a recipe gives each its own
    engine = {**SETTINGS, "runtime": "engine"}
    before, after = predict(source, pattern=pattern, **engine), predict(out, **engine)
    assert [(row.layer, row.kernel) for row in after] == [(row.layer, row.kernel) for row in before]
    for row, again in zip(before, after, strict=True):
        assert (again.pattern, again.sparsity, again.seconds) == (row.pattern, row.sparsity, row.seconds)
        assert again.plan.fingerprint() == row.plan.fingerprint()
    assert after.whole.best.seconds == before.whole.best.seconds


def test_a_weight_inside_of_a_tile_may_be_zero(source, tmp_path):
    named = tensors()
    down = named["model.layers.0.mlp.down_proj.weight"]
    down[:, int(np.abs(down.astype(np.float32)).sum(axis=0).argmax())] = np.eye(128, 1).ravel()
    save_file(named, source / "model.safetensors")
    out = tmp_path / "out"
    prune(source, pattern=PATTERN, sparsity=0.5, out=out)
    tiles = read_recipe(out).tiles["model.layers.0.mlp.down_proj"]
    rows = [row for row in predict(out, **SETTINGS) if row.layer.endswith("down_proj.weight")]
    assert {row.sparsity for row in rows if row.kernel == "stspmm"} == {1.0 - tiles.density}


@pytest.mark.parametrize("runtime", ["engine", "torch"])
def test_a_search_is_predicted_with_its_patterns(source, tmp_path, runtime):
    out = tmp_path / "out"
    options = {"gpu": "h200-sxm", "engine": "model", "workload": "prefill:256", "runtime": runtime}
    found = prune_model(source, Targets(sparsity=0.4), out=out, families=["atp", "2:4"], **options).result
    table = predict(out, runtime=runtime, **SETTINGS)
    other = predict(out, runtime=runtime, **SETTINGS | {"gpu": "h100-sxm"})
    said = [[each.reason for each in made.skipped if each.layer == "recipe"] for made in (table, other)]
    assert said == [[], ["its patterns were chosen by times on h200-sxm, these are times on h100-sxm"]]
    patterns = {}
    for rows in table.layers():
        patterns[rows[0].layer] = {row.pattern for row in rows} - {"dense"}
    for layer in found.layers:
        # Tiles of a stack of matrices may end within one of them
        wanted = set() if layer.pattern == "dense" else {layer.pattern}
        assert patterns[layer.layer] == wanted or len(layer.names) > 1, layer.layer
    pruned = {row.layer: row.sparsity for row in table if row.kernel != "dense"}
    for layer in found.layers:
        assert pruned.get(layer.layer, 0.0) == pytest.approx(layer.removed, abs=1e-6)


def test_a_pattern_that_is_asked_for_prunes_again(source, tmp_path):
    out = tmp_path / "out"
    prune(source, pattern=PATTERN, sparsity=0.5, out=out)
    for asked in ({"pattern": PATTERN}, {"sparsity": 0.75}):
        rows = [row for row in predict(out, kernels="stspmm", **asked, **SETTINGS) if row.kernel == "stspmm"]
        assert {row.sparsity for row in rows} == {0.75}


def test_layers_that_the_recipe_leaves_out_stay_dense(source, tmp_path):
    out = tmp_path / "out"
    prune(source, pattern=PATTERN, sparsity=0.5, out=out, target=["re:mlp"])
    for runtime in ("engine", "torch"):
        table = predict(out, runtime=runtime, **SETTINGS)
        sparse = {row.layer for row in table if row.kernel != "dense"}
        assert all("mlp" in name for name in sparse)
        assert {row.layer for row in table} > sparse


def test_a_recipe_of_other_weights_is_refused(source, tmp_path):
    out = tmp_path / "out"
    prune(source, pattern=PATTERN, sparsity=0.5, out=out)
    save_file(tensors(), out / "model.safetensors")
    with pytest.raises(BadInput, match=r"tiles\.npz is of other weights"):
        predict(out, **SETTINGS)
    document = json.loads((out / "recipe.json").read_text())
    for layer in document["layers"]:
        layer["layer"] = f"other.{layer['layer']}"
    (out / "recipe.json").write_text(json.dumps(document))
    with pytest.raises(BadInput, match=r"recipe\.json is of another model: it prunes 'other\.model"):
        predict(out, **SETTINGS)


def test_the_command_prunes_no_outcome_again_unasked(source, tmp_path, capsys):
    out, again = tmp_path / "out", tmp_path / "again"
    prune(source, pattern=PATTERN, sparsity=0.5, out=out)
    assert main(["prune", str(out), "-o", str(again)]) == 2
    assert "is pruned already, tile-wise:64: give --pattern" in capsys.readouterr().err
    assert not again.exists()
    assert main(["prune", str(out), "-o", str(again), "--pattern", "2:4"]) == 0
    assert load_file(again / "model.safetensors").keys() == tensors().keys()


def test_a_recipe_with_a_layer_of_another_model_is_refused(source, tmp_path):
    out = tmp_path / "out"
    prune(source, pattern=PATTERN, out=out)
    recipe = json.loads((out / "recipe.json").read_text())
    recipe["layers"][0]["layer"] = "model.layers.9.mlp.up_proj.weight"
    (out / "recipe.json").write_text(json.dumps(recipe))
    with pytest.raises(BadInput, match=r"of another model: it prunes 'model.layers.9.mlp.up_proj'"):
        predict(out, **SETTINGS)
