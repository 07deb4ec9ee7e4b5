import os

import ml_dtypes
import numpy as np
import pytest
from safetensors import safe_open

from prunecast.errors import BadInput
from prunecast.patterns.sources import masked_checkpoint, read_weights, write_weights
from prunecast.patterns.sources.safetensors import NUMBERS

WEIGHTS = np.random.default_rng(4).standard_normal((4, 6)).astype(np.float32)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32])
def test_what_is_written_is_read(tmp_path, dtype):
    weights = WEIGHTS.astype(dtype)
    write_weights(tmp_path / "a.safetensors", {"w": weights}, {"pattern": "2:4"})
    assert read_weights(tmp_path / "a.safetensors").layers["w"].weights.tobytes() == weights.tobytes()
    with safe_open(tmp_path / "a.safetensors", framework="np") as file:
        assert file.metadata() == {"pattern": "2:4"}
    assert os.listdir(tmp_path) == ["a.safetensors"]


def test_views_are_written_as_they_read_and_not_as_they_lie(tmp_path):
    write_weights(tmp_path / "a.safetensors", {"t": WEIGHTS.T, "every_other": WEIGHTS[::2]})
    layers = read_weights(tmp_path / "a.safetensors").layers
    np.testing.assert_array_equal(layers["t"].weights, WEIGHTS.T)
    np.testing.assert_array_equal(layers["every_other"].weights, WEIGHTS[::2])


@pytest.mark.parametrize(
    ("arrays", "metadata"), [({"w": np.array([["text"]])}, None), ({"w": np.array([[object()]])}, None)]
)
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, arrays, metadata):
    path = tmp_path / "a.safetensors"
    write_weights(path, {"w": WEIGHTS})
    before = path.read_bytes()
    with pytest.raises(BadInput, match=r"a.safetensors: cannot be written"):
        write_weights(path, arrays, metadata)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.safetensors"]


def test_an_interrupted_rename_leaves_no_half_file(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_weights(tmp_path / "a.safetensors", {"w": WEIGHTS})
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "arrays", "metadata", "message"),
    [
        ("a.npz", {"w": WEIGHTS}, {}, "a.npz: weights are written to .safetensors, got '.npz'"),
        ("a.safetensors", {}, {}, "a.safetensors: no array to write"),
        ("a.safetensors", {"w": WEIGHTS}, {"sparsity": 0.5}, "metadata must be text to text"),
        ("no/a.safetensors", {"w": WEIGHTS}, {}, "must lie in a folder that exists, got .*no/a.safetensors"),
    ],
)
def test_what_cannot_be_written(tmp_path, name, arrays, metadata, message):
    with pytest.raises(BadInput, match=message):
        write_weights(tmp_path / name, arrays, metadata)


def test_a_masked_checkpoint_keeps_everything_else(tmp_path):
    conv = np.arange(1.0, 17.0, dtype=np.float16).reshape(2, 2, 2, 2)
    arrays = {
        "conv": conv,
        "bias": WEIGHTS[0],
        "ids": np.arange(3),
        "other": WEIGHTS.astype(ml_dtypes.bfloat16),
    }
    write_weights(tmp_path / "a.safetensors", arrays, {"format": "pt"})
    mask = np.arange(16).reshape(2, 8) % 2 == 0
    checkpoint = masked_checkpoint(tmp_path / "a.safetensors", {"conv": mask})
    assert checkpoint.metadata == {"format": "pt"}
    assert checkpoint.arrays["conv"].dtype == np.float16
    np.testing.assert_array_equal(checkpoint.arrays["conv"].ravel(), conv.ravel() * mask.ravel())
    for name in ("bias", "ids", "other"):
        assert checkpoint.arrays[name].tobytes() == arrays[name].tobytes()
    write_weights(tmp_path / "b.safetensors", checkpoint.arrays, checkpoint.metadata)
    assert read_weights(tmp_path / "b.safetensors").layers["conv"].kept.sum() == 8


@pytest.mark.parametrize(
    ("masks", "message"),
    [
        ({"v": np.ones((4, 6), bool)}, "a mask names tensor 'v', which is not in the file"),
        ({"w": np.ones((6, 4), bool)}, r"tensor 'w' of shape \(4, 6\) does not fit a mask of shape \(6, 4\)"),
    ],
)
def test_masks_that_fit_no_tensor(tmp_path, masks, message):
    write_weights(tmp_path / "a.safetensors", {"w": WEIGHTS})
    with pytest.raises(BadInput, match=message):
        masked_checkpoint(tmp_path / "a.safetensors", masks)


def test_every_format_goes_through_unchanged(tmp_path):
    """What is no weight of a layer is written as it was read, whatever its numbers are."""
    rng = np.random.default_rng(0)
    arrays = {name: rng.integers(0, 2, (3, 5)).astype(np.uint8) for name in NUMBERS}
    for code, name in NUMBERS.items():
        arrays[code] = arrays[code].astype(getattr(ml_dtypes, name, name))
    write_weights(tmp_path / "a.safetensors", arrays)
    masks = {"F32": np.zeros((3, 5), np.bool_)}
    copied = masked_checkpoint(tmp_path / "a.safetensors", masks)
    write_weights(tmp_path / "b.safetensors", copied.arrays)
    with safe_open(tmp_path / "b.safetensors", framework="pt") as file:
        assert set(file.keys()) == set(NUMBERS)
        assert not file.get_tensor("F32").any()
        assert file.get_slice("BOOL").get_dtype() == "BOOL"
    again = masked_checkpoint(tmp_path / "b.safetensors", {}).arrays
    for code in NUMBERS.keys() - masks.keys():
        assert again[code].dtype == arrays[code].dtype
        assert again[code].tobytes() == arrays[code].tobytes()


@pytest.mark.parametrize("dtype", [">f4", ">f2", ">i8"])
def test_big_endian_arrays_are_written_little_endian(tmp_path, dtype):
    np.savez(tmp_path / "a.npz", w=WEIGHTS, other=np.arange(6, dtype=dtype))
    found = masked_checkpoint(tmp_path / "a.npz", {"w": WEIGHTS > 0})
    write_weights(tmp_path / "b.safetensors", found.arrays)
    other = masked_checkpoint(tmp_path / "b.safetensors", {}).arrays["other"]
    np.testing.assert_array_equal(other, np.arange(6, dtype=dtype))
