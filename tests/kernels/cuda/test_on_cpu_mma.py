"""The tile kernel for GPUs without wgmma computes the right product, run as it is on an emulated machine."""

from pathlib import Path

import pytest

from prunecast.kernels import KernelPlan
from tests.kernels.cuda.mma.mma_plans import plan_of, ragged_map
from tests.kernels.cuda.on_cpu.mistakes import assert_noticed
from tests.kernels.cuda.on_cpu.mma_run import run_mma
from tests.kernels.cuda.on_cpu.on_cpu import UNAVAILABLE
from tests.kernels.cuda.on_cpu.operands import check_around, check_c, make_operands

pytestmark = pytest.mark.skipif(UNAVAILABLE, reason="needs Linux and g++")


def check(plan: KernelPlan, folder: Path, *, activation: str = "none", bias: bool = False, **choices) -> None:
    operands = make_operands(plan, bias=bias, align=8)
    run_mma(plan, operands, folder, activation=activation, **choices)
    check_c(plan, operands, activation)
    check_around(operands.c, -(-plan.n // 8) * 8)


@pytest.mark.parametrize("landing", ["oldest", "newest", "at-once"])
def test_every_tile_is_right_whenever_copies_land(landing: str, cubins: Path) -> None:
    plan = plan_of(ragged_map(128), 520, (128, 256), blocks=5)
    assert plan.work.parts.max() == 2
    check(plan, cubins, landing=landing)


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
def test_every_form_one_item_per_block(form: tuple[int, int], n: int, dtype: str, cubins: Path) -> None:
    check(plan_of(ragged_map(form[0]), n, form, dtype=dtype), cubins, backwards=True)


@pytest.mark.parametrize("form", [(128, 128), (64, 64)])
def test_three_slots(form: tuple[int, int], cubins: Path) -> None:
    plan = plan_of(ragged_map(form[0]), 203, form, blocks=7, gpu="rtx-3090")
    assert plan.resources.stages == 3
    check(plan, cubins)


@pytest.mark.parametrize("form", [(128, 128), (64, 256), (64, 64), (16, 256)])
@pytest.mark.parametrize("blocks", [0, 6])
def test_copies_through_registers(form: tuple[int, int], blocks: int, cubins: Path) -> None:
    """Of compute capability 7.5."""
    plan = plan_of(ragged_map(form[0]), 203, form, blocks=blocks, gpu="t4")
    assert plan.resources.stages == 2
    check(plan, cubins, backwards=blocks == 0)


@pytest.mark.parametrize("seed", [1, 4, 6])
@pytest.mark.parametrize("gpu", ["a100-sxm4-80gb", "t4"])
def test_a_tile_split_into_many_parts_in_any_order(gpu: str, seed: int, cubins: Path) -> None:
    plan = plan_of(ragged_map(64, k=2000), 64, (64, 128), blocks=12, gpu=gpu)
    assert plan.work.parts.max() >= 3
    check(plan, cubins, seed=seed)


@pytest.mark.parametrize(
    ("activation", "dtype", "gpu"),
    [("relu", "bf16", "a100-sxm4-80gb"), ("gelu", "fp16", "a100-sxm4-80gb"), ("gelu", "fp16", "t4")],
)
def test_bias_and_activation(activation: str, dtype: str, gpu: str, cubins: Path) -> None:
    plan = plan_of(ragged_map(64), 72, (64, 128), dtype=dtype, blocks=7, gpu=gpu)
    check(plan, cubins, activation=activation, bias=True)


def test_one_set_of_fragments_where_two_are_usual(cubins: Path) -> None:
    check(plan_of(ragged_map(64), 136, (64, 128), blocks=3), cubins, defines={"PIPELINED": 0})


SEEDS = range(6)
WRONG = {
    "a copy is not waited for": (
        "oldest",
        {"wait_copies<4 - 2>();": "wait_copies<4>();"},
        "wrong; tile|outside of all arrays",
    ),
    "warps do not wait for one another": (
        "oldest",
        {"wait_copies<4 - 2>();\n  __syncthreads();": "wait_copies<4 - 2>();"},
        "a race",
    ),
    "a slot is filled while it is read": (
        "at-once",
        {
            "fetcher.issue(i, before(slot));\n    multiply(sums, first);\n    wait_step();": (
                "multiply(sums, first);\n    wait_step();\n    fetcher.issue(i, slot);"
            ),
        },
        "wrong; tile|a race|outside of all arrays",
    ),
    "columns are overwritten before they are read": (
        "at-once",
        {"commit_copies();\n      __syncthreads();": "commit_copies();"},
        "a race|wrong; tile",
    ),
    "rows of padded columns are read": (
        "oldest",
        {"inside ? row_of_source(column[q]) : -1": "inside ? row_of_source(max(column[q], 0)) : -1"},
        "wrong; tile|in no tile",
    ),
    "the next pair of tokens is somewhere else": (
        "oldest",
        {"^ j * 32": "^ j * 64"},
        "wrong; tile",
    ),
    "sums of the item before are kept": (
        "oldest",
        {"clear(sums);\n      rows": "if (i == 0) clear(sums);\n      rows"},
        "wrong; tile",
    ),
    "a part signals before all lanes have written": (
        "oldest",
        {"__syncwarp();\n  if (lane == 0) signal_add(counter);": "if (lane == 0) signal_add(counter);"},
        "wrong; tile",
    ),
    "an owner does not wait for the other parts": (
        "oldest",
        {"while (load_acquire(counter) != static_cast<u32>(parts)) patience.spend();": ""},
        "counters of split tiles|wrong; tile",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_kernel_that_was_made_wrong_is_found_out(wrong: str, cubins: Path) -> None:
    landing, changes, message = WRONG[wrong]
    plan = plan_of(ragged_map(64), 200, (64, 128), blocks=5)

    def run(seed: int) -> None:
        check(plan, cubins, changes=changes, landing=landing, seed=seed)

    assert_noticed(run, message, SEEDS)


def test_without_a_barrier_the_two_slots_of_registers_race(cubins: Path) -> None:
    plan = plan_of(ragged_map(64), 64, (64, 64), gpu="t4")
    changes = {"void wait_step() { __syncthreads(); }": "void wait_step() {}"}
    assert_noticed(lambda seed: check(plan, cubins, changes=changes, seed=seed), "a race", SEEDS)
