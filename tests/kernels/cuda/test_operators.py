"""What operators hand to the driver, with host arrays instead of a GPU: the record's fields, map and rows."""

import importlib

import numpy as np
import pytest

from prunecast.choice import fastest_plan
from prunecast.hardware import load_gpu
from prunecast.kernels.balanced.cuda.operator import BalancedOperator
from prunecast.kernels.device.launch import Place
from prunecast.kernels.small_n.cuda.records import SMALL_ARGS, SmallOperator
from prunecast.kernels.tile.cuda.operator import _encode_boxes, box_of
from prunecast.kernels.tile.cuda.work_image import TILE_ARGS, pack_plan
from tests.kernels.cuda.fake_cupy import HostArray, instead_of_cupy, kernel_of
from tests.kernels.cuda.fake_driver import install
from tests.kernels.cuda.plans import plan_of, ragged_map
from tests.kernels.layouts import elements_of_density

TILES, FILL, OTHER = 11, 22, 33
PLACES = [(Place(4096, 256), Place(1 << 40, 512)), (Place(8192, 320), Place(1 << 41, 256))]


@pytest.fixture
def loaded():
    """Loads modules of `kernels` by their names."""
    with instead_of_cupy():
        yield lambda name: importlib.import_module(f"prunecast.kernels.{name}")


def on_device(packed):
    """Device arrays of what was packed, without a bias."""
    arrays = {name: HostArray(array) for name, array in packed.arrays.items()}
    arrays |= {name: HostArray(np.zeros(*made)) for name, made in packed.workspace.items()}
    return {**arrays, "unwritten": HostArray(packed.unwritten), "bias": HostArray(np.zeros(1, np.float32))}


def tile_operator(loaded):
    plan = plan_of(ragged_map(128), 200, 128, 128)
    weights = np.random.default_rng(0).standard_normal((plan.m, plan.k), dtype=np.float32)
    packed = pack_plan(plan, weights)
    arrays, operator = on_device(packed), loaded("tile.cuda.operator").TileOperator
    kernels = kernel_of(TILES), kernel_of(FILL)
    return operator(plan, packed, arrays, *kernels, overlap=True), packed, arrays


def test_a_tile_operator_enqueues_the_product_and_rows_in_no_tile(monkeypatch, loaded):
    driver = install(monkeypatch, TILE_ARGS.itemsize, 128)
    driver.bytes_of[FILL] = (8, 8, 8, 8, 4)
    operator, packed, arrays = tile_operator(loaded)
    plan = operator.plan
    for turn, (b, c) in enumerate([*PLACES, *PLACES]):
        operator.enqueue(b, c, 5)
        product, fill = driver.launched[-2:]
        wanted = packed.args.copy()
        for name in ("weights", "columns", "items", "splits", "rows", "bias", "partials", "counters"):
            wanted[name] = arrays[name].data.ptr
        wanted["clock"] = operator.clock.data.ptr
        wanted["b"], wanted["c"] = b.pointer, c.pointer
        wanted["b_row_bytes"], wanted["c_row_bytes"] = b.row_bytes, c.row_bytes
        map_of_c = _encode_boxes(c.pointer, rows=plan.m, tokens=200, row_bytes=c.row_bytes, box=box_of(plan))
        assert product.arguments == (wanted.tobytes(), map_of_c.tobytes())
        assert (product.function, product.grid[0], product.stream) == (TILES, plan.blocks, 5)
        assert (product.block[0], product.overlaps) == (plan.resources.threads, True)
        assert product.shared_bytes == plan.resources.shared_bytes
        numbers = [int.from_bytes(argument, "little") for argument in fill.arguments]
        assert numbers == [arrays["unwritten"].data.ptr, arrays["bias"].data.ptr, *c, 200]
        assert (fill.function, fill.grid[0], fill.overlaps) == (FILL, packed.unwritten.size, False)
        assert len(driver.launched) == 2 * (turn + 1)


def test_a_copy_is_launched_with_arrays_of_its_own(monkeypatch, loaded):
    driver = install(monkeypatch, TILE_ARGS.itemsize, 128)
    driver.bytes_of[FILL] = (8, 8, 8, 8, 4)
    operator, _, arrays = tile_operator(loaded)
    other = operator.copy()
    other.enqueue(*PLACES[0], 0)
    record = np.frombuffer(driver.launched[0].arguments[0], TILE_ARGS)
    assert record["weights"] == other._arrays["weights"].data.ptr != arrays["weights"].data.ptr
    assert record["clock"] == other.clock.data.ptr != operator.clock.data.ptr


def test_an_operator_of_few_tokens_begins_b_at_whole_words(monkeypatch, loaded):
    driver = install(monkeypatch, SMALL_ARGS.itemsize)
    plan = fastest_plan("small-n", ragged_map(128), 7, "fp16", load_gpu("h200-sxm"))
    packed = SmallOperator.pack(plan, np.ones((plan.m, plan.k), np.float32))
    operator = loaded("small_n.cuda.records").SmallOperator(
        plan, packed, on_device(packed), kernel_of(OTHER), overlap=False
    )
    operator.enqueue(Place(4098, 14), Place(8192, 14), 7)
    record = np.frombuffer(driver.launched[0].arguments[0], SMALL_ARGS)
    assert (record["b"], record["b_shift"], record["c"], record["c_row_bytes"]) == (4096, 1, 8192, 14)
    assert (driver.launched[0].grid[0], driver.launched[0].stream) == (packed.blocks, 7)


@pytest.mark.parametrize("tokens", [1, 16])
def test_a_balanced_operator_counts_steps_of_one_token_by_elements(tokens, monkeypatch, loaded):
    plan = fastest_plan("balanced", elements_of_density(64, 128, 0.25), tokens, "fp16", load_gpu("h200-sxm"))
    packed = BalancedOperator.pack(plan, np.ones((plan.m, plan.k), np.float32))
    driver = install(monkeypatch, packed.args.dtype.itemsize)
    operator = loaded("balanced.cuda.operator").BalancedOperator(
        plan, packed, on_device(packed), kernel_of(OTHER), overlap=False
    )
    operator.enqueue(Place(4096, 96), Place(8192, 64), 7)
    record = np.frombuffer(driver.launched[0].arguments[0], packed.args.dtype)
    names = ("b_step", "c_step") if tokens == 1 else ("b_row_bytes", "c_row_bytes")
    assert tuple(record[name] for name in names) == ((48, 32) if tokens == 1 else (96, 64))
    assert (record["b"], record["c"], driver.launched[0].grid[0]) == (4096, 8192, plan.item_count)
