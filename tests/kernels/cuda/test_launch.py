"""What reaches the driver: launches that are prepared once, beside those that are put together every time."""

from types import SimpleNamespace

import numpy as np
import pytest

from prunecast.errors import BadInput
from prunecast.kernels.device import launch as launch_module
from prunecast.kernels.device import pass_launch
from prunecast.kernels.device.compile_inputs import FillRows
from prunecast.kernels.device.launch import LaunchError, Place, PreparedLaunch
from prunecast.kernels.device.pass_launch import BoundLaunch, PassLaunch
from prunecast.kernels.device.transpose.transpose import Rows, transpose_launch
from prunecast.kernels.tile.cuda import operator as tile_operator
from prunecast.kernels.tile.cuda.operator import Box, encode_boxes, tensor_maps
from tests.kernels.cuda.fake_driver import NO_CONTEXT, install


def launch(function, arguments, *, stream, **sizes):
    """Launch once."""
    PreparedLaunch(function, arguments, **sizes)(stream)


GRID = {"blocks": 7, "threads": 384, "shared_bytes": 200_000}
B, C = Place(1 << 40, 640), Place((1 << 40) + 4096, 256)


@pytest.mark.parametrize("overlap", [True, False])
def test_a_prepared_launch_is_like_one_put_together_for_it(monkeypatch, overlap):
    driver = install(monkeypatch, 8, 4)
    first, second, other = (np.full(2, value, np.uint64) for value in (3, 5, 9))
    addresses = [first.ctypes.data, second.ctypes.data]
    prepared = PreparedLaunch(1234, addresses, **GRID, overlap=overlap)
    for stream in (0, 77, 0):
        prepared(stream)
        launch(1234, addresses, **GRID, stream=stream, overlap=overlap)
        first += 1  # read anew by every launch
    prepared.point(1, other.ctypes.data)
    prepared(5)
    launch(1234, [addresses[0], other.ctypes.data], **GRID, stream=5, overlap=overlap)
    assert driver.launched[::2] == driver.launched[1::2]
    seen = driver.launched[2]
    assert (seen.function, seen.grid, seen.block) == (1234, (7, 1, 1), (384, 1, 1))
    assert (seen.shared_bytes, seen.stream, seen.overlaps) == (200_000, 77, overlap)
    assert seen.arguments == (bytes([4, *[0] * 7]), bytes([5, 0, 0, 0]))
    assert driver.launched[0].stream is None  # the default stream


def test_a_refused_launch_says_so(monkeypatch):
    install(monkeypatch, 8, statuses=(700,))
    word = np.zeros(1, np.uint64)
    with pytest.raises(LaunchError, match="cuLaunchKernelEx answers 700 for 7 blocks of 384 threads"):
        launch(1, [word.ctypes.data], **GRID, stream=0, overlap=False)


def test_a_thread_without_a_context_gets_one_and_launches(monkeypatch):
    driver, bound, word = install(monkeypatch, 8, statuses=(NO_CONTEXT,)), [], np.zeros(1, np.uint64)
    monkeypatch.setattr(launch_module, "_bind_context", lambda: bound.append(True))
    launch(1, [word.ctypes.data], **GRID, stream=3, overlap=False)
    assert bound == [True]
    assert driver.launched[0] == driver.launched[1]


def test_rows_without_weights_are_launched_with_what_the_kernel_reads(monkeypatch):
    driver = install(monkeypatch, 8, 8, 8, 8, 4)
    fill = FillRows(99, 11, 5)
    for place, bias, tokens in ((C, 22, 64), (B, 33, 8)):
        fill(place, bias, tokens, 3)
        seen = driver.launched[-1]
        numbers = [int.from_bytes(argument, "little") for argument in seen.arguments]
        assert numbers == [11, bias, *place, tokens]
    assert (seen.function, seen.grid, seen.stream, seen.overlaps) == (99, (5, 1, 1), 3, False)


def test_maps_are_encoded_once_for_each_place(monkeypatch):
    driver = install(monkeypatch)
    map_of = tensor_maps(rows=96, tokens=128, box=Box(rows=16, tokens=64))
    places = (B, C, B, C, B._replace(row_bytes=C.row_bytes))
    addresses = [map_of(*place).address for place in places]
    assert addresses[:2] == addresses[2:4]
    assert len(set(addresses)) == driver.maps == 3
    assert all(address % 64 == 0 for address in addresses)
    for place in (B, C):
        wanted = encode_boxes(*place, rows=96, tokens=128, box=Box(16, 64))
        assert map_of(*place).map.tobytes() == wanted.map.tobytes()
        assert map_of(*place).address == map_of(*place).map.ctypes.data


def test_maps_of_many_places_make_room(monkeypatch):
    driver = install(monkeypatch)
    monkeypatch.setattr(tile_operator, "MOST_MAPS", 2)
    map_of = tensor_maps(rows=96, tokens=128, box=Box(rows=16, tokens=64))
    for pointer in (256, 512, 768, 768, 256):
        map_of(pointer, 256)
    assert driver.maps == 4
    for pointer in (768, 256):
        map_of(pointer, 256)
    assert driver.maps == 4  # both are there


def test_a_transpose_reads_its_arguments_at_every_launch(monkeypatch):
    driver = install(monkeypatch, 48)
    monkeypatch.setattr(pass_launch, "load_function", lambda *_: 4321)
    monkeypatch.setattr(pass_launch, "capability_of", lambda _: 80)
    monkeypatch.setattr(pass_launch, "arch_of", lambda _: "sm_80")
    monkeypatch.setattr(PassLaunch, "build", lambda *_: SimpleNamespace(cubin=None))
    launch = transpose_launch(Rows(1024, 1536, 197, 768), Rows(4096, 512, 768, 256))
    prepared, bound = launch.on(0), BoundLaunch(launch, 0, ("b", "x"))
    for x, b in ((2048, 8192), (4096, 1 << 41)):
        launch.args["x"], launch.args["b"] = x, b
        prepared(9)
        seen = driver.launched[-1]
        assert seen.arguments == (launch.args.tobytes(),)
        grid = (launch.blocks, 1, 1)
        assert (seen.function, seen.grid, seen.block, seen.stream) == (4321, grid, (256, 1, 1), 9)
        launch.args["x"] = launch.args["b"] = 0
        bound(9, b, x)
        assert driver.launched[-1] == seen
        assert not seen.overlaps


def test_architectures_and_residency_come_from_the_driver(monkeypatch):
    numbers = {75: 9, 76: 0, 16: 132}

    class Driver:
        def cuDeviceGetAttribute(self, to, number, device):  # noqa: N802
            to._obj.value = numbers[number]
            return 0

        def cuOccupancyMaxActiveBlocksPerMultiprocessor(self, to, *_):  # noqa: N802
            to._obj.value = 2
            return 0

    monkeypatch.setattr(launch_module, "driver", Driver)
    launch_module.capability_of.cache_clear()
    assert (launch_module.capability_of(0), launch_module.arch_of(0)) == (90, "sm_90a")
    launch_module.capability_of.cache_clear()
    numbers[75], numbers[76] = 8, 6
    assert launch_module.arch_of(0) == "sm_86"
    launch_module.capability_of.cache_clear()
    launch_module.check_resident(1, 264, 256, 0, 0)
    with pytest.raises(BadInput, match="265 blocks wait for one another, this GPU holds 264"):
        launch_module.check_resident(1, 265, 256, 0, 0)
