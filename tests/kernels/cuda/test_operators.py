"""What operators hand to the driver, with host arrays instead of a GPU: the record's fields, map and rows."""

import ctypes

import numpy as np
import pytest

from prunecast.choice import fastest_plan
from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.kernels.balanced.cuda.operator import BalancedOperator
from prunecast.kernels.device import operator as device_operator
from prunecast.kernels.device.compile_inputs import CompileInputs
from prunecast.kernels.device.operator import Call
from prunecast.kernels.small_n.cuda.records import SMALL_ARGS, SmallOperator
from prunecast.kernels.tile.cuda.mma import operator as mma_operator
from prunecast.kernels.tile.cuda.mma.operator import MmaOperator
from prunecast.kernels.tile.cuda.operator import TileOperator, box_of, encode_boxes
from prunecast.kernels.tile.cuda.work_image import TILE_ARGS
from tests.kernels.cuda.fake_driver import install
from tests.kernels.cuda.mma import mma_plans
from tests.kernels.cuda.plans import plan_of, ragged_map
from tests.kernels.layouts import elements_of_density

TILES, FILL = 11, 22
CALLS = [
    (Call(640, 704, 256, 512, 200), 4096, 1 << 40),
    (Call(640, 704, 320, 256, 200), 8192, 1 << 41),
]


class HostArray:
    """Takes the place of an array on a device."""

    def __init__(self, values):
        self.values = np.ascontiguousarray(values)
        self.pointer = self.values.ctypes.data


@pytest.fixture
def on_host(monkeypatch):
    """Operators are made without compiling, loading and copying."""
    monkeypatch.setattr(device_operator, "DeviceArray", HostArray)
    monkeypatch.setattr(device_operator, "capability_of", lambda _: 90)
    monkeypatch.setattr(device_operator, "arch_of", lambda _: "")
    monkeypatch.setattr(device_operator, "build_fill", lambda *_, **__: ctypes)  # has no cubin
    monkeypatch.setattr(ctypes, "cubin", None, raising=False)
    monkeypatch.setattr(CompileInputs, "build", lambda *_: ctypes)
    monkeypatch.setattr(
        device_operator, "load_function", lambda _, entry, *__: FILL if entry == "fill_rows" else TILES
    )


def test_a_tile_operator_enqueues_the_product_and_rows_in_no_tile(monkeypatch, on_host):
    driver = install(monkeypatch, TILE_ARGS.itemsize, 128)
    driver.bytes_of[FILL] = (8, 8, 8, 8, 4)
    plan = plan_of(ragged_map(128), 200, 128, 128)
    packed = TileOperator.records(plan)
    operator = TileOperator(plan, packed, device=0, clock=4242, bias=True)
    for turn, (call, b, c) in enumerate([*CALLS, *CALLS]):
        operator.at(call, b, c, 5)
        product, fill = driver.launched[-2:]
        wanted = packed.args.copy()
        for name in ("columns", "items", "splits", "rows", "partials", "counters"):
            wanted[name] = operator.arrays[name].pointer
        wanted["clock"], wanted["b"], wanted["c"] = 4242, b, c
        for name in ("weights", "bias", "b_row_bytes", "c_row_bytes", "tokens"):
            wanted[name] = getattr(call, name)
        map_of_c = encode_boxes(c, call.c_row_bytes, rows=plan.m, tokens=200, box=box_of(plan))
        assert product.arguments == (wanted.tobytes(), map_of_c.map.tobytes())
        assert (product.function, product.grid[0], product.stream) == (TILES, plan.blocks, 5)
        assert (product.block[0], product.overlaps) == (plan.resources.threads, True)
        assert product.shared_bytes == plan.resources.shared_bytes
        numbers = [int.from_bytes(argument, "little") for argument in fill.arguments]
        assert numbers == [operator.arrays["unwritten"].pointer, 704, c, call.c_row_bytes, 200]
        assert (fill.function, fill.grid[0], fill.overlaps) == (FILL, packed.unwritten.size, False)
        assert (fill.block[0] % 32, fill.shared_bytes) == (0, 0)  # whole warps, which share nothing
        assert len(driver.launched) == 2 * (turn + 1)


