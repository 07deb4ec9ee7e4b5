"""The tile kernel for sm_90a computes the right product, run as it is on an emulated machine."""

from pathlib import Path

import numpy as np
import pytest

from prunecast.kernels import KernelPlan
from tests.kernels.cuda.on_cpu.mistakes import assert_noticed
from tests.kernels.cuda.on_cpu.on_cpu import UNAVAILABLE, EmulationError
from tests.kernels.cuda.on_cpu.operands import check_around, check_c, make_operands
from tests.kernels.cuda.on_cpu.tile_run import run_fill, run_tiles
from tests.kernels.cuda.plans import plan_of, ragged_map

pytestmark = pytest.mark.skipif(UNAVAILABLE, reason="needs Linux and g++")


def check(plan: KernelPlan, folder: Path, *, activation: str = "none", bias: bool = False, **choices) -> None:
    operands = make_operands(plan, bias=bias, align=8)
    run_tiles(plan, operands, folder, activation=activation, **choices)
    run_fill(plan, operands, folder, activation=activation)
    check_c(plan, operands, activation)
    check_around(operands.c, -(-plan.n // 8) * 8)


def owners_before_the_end(plan: KernelPlan) -> int:
    """Split tiles that a block owns and does not end with."""
    owners = (plan.work.parts > 1) & (plan.work.owner == 1)
    return int(np.delete(owners, plan.work.block_start[1:] - 1).sum())


@pytest.mark.parametrize("landing", ["oldest", "newest", "at-once"])
def test_every_tile_is_right_whenever_copies_land(landing: str, cubins: Path) -> None:
    plan = plan_of(ragged_map(128, k=700), 520, 128, 256, blocks=5)
    assert plan.work.parts.max() == 2
    check(plan, cubins, landing=landing)


@pytest.mark.parametrize(
    ("form", "n", "dtype"),
    [((128, 192), 203, "bf16"), ((128, 128), 72, "fp16"), ((128, 64), 64, "fp16"), ((64, 256), 8, "bf16")],
)
def test_every_form_one_item_per_block(form: tuple[int, int], n: int, dtype: str, cubins: Path) -> None:
    check(plan_of(ragged_map(form[0]), n, *form, dtype=dtype), cubins, backwards=True)


@pytest.mark.parametrize("seed", [1, 4, 6])
def test_a_tile_split_into_many_parts_in_any_order(seed: int, cubins: Path) -> None:
    plan = plan_of(ragged_map(64, k=2000), 64, 64, 128, blocks=12)
    assert plan.work.parts.max() >= 3
    check(plan, cubins, seed=seed)


@pytest.mark.parametrize("landing", ["oldest", "newest", "at-once"])
@pytest.mark.parametrize(("form", "n"), [((128, 256), 520), ((128, 64), 200)])
def test_whole_tiles_behind_an_owner(form: tuple[int, int], n: int, landing: str, cubins: Path) -> None:
    plan = plan_of(ragged_map(form[0], k=700), n, *form, blocks=5, owners_first=True)
    assert owners_before_the_end(plan) > 0
    check(plan, cubins, landing=landing)


@pytest.mark.parametrize(("activation", "dtype"), [("relu", "bf16"), ("gelu", "fp16")])
def test_bias_and_activation(activation: str, dtype: str, cubins: Path) -> None:
    plan = plan_of(ragged_map(128), 200, 128, 128, dtype=dtype, blocks=7)
    check(plan, cubins, activation=activation, bias=True)


def test_the_build_that_traps_where_it_would_hang(cubins: Path) -> None:
    check(plan_of(ragged_map(64), 136, 64, 128, blocks=3), cubins, defines={"GUARD": 1})


@pytest.mark.parametrize("landing", ["oldest", "newest", "at-once"])
@pytest.mark.parametrize(("form", "n"), [((128, 256), 520), ((128, 64), 72), ((64, 128), 136)])
def test_rows_that_follow_one_another_are_stored_in_boxes(
    form: tuple[int, int], n: int, landing: str, cubins: Path
) -> None:
    check(plan_of(ragged_map(form[0], k=700, shuffled=False), n, *form, blocks=5), cubins, landing=landing)


SEEDS = range(6)
WRONG = {
    "the producer does not wait for an empty slot": (
        {},
        {"fetch_stage() {\n    barrier_wait(ring.empty(), ring.parity ^ 1);": "fetch_stage() {"},
        "a global address|more arrivals",
    ),
    "columns are those of the stage before": (
        {},
        {"load_shared(ring.columns() +": "load_shared(ring.columns_after() +"},
        "a global address|a race|wrong; tile",
    ),
    "the first columns are read before all are there": (
        {"backwards": True},
        {"    warpgroup_sync(PRODUCERS_MEET);\n": ""},
        "a global address|a race|wrong; tile",
    ),
    "nothing brings the columns behind an owner": (
        {},
        {"if (owner) keep_columns(load_columns());": ""},
        "a global address|wrong; tile",
    ),
    "consumers do not wait for a full slot": (
        {},
        {"barrier_wait(ring.full(), ring.parity);": ""},
        "a race",
    ),
    "copies are not counted": (
        {},
        {"barrier_arrive_after_copies(ring.full());": "barrier_arrive(ring.full());"},
        "wrong; tile",
    ),
    "the bytes of the weights are not counted": (
        {},
        {"barrier_arrive_expect(ring.full(), STAGE_BULK_BYTES);": "barrier_arrive(ring.full());"},
        "a global address|a block ends while copies",
    ),
    "a slot is given back before it was multiplied": (
        {},
        {
            "multiply_wait<1>();\n    me.release();\n    me.hold();": "me.release();\n"
            "    multiply_wait<1>();\n    me.hold();"
        },
        "a race",
    ),
    "sums are read before they are complete": (
        {},
        {"me.hold();\n  multiply_wait<0>();\n": "me.hold();\n"},
        "wrong; tile|asynchronous proxy",
    ),
    "rows are read before all lanes have staged": (
        {},
        {"fence_async_proxy();\n    __syncwarp();": "fence_async_proxy();"},
        "a race: shared memory is used that another lane",
    ),
    "rows are staged before they have been stored": (
        {"landing": "oldest"},
        {"void empty_staging() const {\n    bulk_stores_read();": "void empty_staging() const {"},
        "asynchronous proxy|wrong; tile",
    ),
    "the copy engine reads C without a fence": (
        {},
        {"void fill_staging() const {\n    fence_async_proxy();": "void fill_staging() const {"},
        "asynchronous proxy without a fence",
    ),
    "an owner waits for one warp only": (
        {},
        {
            "while (load_acquire(counter) != static_cast<u32>(split.y * CONSUMER_WARPS))": "while "
            "(load_acquire(counter) < static_cast<u32>(split.y))"
        },
        "counters of split tiles|wrong; tile",
    ),
    "an owner does not wait for the other parts": (
        {},
        {"while (load_acquire(counter) != static_cast<u32>(split.y * CONSUMER_WARPS)) patience.spend();": ""},
        "counters of split tiles|wrong; tile",
    ),
    "an owner adds a slot before it has arrived": (
        {},
        {"barrier_wait(me.ring.full(), me.ring.parity);": ""},
        "more arrivals|deadlock",
    ),
    "barriers are used before they are ready": (
        {"backwards": True},
        {"range.end - range.begin);\n  }\n  start_together();": "range.end - range.begin);\n  }"},
        "never initialised",
    ),
    "the next 16 columns are somewhere else": (
        {},
        {"WEIGHTS_NEXT_K16 = 2": "WEIGHTS_NEXT_K16 = 4"},
        "wrong; tile",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_kernel_that_was_made_wrong_is_found_out(wrong: str, cubins: Path) -> None:
    choices, changes, message = WRONG[wrong]
    plan = plan_of(ragged_map(128, k=700, shuffled=False), 520, 128, 256, blocks=5, owners_first=True)
    assert plan.work.parts.max() == 2
    assert owners_before_the_end(plan) > 0
    assert_noticed(lambda seed: check(plan, cubins, changes=changes, seed=seed, **choices), message, SEEDS)


def test_reading_through_the_other_proxy_needs_a_fence(cubins: Path) -> None:
    plan = plan_of(ragged_map(128), 64, 128, 64)
    with pytest.raises(EmulationError, match="asynchronous proxy without a fence"):
        check(plan, cubins, defines={"FENCE": 0})


def test_a_wrong_element_is_not_forgiven() -> None:
    plan = plan_of(ragged_map(64), 8, 64, 128)
    operands = make_operands(plan, align=8)
    a, b = operands.a * plan.tiles.mask(), operands.b.matrix.astype(np.float32)
    operands.c.matrix[...] = a @ np.where(np.isfinite(b), b, 0)
    check_c(plan, operands)
    row = plan.tiles.row_index[plan.tiles.row_start[5]]
    operands.c.matrix[row, 3] *= np.float16(1.01)
    with pytest.raises(
        AssertionError, match=r"1 of .* wrong; tile 5, 63 kept: 1, rows 0 to 0, tokens 3 to 3"
    ):
        check_c(plan, operands)
