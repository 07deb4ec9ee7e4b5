"""The sparse kernel for sm_90a computes the right product, run as it is on an emulated machine."""

from pathlib import Path

import pytest

from prunecast.kernels import KernelPlan
from tests.kernels.cuda.on_cpu.mistakes import assert_noticed
from tests.kernels.cuda.on_cpu.on_cpu import UNAVAILABLE
from tests.kernels.cuda.on_cpu.operands import check_around, check_c, make_operands
from tests.kernels.cuda.on_cpu.sparse_run import run_sparse
from tests.kernels.cuda.on_cpu.tile_run import run_fill
from tests.kernels.cuda.sparse.layouts import FORMS, plan_of

pytestmark = pytest.mark.skipif(UNAVAILABLE, reason="needs Linux and g++")


def check(plan: KernelPlan, folder: Path, *, activation: str = "none", bias: bool = False, **choices) -> None:
    operands = make_operands(plan, bias=bias, align=8)
    run_sparse(plan, operands, folder, activation=activation, **choices)
    run_fill(plan, operands, folder, activation=activation)
    check_c(plan, operands, activation)
    check_around(operands.c, -(-plan.n // 8) * 8)


@pytest.mark.parametrize("landing", ["oldest", "newest", "at-once"])
def test_every_tile_is_right_whenever_copies_land(landing: str, cubins: Path) -> None:
    check(plan_of(200, (256, 128), blocks=3, k=600), cubins, landing=landing)


@pytest.mark.parametrize("form", FORMS[1:])
def test_every_form_one_item_per_block(form: tuple[int, int], cubins: Path) -> None:
    check(plan_of(72, form, dtype="bf16"), cubins, seed=1)


@pytest.mark.parametrize("landing", ["oldest", "newest", "at-once"])
@pytest.mark.parametrize("form", [(256, 128), (128, 256)])
def test_split_tiles_and_whole_ones_behind_their_parts(
    form: tuple[int, int], landing: str, cubins: Path
) -> None:
    check(split_plan(form), cubins, landing=landing)


def split_plan(form: tuple[int, int]) -> KernelPlan:
    plan = plan_of(200, form, blocks=3, k=600, slices=3)
    assert plan.work.parts.max() == 3
    assert (plan.work.parts == 1).any()
    return plan


@pytest.mark.parametrize("seed", [1, 2])
def test_split_tiles_in_any_order(seed: int, cubins: Path) -> None:
    check(plan_of(72, (128, 64), blocks=5, k=600, slices=4, dtype="bf16"), cubins, seed=seed, bias=True)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_bias_and_activation(activation: str, cubins: Path) -> None:
    check(plan_of(72, (128, 64), blocks=2), cubins, activation=activation, bias=True)


WRONG = {
    "consumers do not wait for a full slot": ({}, {"barrier_wait(ring.full(), ring.parity);": ""}),
    "columns are those of another visit of the slot": (
        {},
        {"load_shared(ring.columns() +": "load_shared(ring.columns_after() +"},
    ),
    "the first columns are not kept": ({}, {"at.keep_columns(columns);": ""}),
    "columns come after those of the first item": (
        {},
        {"if (steps_of(at.item) < 2 * 6) at.wait_for_list();": ""},
    ),
    "places are taken from the wrong lanes": ({}, {"multiply_sparse<1>(sums,": "multiply_sparse<0>(sums,"}),
    "a slot is given back before it was multiplied": (
        {},
        {
            "multiply_wait<1>();\n  me.release();\n  me.hold();": "me.release();\n  me.hold();\n"
            "  multiply_wait<1>();"
        },
    ),
    "sums are read before they are complete": ({}, {"me.hold();\n  multiply_wait<1>();": "me.hold();"}),
}
WRONG_SPLITS = {
    "an owner does not wait for the other parts": {
        "while (load_acquire(counter) != static_cast<u32>(split.y)) patience.spend();": ""
    },
    "an owner reads before its lane has waited": {
        "*counter = 0;\n  }\n  __syncwarp();": "*counter = 0;\n  }"
    },
    "a part signals before all lanes have written": {
        "  __syncwarp();\n  if (threadIdx.x % 32 == 0) signal_add": "  if (threadIdx.x % 32 == 0) signal_add"
    },
    "both groups of rows share counters": {
        "2 * CONSUMER_WARPS + warp_of_group(group)": "2 * CONSUMER_WARPS + warp_of_group(0)"
    },
    "a part is added twice": {"split.x + part, group": "split.x, group"},
    "a part writes C": {"if (ending.action == PART)": "if (false)"},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_kernel_that_was_made_wrong_is_found_out(wrong: str, cubins: Path) -> None:
    choices, changes = WRONG[wrong]
    plan = plan_of(200, (256, 128), blocks=3, k=600)
    assert_noticed(
        lambda seed: check(plan, cubins, changes=changes, seed=seed, **choices),
        "wrong; tile|a race|ascend|an? .*address outside of all arrays",
        range(6),
    )


@pytest.mark.parametrize("wrong", WRONG_SPLITS)
def test_a_wrong_exchange_of_sums_is_found_out(wrong: str, cubins: Path) -> None:
    plan = split_plan((256, 128))
    assert_noticed(
        lambda seed: check(plan, cubins, changes=WRONG_SPLITS[wrong], seed=seed),
        "wrong; tile|a race|counters of split tiles|deadlock",
        range(6),
    )
