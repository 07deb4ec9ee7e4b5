"""The tile kernel for GPUs without wgmma multiplies 2:4 weights right, run as it is on a CPU."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from prunecast.choice import fastest_plan
from prunecast.hardware import load_gpu
from prunecast.kernels import KernelPlan
from prunecast.patterns.element_map import element_map_from_mask
from prunecast.plan.kernel_plan import Schedule
from tests.kernels.cuda.mma.mma_plans import plan_of, ragged_map
from tests.kernels.cuda.on_cpu.mistakes import assert_noticed
from tests.kernels.cuda.on_cpu.mma_run import run_mma
from tests.kernels.cuda.on_cpu.on_cpu import UNAVAILABLE
from tests.kernels.cuda.on_cpu.operands import check_around, check_c, make_operands

pytestmark = pytest.mark.skipif(UNAVAILABLE, reason="needs Linux and g++")

SMALL = "rtx-3090"
"""Whose plans have k-steps of 32 columns, as less shared memory makes them."""


def check(plan: KernelPlan, folder: Path, *, activation: str = "none", bias: bool = False, **choices) -> None:
    operands = make_operands(plan, bias=bias, align=8)
    run_mma(plan, operands, folder, activation=activation, **choices)
    check_c(plan, operands, activation)
    check_around(operands.c, -(-plan.n // 8) * 8)


@pytest.mark.parametrize("gpu", ["b200", SMALL])
@pytest.mark.parametrize("landing", ["oldest", "newest", "at-once"])
def test_every_tile_is_right_whenever_copies_land(landing: str, gpu: str, cubins: Path) -> None:
    plan = plan_of(ragged_map(128), 520, (128, 256), blocks=5, gpu=gpu, sparse=True)
    assert plan.work.parts.max() == 2
    assert (plan.shape.block_k, plan.resources.stages) == ((64, 3) if gpu == "b200" else (32, 4))
    check(plan, cubins, landing=landing)


@pytest.mark.parametrize("gpu", ["a100-sxm4-80gb", SMALL])
@pytest.mark.parametrize(
    ("form", "n", "dtype"),
    [
        ((256, 128), 136, "bf16"),
        ((128, 128), 203, "fp16"),
        ((64, 256), 72, "bf16"),
        ((64, 128), 130, "fp16"),
        ((128, 64), 64, "bf16"),
        ((64, 64), 72, "fp16"),
        ((32, 256), 8, "bf16"),
        ((32, 128), 8, "fp16"),
        ((16, 256), 136, "fp16"),
    ],
)
def test_every_form_one_item_per_block(
    form: tuple[int, int], n: int, dtype: str, gpu: str, cubins: Path
) -> None:
    check(plan_of(ragged_map(form[0]), n, form, dtype=dtype, gpu=gpu, sparse=True), cubins, backwards=True)


@pytest.mark.parametrize("form", [(128, 128), (32, 128)])
def test_three_slots_of_short_steps(form: tuple[int, int], cubins: Path) -> None:
    plan = plan_of(ragged_map(form[0]), 203, form, blocks=7, gpu=SMALL, sparse=True)
    assert (plan.shape.block_k, plan.resources.stages) == (32, 3)
    check(plan, cubins)


@pytest.mark.parametrize("seed", [1, 4, 6])
@pytest.mark.parametrize("gpu", ["a100-sxm4-80gb", SMALL])
def test_a_tile_split_into_many_parts_in_any_order(gpu: str, seed: int, cubins: Path) -> None:
    plan = plan_of(ragged_map(64, k=2000), 64, (64, 128), blocks=12, gpu=gpu, sparse=True)
    assert plan.work.parts.max() >= 3
    check(plan, cubins, seed=seed)


@pytest.mark.parametrize(("activation", "dtype"), [("relu", "bf16"), ("gelu", "fp16")])
def test_bias_and_activation(activation: str, dtype: str, cubins: Path) -> None:
    plan = plan_of(ragged_map(64), 72, (64, 128), dtype=dtype, blocks=7, sparse=True)
    check(plan, cubins, activation=activation, bias=True)


def test_the_other_number_of_sets_of_fragments(cubins: Path) -> None:
    check(plan_of(ragged_map(64), 136, (64, 128), blocks=3, sparse=True), cubins, defines={"PIPELINED": 0})
    check(plan_of(ragged_map(128), 136, (128, 128), blocks=3, sparse=True), cubins, defines={"PIPELINED": 1})


def test_a_plain_2_of_4_matrix_runs_on_what_the_planner_makes_of_it(cubins: Path) -> None:
    fours = np.random.default_rng(3).random((200, 36, 4)).argsort(axis=2) < 2
    elements = element_map_from_mask(fours.reshape(200, 144)[:, :142], "2:4")
    check(fastest_plan("2:4", elements, 90, "fp16", load_gpu("a100-sxm4-80gb")), cubins)


def test_the_planner_splits_a_single_tile_over_all_sms(cubins: Path) -> None:
    gpu = replace(load_gpu("a100-sxm4-80gb"), sm_count=4)
    elements = element_map_from_mask(np.tile([True, False, True, False], (64, 512)), "2:4")
    plan = fastest_plan("2:4", elements, 64, "fp16", gpu)
    assert plan.work.parts.tolist() == [gpu.sm_count] * gpu.sm_count
    assert plan.schedule is Schedule.STATIC
    check(plan, cubins)


SEEDS = range(6)
WRONG = {
    "a copy is not waited for": (
        {"wait_copies<3 - 2>();": "wait_copies<3>();"},
        "wrong; tile|outside of all arrays|ascend",
    ),
    "warps do not wait for one another": (
        {"wait_copies<3 - 2>();\n  __syncthreads();": "wait_copies<3 - 2>();"},
        "a race|ascend",
    ),
    "places are taken from the other lanes": (
        {"multiply_sparse<1>(s,": "multiply_sparse<0>(s,"},
        "wrong; tile",
    ),
    "the second 32 columns multiply the first tokens": ({"turn / N16 * 32 *": "0 *"}, "wrong; tile"),
    "the next tokens are somewhere else": ({"^ (first + n) * 16": "^ (first + n) * 32"}, "wrong; tile"),
    "weights of the first 32 columns stay": (
        {"reader.weights(weights[m], slot, (turn + 1) / N16, m);": ""},
        "wrong; tile",
    ),
    "places of the step before stay": (
        {"places[m] = reader.places(slot, m);": "places[m] = 0x44444444;"},
        "wrong; tile",
    ),
    "rows of padded columns are read": (
        {"inside ? row_of_source(column[q]) : -1": "inside ? row_of_source(max(column[q], 0)) : -1"},
        "wrong; tile|in no tile",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_kernel_that_was_made_wrong_is_found_out(wrong: str, cubins: Path) -> None:
    changes, message = WRONG[wrong]
    plan = plan_of(ragged_map(64), 200, (64, 128), blocks=5, sparse=True)
    assert_noticed(lambda seed: check(plan, cubins, changes=changes, seed=seed), message, SEEDS)


def test_a_slot_that_is_filled_while_it_is_read_is_found_out(cubins: Path) -> None:
    plan = plan_of(ragged_map(64), 200, (64, 128), blocks=5, sparse=True)
    changes = {"fetcher.issue_piece(i, before(slot), piece);": "fetcher.issue_piece(i, slot, piece);"}
    assert_noticed(
        lambda seed: check(plan, cubins, changes=changes, landing="at-once", seed=seed),
        "wrong; tile|a race|outside of all arrays|ascend",
        SEEDS,
    )
