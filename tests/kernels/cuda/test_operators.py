"""What operators hand to the driver, with host arrays instead of a GPU: the record's fields, map and rows."""

import importlib

import numpy as np
import pytest

from prunecast.kernels.device.places import Place
from prunecast.kernels.tile.cuda.arguments import TILE_ARGS
from prunecast.kernels.tile.cuda.forms import box_of
from prunecast.kernels.tile.cuda.tensor_maps import encode_boxes
from tests.kernels.cuda.fake_cupy import HostArray, instead_of_cupy, kernel_of
from tests.kernels.cuda.fake_driver import install
from tests.kernels.cuda.plans import plan_of, ragged_map

TILES, FILL, OTHER = 11, 22, 33
PLACES = [(Place(4096, 256), Place(1 << 40, 512)), (Place(8192, 320), Place(1 << 41, 256))]


@pytest.fixture
def loaded():
    """Loads modules of `kernels` by their names."""
    with instead_of_cupy():
        yield lambda name: importlib.import_module(f"prunecast.kernels.{name}")


def tile_operator(loaded):
    plan = plan_of(ragged_map(128), 200, 128, 128)
    weights = np.random.default_rng(0).standard_normal((plan.m, plan.k), dtype=np.float32)
    images = loaded("tile.cuda.images").upload(plan, weights, None)
    made = loaded("tile.cuda.operator").TileOperator(
        plan, images, kernel_of(TILES), kernel_of(FILL), overlap=True
    )
    return made, images, plan


def test_a_tile_operator_enqueues_the_product_and_rows_in_no_tile(monkeypatch, loaded):
    driver = install(monkeypatch, TILE_ARGS.itemsize, 128)
    driver.bytes_of[FILL] = (8, 8, 8, 8, 4)
    operator, images, plan = tile_operator(loaded)
    for turn, (b, c) in enumerate([*PLACES, *PLACES]):
        operator.enqueue(b, c, 5)
        product, fill = driver.launched[-2:]
        wanted = images.arguments(plan)
        wanted["clock"] = operator.clock.data.ptr
        wanted["b"], wanted["c"] = b.pointer, c.pointer
        wanted["b_row_bytes"], wanted["c_row_bytes"] = b.row_bytes, c.row_bytes
        map_of_c = encode_boxes(c.pointer, rows=plan.m, tokens=200, row_bytes=c.row_bytes, box=box_of(plan))
        assert product.arguments == (wanted.tobytes(), map_of_c.tobytes())
        assert (product.function, product.grid[0], product.stream) == (TILES, plan.blocks, 5)
        assert (product.block[0], product.overlaps) == (plan.resources.threads, True)
        assert product.shared_bytes == plan.resources.shared_bytes
        numbers = [int.from_bytes(argument, "little") for argument in fill.arguments]
        assert numbers == [images.uncovered.data.ptr, images.bias.data.ptr, *c, 200]
        assert (fill.function, fill.grid[0], fill.overlaps) == (FILL, images.uncovered.size, False)
        assert len(driver.launched) == 2 * (turn + 1)


def test_another_build_is_launched_from_then_on(monkeypatch, loaded):
    driver = install(monkeypatch, TILE_ARGS.itemsize, 128)
    driver.bytes_of[FILL] = (8, 8, 8, 8, 4)
    operator, _, _ = tile_operator(loaded)
    operator.enqueue(*PLACES[0], 0)
    operator.use_kernel(kernel_of(OTHER))
    operator.enqueue(*PLACES[0], 0)
    first, _, second, _ = driver.launched
    assert second == first._replace(function=OTHER)


def test_a_copy_is_launched_with_arrays_of_its_own(monkeypatch, loaded):
    driver = install(monkeypatch, TILE_ARGS.itemsize, 128)
    driver.bytes_of[FILL] = (8, 8, 8, 8, 4)
    operator, images, _ = tile_operator(loaded)
    other = operator.copy()
    other.enqueue(*PLACES[0], 0)
    record = np.frombuffer(driver.launched[0].arguments[0], TILE_ARGS)
    assert record["weights"] == other._images.weights.data.ptr != images.weights.data.ptr
    assert record["clock"] == other.clock.data.ptr != operator.clock.data.ptr


def test_an_operator_of_plain_arrays_enqueues_its_record(monkeypatch, loaded):
    driver = install(monkeypatch, 48)
    plan = plan_of(ragged_map(128), 200, 128, 128)
    names = ("weights", "clock", "b", "c", "b_row_bytes", "c_row_bytes")
    args = np.zeros(1, [(name, "u8") for name in names])
    arrays = {"weights": HostArray(np.arange(4))}
    operator = loaded("device.array_operator").ArrayOperator(
        plan, arrays, args, kernel_of(TILES), blocks=9, overlap=False
    )
    for b, c in PLACES:
        operator.enqueue(b, c, 7)
        (record,) = (np.frombuffer(argument, np.uint64) for argument in driver.launched[-1].arguments)
        wanted = (arrays["weights"].data.ptr, operator.clock.data.ptr, b.pointer, c.pointer)
        assert record.tolist() == [*wanted, b.row_bytes, c.row_bytes]
    assert (driver.launched[0].grid[0], driver.launched[0].stream) == (9, 7)
    operator.use_kernel(kernel_of(OTHER))
    operator.enqueue(*PLACES[0], 7)
    assert driver.launched[-1] == driver.launched[0]._replace(function=OTHER)
