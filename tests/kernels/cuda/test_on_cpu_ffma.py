"""The fp32 tile kernel computes the right product, run as it is on an emulated machine."""

from pathlib import Path

import pytest

from prunecast.kernels import KernelPlan
from tests.kernels.cuda.mma.mma_plans import plan_of, ragged_map, variants_of
from tests.kernels.cuda.on_cpu.mistakes import assert_noticed
from tests.kernels.cuda.on_cpu.mma_run import run_mma
from tests.kernels.cuda.on_cpu.on_cpu import UNAVAILABLE
from tests.kernels.cuda.on_cpu.operands import check_around, check_c, make_operands

pytestmark = pytest.mark.skipif(UNAVAILABLE, reason="needs Linux and g++")

ASYNC, THROUGH_REGISTERS = "a100-sxm4-80gb", "v100-sxm2-16gb"
FORMS = [tuple(config.shape[:2]) for config in variants_of(ASYNC, "fp32")]


def plan(form: tuple[int, int], n: int, blocks: int = 0, k: int = 701, gpu: str = ASYNC) -> KernelPlan:
    return plan_of(ragged_map(form[0], k), n, form, dtype="fp32", blocks=blocks, gpu=gpu)


def check(plan: KernelPlan, folder: Path, *, activation: str = "none", bias: bool = False, **choices) -> None:
    operands = make_operands(plan, bias=bias, align=4)
    run_mma(plan, operands, folder, activation=activation, **choices)
    check_c(plan, operands, activation)
    check_around(operands.c, -(-plan.n // 4) * 4)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("gpu", "blocks", "n"),
    [(ASYNC, 0, 133), (ASYNC, 5, 3), (THROUGH_REGISTERS, 0, 133), (THROUGH_REGISTERS, 6, 64)],
)
def test_every_tile_is_right(form: tuple[int, int], gpu: str, blocks: int, n: int, cubins: Path) -> None:
    check(plan(form, n, blocks, gpu=gpu), cubins, backwards=blocks == 0)


@pytest.mark.parametrize("landing", ["at-once", "newest"])
def test_copies_may_land_whenever_they_do(landing: str, cubins: Path) -> None:
    check(plan((64, 64), 64, blocks=5), cubins, landing=landing)


@pytest.mark.parametrize("seed", [1, 4, 6])
def test_a_tile_split_into_many_parts_in_any_order(seed: int, cubins: Path) -> None:
    split = plan((64, 64), 64, blocks=12, k=2000)
    assert split.work.parts.max() >= 3
    check(split, cubins, seed=seed)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_bias_and_activation(activation: str, cubins: Path) -> None:
    check(plan((64, 128), 72, blocks=7), cubins, activation=activation, bias=True)


WRONG = {
    "a barrier is missing": (THROUGH_REGISTERS, {"__syncthreads();": ""}, "a race"),
    "the slot that is read is filled": (
        THROUGH_REGISTERS,
        {"fetcher.land_tokens(tokens, 1 - slot);": "fetcher.land_tokens(tokens, slot);"},
        "a race|wrong; tile",
    ),
    "copies fill the slot that is read": (
        ASYNC,
        {"fetcher.issue(i, slot == 0 ? 4 - 1 : slot - 1);": "fetcher.issue(i, slot);"},
        "a race|wrong; tile",
    ),
    "nobody waits for copies": (
        ASYNC,
        {"wait_step();": "__syncthreads();"},
        "outside of all arrays|wrong; tile",
    ),
    "sums of the item before are kept": (
        ASYNC,
        {"if (fetcher.record(i).w & FIRST_STEP) clear(sums);": "if (i == 0) clear(sums);"},
        "wrong; tile",
    ),
    "an owner does not wait for the other parts": (
        ASYNC,
        {"while (load_acquire(counter) != static_cast<u32>(parts)) patience.spend();": ""},
        "counters of split tiles|wrong; tile",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_kernel_that_was_made_wrong_is_found_out(wrong: str, cubins: Path) -> None:
    gpu, changes, message = WRONG[wrong]
    mistaken = plan((64, 64), 136, blocks=5, gpu=gpu)
    assert_noticed(lambda seed: check(mistaken, cubins, changes=changes, seed=seed), message, range(6))
