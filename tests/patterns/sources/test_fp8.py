"""fp8 weights in `.safetensors`, alone and with scales."""

import itertools

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from prunecast.errors import BadInput
from prunecast.patterns.sources import masked_checkpoint, read_weights, write_weights


def values(shape, dtype, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
def test_weights_alone_are_read_exactly(tmp_path, dtype):
    stored = values((64, 48), dtype)
    save_file({"w": stored, "more": values((3, 5), dtype)}, tmp_path / "a.safetensors")
    layer = read_weights(tmp_path / "a.safetensors").layers["w"]
    assert layer.dtype == "fp16"
    np.testing.assert_array_equal(layer.weights.astype(np.float32), stored.astype(np.float32))
    assert "no kernel here multiplies fp8" in layer.note


SHAPES = [(), (1,), (1, 1), (96,), (96, 1), (3, 2), (6, 4)]


@pytest.mark.parametrize(("scales", "end"), [*itertools.product(SHAPES, ("_scale", "_scale_inv"))])
def test_scales_multiply(tmp_path, scales, end):
    """The slow twin looks for the scale of every single weight; blocks are of 32 and 16."""
    stored = values((96, 64), ml_dtypes.float8_e4m3fn)
    factors = np.asarray(2.0 ** values((*scales, 1), np.float32, 1)[..., 0])
    save_file({"w.weight": stored, f"w.weight{end}": factors}, tmp_path / "a.safetensors")
    found = read_weights(tmp_path / "a.safetensors")
    assert list(found.layers) == ["w.weight"]
    expected = np.zeros((96, 64), np.float32)
    for i, j in np.ndindex(96, 64):
        if factors.size == 1:
            factor = factors.item()
        elif factors.size == 96:
            factor = factors.reshape(-1)[i]
        else:
            factor = factors[i * scales[0] // 96, j * scales[1] // 64]
        expected[i, j] = float(stored[i, j]) * factor
    layer = found.layers["w.weight"]
    assert layer.dtype == "bf16"
    np.testing.assert_array_equal(
        layer.weights.astype(np.float32), expected.astype(ml_dtypes.bfloat16).astype(np.float32)
    )


def test_experts_in_one_tensor_have_their_own_scales(tmp_path):
    stored = values((4, 32, 64), ml_dtypes.float8_e4m3fn)
    factors = np.arange(1, 5, dtype=np.float32).reshape(4, 1, 1)
    save_file({"mlp.experts.up": stored, "mlp.experts.up_scale": factors}, tmp_path / "a.safetensors")
    layers = read_weights(tmp_path / "a.safetensors").layers
    assert len(layers) == 4
    for expert, layer in enumerate(layers.values()):
        expected = (stored[expert].astype(np.float32) * (expert + 1)).astype(ml_dtypes.bfloat16)
        np.testing.assert_array_equal(layer.weights.view(np.uint16), expected.view(np.uint16))


def test_what_is_pruned_is_written_back_in_fp8_with_its_scales(tmp_path):
    stored, factors = values((32, 16), ml_dtypes.float8_e4m3fn), values((32, 1), np.float32)
    save_file({"w": stored, "w_scale": factors}, tmp_path / "a.safetensors")
    mask = np.random.default_rng(3).random((32, 16)) < 0.5
    done = masked_checkpoint(tmp_path / "a.safetensors", {"w": mask})
    write_weights(tmp_path / "b.safetensors", done.arrays, done.metadata)
    again = masked_checkpoint(tmp_path / "b.safetensors", {})
    assert again.arrays["w"].dtype == ml_dtypes.float8_e4m3fn
    expected = np.where(mask, stored.astype(np.float32), 0.0)
    np.testing.assert_array_equal(again.arrays["w"].astype(np.float32), expected)
    np.testing.assert_array_equal(again.arrays["w_scale"], factors)


def test_scales_that_fit_nothing(tmp_path):
    save_file(
        {"w": values((32, 16), ml_dtypes.float8_e4m3fn), "w_scale": np.ones((5, 7), np.float32)},
        tmp_path / "a.safetensors",
    )
    with pytest.raises(BadInput, match=r"scales of shape 5x7 do not fit 32x16: 'w'"):
        read_weights(tmp_path / "a.safetensors")


def test_not_a_number_is_found(tmp_path):
    stored = values((4, 4), ml_dtypes.float8_e4m3fn)
    stored[1, 2] = np.nan
    save_file({"w": stored}, tmp_path / "a.safetensors")
    with pytest.raises(BadInput, match="holds 1 NaN"):
        read_weights(tmp_path / "a.safetensors")
