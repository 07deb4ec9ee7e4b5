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

FORMS = [tuple(config.shape[:2]) for config in variants_of("v100-sxm2-16gb", "fp32")]


def plan(form: tuple[int, int], n: int, blocks: int = 0, k: int = 701) -> KernelPlan:
    return plan_of(ragged_map(form[0], k), n, form, dtype="fp32", blocks=blocks, gpu="v100-sxm2-16gb")


def check(plan: KernelPlan, folder: Path, *, activation: str = "none", bias: bool = False, **choices) -> None:
    operands = make_operands(plan, bias=bias, align=4)
    run_mma(plan, operands, folder, activation=activation, **choices)
    check_c(plan, operands, activation)
    check_around(operands.c, -(-plan.n // 4) * 4)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("blocks", "n"), [(0, 133), (6, 64), (5, 3)])
def test_every_tile_is_right(form: tuple[int, int], blocks: int, n: int, cubins: Path) -> None:
    check(plan(form, n, blocks), cubins, backwards=blocks == 0)


@pytest.mark.parametrize("seed", [1, 4, 6])
def test_a_tile_split_into_many_parts_in_any_order(seed: int, cubins: Path) -> None:
    split = plan((64, 64), 64, blocks=12, k=2000)
    assert split.work.parts.max() >= 3
    check(split, cubins, seed=seed)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_bias_and_activation(activation: str, cubins: Path) -> None:
    check(plan((64, 128), 72, blocks=7), cubins, activation=activation, bias=True)


WRONG = {
    "a barrier is missing": ({"__syncthreads();": ""}, "a race"),
    "the slot that is read is filled": (
        {"fetcher.land_tokens(tokens, 1 - slot);": "fetcher.land_tokens(tokens, slot);"},
        "a race|wrong; tile",
    ),
    "rows of padded columns are read": (
        {"inside && column[q] >= 0": "inside"},
        "outside of all arrays|wrong; tile",
    ),
    "sums of the item before are kept": (
        {"if (what & FIRST_STEP) clear(sums);": "if (i == 0) clear(sums);"},
        "wrong; tile",
    ),
    "an owner does not wait for the other parts": (
        {"while (load_acquire(counter) != static_cast<u32>(parts)) patience.spend();": ""},
        "counters of split tiles|wrong; tile",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_kernel_that_was_made_wrong_is_found_out(wrong: str, cubins: Path) -> None:
    changes, message = WRONG[wrong]
    mistaken = plan((64, 64), 136, blocks=5)
    assert_noticed(lambda seed: check(mistaken, cubins, changes=changes, seed=seed), message, range(6))
