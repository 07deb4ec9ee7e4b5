"""Images into planes, pooling and upsampling, run as they are on an emulated machine."""

import numpy as np
import pytest

from prunecast.kernels.device.planes.planes import (
    Images,
    Window,
    between_planes_launch,
    into_planes_launch,
)
from prunecast.plan.conv_grid import PlaneLayout
from tests.kernels.cuda.on_cpu.on_cpu import UNAVAILABLE, run_pass_on_cpu
from tests.naive.convolution import planes_of_images
from tests.naive.pooling import pooled

pytestmark = pytest.mark.skipif(UNAVAILABLE, reason="needs Linux and g++")

WINDOWS = [Window(), Window("max", 3, 2, 1), Window("average", 2, 2), Window("nearest", 2)]


def layout_of(window: Window, channels: int, height: int, width: int) -> PlaneLayout:
    return PlaneLayout(channels, *window.sides(height, width), 1)


@pytest.mark.parametrize("order", [(0, 2, 3, 1), (0, 1, 2, 3), (1, 0, 2, 3)])
@pytest.mark.parametrize(("count", "channels"), [(5, 70), (40, 3)])
@pytest.mark.parametrize("window", WINDOWS[:3])
def test_images_of_any_layout_come_into_planes(order, count, channels, window, cubins):
    images = np.random.default_rng(1).standard_normal((count, channels, 7, 9)).astype(np.float16)
    stored = np.ascontiguousarray(images.transpose(order))
    x = stored.transpose(np.argsort(order))
    to, batch = layout_of(window, channels, 7, 9), -(-count // 8) * 8
    out = np.full((to.pixels, batch), np.nan, np.float16)
    given = Images(x.ctypes.data, x.shape, tuple(step // 2 for step in x.strides))
    launch = into_planes_launch(given, to, batch, out.ctypes.data, window, relu=True)
    run_pass_on_cpu(launch, [stored, out], cubins)
    whole = np.zeros((channels, to.height, to.width, batch))
    whole[..., :count] = np.maximum(pooled(images.transpose(1, 2, 3, 0), window), 0)
    np.testing.assert_allclose(out, planes_of_images(to, whole), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("window", WINDOWS[1:])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_planes_become_other_planes(window, dtype, cubins):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    number = np.float16 if dtype == "fp16" else ml_dtypes.bfloat16
    images = np.random.default_rng(2).standard_normal((3, 7, 9, 16)).astype(number)
    source, to = PlaneLayout(3, 7, 9, 1), layout_of(window, 3, 7, 9)
    x = np.ascontiguousarray(planes_of_images(source, images)).astype(number)
    out = np.full((to.pixels, 16), np.nan, number)
    sizes = (x.ctypes.data, source, to, 16, out.ctypes.data)
    run_pass_on_cpu(between_planes_launch(*sizes, window, bf16=dtype == "bf16"), [x, out], cubins)
    wanted = planes_of_images(to, pooled(images.astype(np.float32), window))
    np.testing.assert_allclose(
        out.astype(np.float64), wanted, rtol=1e-2 if dtype == "bf16" else 1e-3, atol=1e-3
    )


@pytest.mark.parametrize("window", WINDOWS[1:3])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_operators_of_torch_launch_what_they_compute_on_a_cpu(window, dtype, cubins, monkeypatch):
    torch = pytest.importorskip("torch")
    planes = pytest.importorskip("prunecast.torch.planes")
    arrays = []

    def new_y_of(kind):
        new_y = kind.new_y

        def kept(self):
            arrays.append(new_y(self).fill_(float("nan")))
            return arrays[-1]

        return kept

    def enqueue(launch, device):
        run_pass_on_cpu(launch, [each.view(torch.int16).numpy() for each in arrays], cubins)

    monkeypatch.setattr(planes, "enqueue", enqueue)
    x = torch.randn(5, 3, 7, 9, generator=torch.Generator().manual_seed(3)).to(getattr(torch, dtype))
    sizes = list(window[1:])
    calls = [planes._BetweenPlanes(planes.planes_of(x, 8, 1), [3, 7, 9, 1], window.mode, sizes)]
    if window.mode == "max":
        calls.append(planes._IntoPlanes(x, 8, 1, True, sizes))
    for call in calls:
        wanted = call.on_cpu()
        arrays[:] = [call[0]]
        with monkeypatch.context() as patch:
            patch.setattr(type(call), "new_y", new_y_of(type(call)))
            found = call.on_cuda()
        torch.testing.assert_close(found, wanted, rtol=1e-2, atol=1e-3)
