"""The pass that rotates heads in place, run as it is on an emulated machine, compared with NumPy's."""

import ml_dtypes
import numpy as np
import pytest

from prunecast.kernels.device.launch import Place
from prunecast.kernels.device.rotary.rotary import may_rotate, rotate_launch
from tests.kernels.cuda.on_cpu.on_cpu import UNAVAILABLE, run_pass_on_cpu


def aligned(values, number):
    """Return the values in the format, at a multiple of 16 bytes."""
    store = np.zeros(values.size + 8, number)
    found = store[-store.ctypes.data % 16 // 2 :][: values.size].reshape(values.shape)
    found[...] = values
    return found


@pytest.mark.skipif(UNAVAILABLE, reason="needs Linux and g++")
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize(
    ("heads", "width", "rest", "periods"), [(3, 16, 8, 5), (70, 128, 0, 2), (5, 96, 24, 3)]
)
def test_heads_are_rotated_in_place_and_the_rest_stays(heads, width, rest, periods, dtype, cubins):
    number, rng, tokens = (
        np.dtype(np.float16 if dtype == "fp16" else ml_dtypes.bfloat16),
        np.random.default_rng(0),
        5,
    )
    before = aligned(rng.standard_normal((tokens, heads * width + rest)), number)
    y = aligned(before.astype(np.float64), number)
    cos, sin = (aligned(rng.standard_normal((periods, width)), number) for _ in range(2))
    values = {"cos": cos.ctypes.data, "sin": sin.ctypes.data, "heads": heads, "width": width}
    launch = rotate_launch(Place(y.ctypes.data, 2 * y.shape[1]), tokens, dtype, periods=periods, **values)
    run_pass_on_cpu(launch, [y, cos, sin], cubins)
    x = before[:, : heads * width].astype(np.float64).reshape(tokens, heads, width)
    halves = np.concatenate([-x[..., width // 2 :], x[..., : width // 2]], axis=-1)
    angle = np.arange(tokens) % periods
    own, other = (part[angle].astype(np.float64)[:, None] for part in (cos, sin))
    wanted = x * own + halves * other
    size = np.abs(x * own) + np.abs(halves * other)
    ulp = 2.0**-11 if dtype == "fp16" else 2.0**-8
    found = y[:, : heads * width].astype(np.float64).reshape(x.shape)
    assert (np.abs(found - wanted) <= ulp * np.abs(wanted) + 2.0**-22 * size + 2.0**-25).all()
    assert np.array_equal(y[:, heads * width :], before[:, heads * width :])


def test_other_rows_are_not_given_to_the_kernel():
    assert may_rotate(Place(1024, 8192), 128)
    assert not may_rotate(Place(1032, 8192), 128)
    assert not may_rotate(Place(1024, 8200), 128)
    assert not may_rotate(Place(1024, 8192), 72)
    assert not may_rotate(Place(1024, 8192), 8192)


@pytest.mark.compile
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_it_compiles_without_spills(arch):
    pytest.importorskip("cuda.bindings.nvrtc")
    launch = rotate_launch(Place(0, 256), 1, "bf16", heads=1, width=128, periods=1)
    assert launch.build(arch).spill_bytes == 0
