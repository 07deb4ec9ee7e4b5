"""The pass that quantises X to fp8, run as it is on an emulated machine, compared with NumPy's."""

import numpy as np
import pytest

from prunecast.kernels.device.launch import Place
from prunecast.kernels.device.quantise.quantise import (
    may_quantise,
    quantise_launch,
)
from tests.kernels.cuda.on_cpu.on_cpu import UNAVAILABLE, run_pass_on_cpu
from tests.naive.quantise import quantised


@pytest.mark.skipif(UNAVAILABLE, reason="needs Linux and g++")
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize(("tokens", "features", "row"), [(3, 16, 16), (5, 2048, 2056), (2, 4112, 4112)])
def test_bits_and_scales_are_those_of_numpy(tokens, features, row, dtype, cubins):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    number = np.dtype(np.float16 if dtype == "fp16" else ml_dtypes.bfloat16)
    store = np.full(tokens * row + 8, np.nan, number)
    x = store[-store.ctypes.data % 16 // 2 :][: tokens * row].reshape(tokens, row)
    rng = np.random.default_rng(0)
    x[:, :features] = rng.standard_normal((tokens, features)) * np.logspace(-3, 3, tokens)[:, None]
    x[0, :features] = 0
    y, scales = np.full((tokens + 1, features), 0xAB, np.uint8), np.full(tokens + 1, np.nan, np.float32)
    to = (y.ctypes.data, scales.ctypes.data)
    launch = quantise_launch(Place(x.ctypes.data, 2 * row), *to, tokens, features, dtype)
    run_pass_on_cpu(launch, [store, y, scales], cubins)
    bits, wanted = quantised(x[:, :features])
    assert np.array_equal(scales[:tokens], wanted)
    assert np.array_equal(y[:tokens], bits)
    assert (y[tokens] == 0xAB).all()
    assert np.isnan(scales[tokens])


@pytest.mark.skipif(UNAVAILABLE, reason="needs Linux and g++")
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize(("tokens", "features"), [(3, 16), (2, 2064)])
def test_rms_norms_are_quantised_as_if_written_in_fp32(tokens, features, dtype, cubins):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    number, rng = np.dtype(np.float16 if dtype == "fp16" else ml_dtypes.bfloat16), np.random.default_rng(0)
    x = aligned(rng.standard_normal((tokens, features)) * np.logspace(-2, 2, tokens)[:, None], number)
    weight = aligned(rng.standard_normal((1, features)), number)
    y, scales = np.full((tokens + 1, features), 0xAB, np.uint8), np.full(tokens + 1, np.nan, np.float32)
    sizes = (y.ctypes.data, scales.ctypes.data, tokens, features, dtype)
    norm = {"weight": weight.ctypes.data, "epsilon": 1e-3}
    launch = quantise_launch(Place(x.ctypes.data, 2 * features), *sizes, **norm)
    run_pass_on_cpu(launch, [x, weight, y, scales], cubins)
    given = x.astype(np.float64)
    wanted = given / np.sqrt((given**2).mean(axis=1, keepdims=True) + 1e-3) * weight.astype(np.float64)
    assert np.allclose(scales[:tokens], np.abs(wanted).max(axis=1) / 448.0, rtol=1e-6)
    found = y[:tokens].view(ml_dtypes.float8_e4m3fn).astype(np.float64) * scales[:tokens, None]
    half_step = np.abs(wanted) / 16 + scales[:tokens, None] * 2.0**-10
    assert (np.abs(found - wanted) <= (1.0 + 1e-5) * half_step).all()
    assert (y[tokens] == 0xAB).all()
    assert np.isnan(scales[tokens])


def aligned(values, number):
    """Return the values in the format, at a multiple of 16 bytes."""
    store = np.zeros(values.size + 8, number)
    found = store[-store.ctypes.data % 16 // 2 :][: values.size].reshape(values.shape)
    found[...] = values
    return found


def test_numbers_are_within_half_a_step_of_their_scale():
    x = np.random.default_rng(1).standard_normal((4, 512))
    bits, scales = quantised(x)
    ml_dtypes = pytest.importorskip("ml_dtypes")
    back = bits.view(ml_dtypes.float8_e4m3fn).astype(np.float64) * scales[:, None]
    assert (np.abs(back - x) <= np.abs(x) / 16 + scales[:, None] * 2.0**-10).all()
    assert np.allclose(np.abs(back).max(axis=1), np.abs(x).max(axis=1), rtol=1e-6)


def test_other_rows_are_not_given_to_the_kernel():
    assert may_quantise(Place(1024, 8192), 4096)
    assert not may_quantise(Place(1032, 8192), 4096)
    assert not may_quantise(Place(1024, 8200), 4096)
    assert not may_quantise(Place(1024, 8192), 4088)
    assert not may_quantise(Place(1024, 1 << 20), 1 << 16)


@pytest.mark.compile
@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize("features", [768, 4096, 11008, 32768])
def test_it_compiles_without_spills(features, normed):
    pytest.importorskip("cuda.bindings.nvrtc")
    norm = {"weight": 0, "epsilon": 1e-5} if normed else {}
    launch = quantise_launch(Place(0, 2 * features), 0, 0, 1, features, "bf16", **norm)
    assert launch.build("sm_90").spill_bytes == 0