@pytest.mark.parametrize(
    ("options", "built"),
    [({}, ("none", False)), ({"bias": True}, ("none", True)), ({"activation": "gelu"}, ("gelu", False))],
)
def test_rows_in_no_tile_get_bias_and_activation_as_the_others(options, built, monkeypatch, on_host):
    """Without a bias its address is zero, which no kernel may read."""
    asked = []

    def build_fill(dtype, activation, *, bias):
        asked.append((dtype, activation, bias))
        return ctypes

    monkeypatch.setattr(device_operator, "build_fill", build_fill)
    plan = plan_of(ragged_map(128), 200, 128, 128)
    TileOperator(plan, TileOperator.records(plan), device=0, **options)
    assert asked == [("fp16", *built)]


def test_an_operator_of_few_tokens_begins_b_at_whole_words(monkeypatch, on_host):
    driver = install(monkeypatch, SMALL_ARGS.itemsize)
    plan = fastest_plan("small-n", ragged_map(128), 7, "fp16", load_gpu("h200-sxm"))
    packed = SmallOperator.records(plan)
    operator = SmallOperator(plan, packed, device=0)
    for b, shift in ((4098, 1), (4100, 0), (4102, 1)):
        operator.at(Call(640, 0, 14, 14, 8), b, 8192, 7)
        record = np.frombuffer(driver.launched[-1].arguments[0], SMALL_ARGS)
        assert (record["b"], record["b_shift"], record["c"], record["c_row_bytes"]) == (
            b - 2 * shift,
            shift,
            8192,
            14,
        )
        assert (record["tokens"], record["b_end"]) == (7, shift + (plan.k - 1) * 7 + 7)
    assert (driver.launched[0].grid[0], driver.launched[0].stream) == (packed.blocks, 7)


@pytest.mark.parametrize("tokens", [1, 16])
def test_a_balanced_operator_counts_steps_of_one_token_by_elements(tokens, monkeypatch, on_host):
    plan = fastest_plan("balanced", elements_of_density(64, 128, 0.25), tokens, "fp16", load_gpu("h200-sxm"))
    packed = BalancedOperator.pack(plan, np.ones((plan.m, plan.k), np.float32))
    driver = install(monkeypatch, packed.args.dtype.itemsize)
    operator = BalancedOperator(plan, packed, device=0)
    operator.at(Call(0, 0, 96, 64, tokens), 4096, 8192, 7)
    record = np.frombuffer(driver.launched[0].arguments[0], packed.args.dtype)
    names = ("b_step", "c_step") if tokens == 1 else ("b_row_bytes", "c_row_bytes")
    assert tuple(record[name] for name in names) == ((48, 32) if tokens == 1 else (96, 64))
    assert (record["b"], record["c"], driver.launched[0].grid[0]) == (4096, 8192, plan.item_count)


def test_a_device_that_cannot_run_the_plan_is_refused(monkeypatch, on_host):
    monkeypatch.setattr(device_operator, "capability_of", lambda _: 75)
    plan = plan_of(ragged_map(128), 200, 128, 128)
    with pytest.raises(BadInput, match=r"needs compute capability 9\.0, device 0 has 7\.5"):
        TileOperator(plan, TileOperator.records(plan), device=0)


def test_blocks_that_wait_for_one_another_must_be_resident(monkeypatch, on_host):
    asked = []
    monkeypatch.setattr(mma_operator, "check_resident", lambda *sizes: asked.append(sizes))
    for blocks in (0, 7):
        plan = mma_plans.plan_of(mma_plans.ragged_map(64), 200, (64, 128), blocks=blocks)
        MmaOperator(plan, MmaOperator.records(plan), device=0)
    # No block waits for those of rows in no tile, which come last
    assert asked == [(TILES, 7, 256, plan.resources.shared_bytes, 0)]
