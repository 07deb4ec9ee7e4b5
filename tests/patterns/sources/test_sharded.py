"""Checkpoints in several files, as Hugging Face has them."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from prunecast.codesign import prune
from prunecast.errors import BadInput
from prunecast.patterns.sources import read_weights

ONE, TWO = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def matrix(seed):
    return np.random.default_rng(seed).standard_normal((64, 64)).astype(np.float16)


@pytest.fixture
def folder(tmp_path):
    save_file({"a": matrix(0), "norm": np.ones(4, np.float16)}, tmp_path / ONE)
    save_file({"b": matrix(1)}, tmp_path / TWO)
    return tmp_path


def index(folder, places):
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return path


PLACES = {"a": ONE, "norm": ONE, "b": TWO}


def test_folders_with_and_without_index(folder):
    assert list(read_weights(folder).layers) == ["a", "b"]
    path = index(folder, PLACES)
    for source in (folder, path, str(path)):
        found = read_weights(source)
        assert list(found.layers) == ["a", "b"]
        np.testing.assert_array_equal(found.layers["b"].weights, matrix(1))


def test_a_folder_is_pruned_into_one_file(folder, tmp_path):
    index(folder, PLACES)
    out = tmp_path / "out"
    prune(folder, pattern="2:4", out=out)
    assert set(load_file(out / "weights.safetensors")) == {"a", "b", "norm"}
    assert list(read_weights(out).layers) == ["a", "b"]
    with pytest.raises(BadInput, match=r"would overwrite .*, which is read"):
        prune(folder, pattern="2:4", out=folder)


@pytest.mark.parametrize(
    ("places", "told"),
    [
        ({"a": "../secret.safetensors"}, "in the same folder"),
        ({"a": "/etc/passwd"}, "in the same folder"),
        ({"a": "other.safetensors"}, "no such file"),
        ({"missing": ONE}, "it has not"),
        ({"a": 5}, "weight_map"),
        ({}, "weight_map"),
        (None, "weight_map"),
    ],
)
def test_indices_that_cannot_be(folder, places, told):
    index(folder, places)
    with pytest.raises(BadInput, match=told):
        read_weights(folder)


def test_a_tensor_in_two_files(folder):
    save_file({"a": matrix(2)}, folder / "another.safetensors")
    with pytest.raises(BadInput, match="two files have a tensor 'a'"):
        read_weights(folder)


def test_a_folder_of_other_things(tmp_path):
    with pytest.raises(BadInput, match=r"got one with no \*.safetensors"):
        read_weights(tmp_path)


@pytest.mark.parametrize("key", ["weight_map", "a"])
def test_an_index_that_says_something_twice_is_refused(folder, key):
    path = index(folder, PLACES)
    entry = f'"{key}": ' + (json.dumps(PLACES) if key == "weight_map" else f'"{ONE}"')
    path.write_text(path.read_text().replace(f'"{key}"', f'{entry}, "{key}"', 1))
    with pytest.raises(BadInput, match=f"wanted an index of a checkpoint, but: '{key}' is there twice"):
        read_weights(folder)
