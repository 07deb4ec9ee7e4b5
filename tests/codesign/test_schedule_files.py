"""The folder of a pruned model: what is written is read back, and bad input leaves nothing behind."""

import json

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from safetensors.numpy import load_file

from prunecast.codesign.search import Targets, prune_model
from prunecast.codesign.tile_maps import read_tile_maps, tiles_of, write_tile_maps
from prunecast.codesign.write_pruned import write_folder
from prunecast.errors import BadInput
from prunecast.patterns import parse_pattern
from prunecast.patterns.sources import Checkpoint


def pruned(pattern, seed=0, shape=(48, 64), sparsity=0.75):
    rule = parse_pattern(pattern)
    scores = np.random.default_rng(seed).random(shape).astype(np.float32)
    mask = rule.prune({"": scores}, sparsity)[""]
    return np.where(mask, scores, np.float32(0)), rule.map(mask)


def checkpoint(weights):
    return Checkpoint(arrays={"w": weights}, metadata={})


@given(seed=st.integers(0, 10**6), sparsity=st.floats(0.1, 0.9))
@settings(max_examples=15, deadline=None)
@pytest.mark.parametrize("pattern", ["tile-wise:16", "tile-wise-2d:16", "shuffled-block:16", "dense-block:4"])
def test_tile_maps_come_back_as_they_were(pattern, seed, sparsity, tmp_path_factory):
    _, kept = pruned(pattern, seed, sparsity=sparsity)
    path = tmp_path_factory.mktemp("maps") / "tiles.npz"
    write_tile_maps(path, {"a.weight": kept, "b/c": kept})
    found = read_tile_maps(path)
    assert list(found) == ["a.weight", "b/c"]
    assert found["b/c"].fingerprint() == kept.fingerprint()
    assert found["b/c"].pattern == kept.pattern


def test_the_folder_holds_weights_recipe_and_tiles(tmp_path):
    weights, kept = pruned("tile-wise:16")
    folder = write_folder(tmp_path / "out", {"pattern": "tile-wise:16"}, checkpoint(weights), {"w": kept})
    assert sorted(file.name for file in folder.iterdir()) == [
        "recipe.json",
        "tiles.npz",
        "weights.safetensors",
    ]
    assert np.array_equal(load_file(folder / "weights.safetensors")["w"], weights)
    recipe = json.loads((folder / "recipe.json").read_text())
    assert recipe == {"pattern": "tile-wise:16"}


def test_without_tiles_there_is_no_tile_file(tmp_path):
    weights, kept = pruned("unstructured")
    folder = write_folder(tmp_path / "out", {}, checkpoint(weights), tiles_of({"w": kept}))
    assert not (folder / "tiles.npz").exists()


def test_nested_maps_give_their_tiles():
    _, nested = pruned("tvw:16")
    _, elements = pruned("unstructured")
    assert tiles_of({"nested": nested, "elements": elements}) == {"nested": nested.tiles}


def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    weights, kept = pruned("tile-wise:16")
    with pytest.raises(BadInput, match="cannot write"):
        write_folder(tmp_path / "no" / "out", {}, checkpoint(weights), {"w": kept})
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="must lie in a folder that exists"):
        write_folder(tmp_path / "file", {}, checkpoint(weights), {"w": kept})
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_files_that_are_no_tile_maps_are_refused(tmp_path):
    with pytest.raises(BadInput, match=r"missing.npz: no such file"):
        read_tile_maps(tmp_path / "missing.npz")
    (tmp_path / "text.npz").write_text("no archive")
    with pytest.raises(BadInput, match=r"text.npz: "):
        read_tile_maps(tmp_path / "text.npz")
    np.savez(tmp_path / "half.npz", **{"w/shape": np.array([2, 2])})
    with pytest.raises(BadInput, match=r"half.npz: .*cannot be read"):
        read_tile_maps(tmp_path / "half.npz")


@pytest.mark.parametrize("name", ["\udcff", "a/../b", "\u00e4", "x" * 60_000])
def test_weights_and_tiles_give_a_layer_one_name(tmp_path, name):
    """A file's name, and so that of its only matrix, may have bytes that are no text."""
    weights, kept = pruned("tile-wise:16")
    folder = write_folder(tmp_path / "out", {}, Checkpoint(arrays={name: weights}, metadata={}), {name: kept})
    (stored,) = load_file(folder / "weights.safetensors")
    (found,) = read_tile_maps(folder / "tiles.npz").items()
    assert (found[0], found[1].fingerprint()) == (stored, kept.fingerprint())


@pytest.mark.parametrize("name", ["a\0b", "x" * 60_001])
def test_names_that_tiles_cannot_have_are_refused_before_the_search(tmp_path, name):
    weights = {name: np.ones((128, 128), np.float16)}
    with pytest.raises(BadInput, match=r"tiles.npz cannot hold a layer whose name has a zero byte"):
        prune_model(weights, Targets(speedup=1000.0), gpu="t4", engine="model", out=tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
