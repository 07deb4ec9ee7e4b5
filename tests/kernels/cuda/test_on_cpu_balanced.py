"""The balanced kernels compute the right product, run as they are on an emulated machine."""

from pathlib import Path

import numpy as np
import pytest

from prunecast.choice import fastest_plan
from prunecast.hardware import load_gpu
from prunecast.kernels import KernelPlan
from prunecast.patterns import ElementMap, element_map_from_mask
from prunecast.patterns.n_of_m import prune_balanced
from tests.kernels.cuda.on_cpu.balanced_run import run_balanced
from tests.kernels.cuda.on_cpu.mistakes import assert_noticed
from tests.kernels.cuda.on_cpu.on_cpu import UNAVAILABLE
from tests.kernels.cuda.on_cpu.operands import check_around, check_c, make_operands

pytestmark = pytest.mark.skipif(UNAVAILABLE, reason="needs Linux and g++")

GPU = load_gpu("h200-sxm")
ITEM_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}


def balanced(m: int, k: int, sparsity: float, width: int = 64) -> ElementMap:
    scores = np.random.default_rng(m + k).random((m, k))
    return element_map_from_mask(prune_balanced(scores, sparsity, width=width), f"balanced:{width}")


def ragged(m: int, k: int) -> ElementMap:
    """Rows of every density, among them an empty and a full one."""
    mask = np.random.default_rng(0).random((m, k)) < np.linspace(-0.1, 1.1, m)[:, None]
    return element_map_from_mask(mask, "unstructured")


def check(plan: KernelPlan, folder: Path, *, activation: str = "none", bias: bool = False, **choices) -> None:
    align = 1 if plan.n == 1 else 16 // ITEM_BYTES[plan.dtype]
    operands = make_operands(plan, bias=bias, align=align)
    run_balanced(plan, operands, folder, activation=activation, **choices)
    check_c(plan, operands, activation)
    check_around(operands.c, -(-plan.n // align) * align)


@pytest.mark.parametrize(
    ("elements", "dtype"),
    [
        (balanced(70, 300, 0.75), "fp32"),
        (balanced(33, 130, 0.5, width=32), "fp16"),
        (ragged(50, 200), "bf16"),
    ],
)
@pytest.mark.parametrize("n", [1, 8, 77])
def test_every_element_is_right(elements: ElementMap, dtype: str, n: int, cubins: Path) -> None:
    check(fastest_plan("balanced", elements, n, dtype, GPU), cubins)


@pytest.mark.parametrize("landing", ["newest", "at-once"])
def test_many_windows_in_any_order(landing: str, cubins: Path) -> None:
    check(
        fastest_plan("balanced", balanced(300, 1100, 0.9), 72, "fp32", GPU), cubins, landing=landing, seed=2
    )


@pytest.mark.parametrize("n", [1, 16])
def test_bias_and_activation(n: int, cubins: Path) -> None:
    plan = fastest_plan("balanced", balanced(40, 200, 0.75), n, "fp16", GPU)
    check(plan, cubins, activation="gelu", bias=True)


def test_without_asynchronous_copies(cubins: Path) -> None:
    check(fastest_plan("balanced", balanced(70, 300, 0.75), 24, "fp16", GPU), cubins, arch=750)


WRONG = {
    "copies are not waited for": ({}, {"wait_for_fetches();\n    __syncthreads();": "__syncthreads();"}),
    "warps do not wait for one another": (
        {},
        {"wait_for_fetches();\n    __syncthreads();": "wait_for_fetches();"},
    ),
    "sums of splits are taken before they are there": (
        {},
        {"__syncthreads();\n  if (split == 0)": "if (split == 0)"},
    ),
    "a slot gets another window": (
        {},
        {"copy_tokens(args, shared, i + 1, token);": "copy_tokens(args, shared, i + 2, token);"},
    ),
    "the zeros behind a window are missing": (
        {},
        {"make_uint4(0, 0, 0, 0);\n  }\n  int2": "make_uint4(1, 1, 1, ~0u);\n  }\n  int2"},
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_kernel_that_was_made_wrong_is_found_out(wrong: str, cubins: Path) -> None:
    choices, changes = WRONG[wrong]
    plan = fastest_plan("balanced", balanced(300, 1100, 0.9), 72, "fp32", GPU)
    assert_noticed(
        lambda seed: check(plan, cubins, changes=changes, seed=seed, **choices), "wrong; tile", range(3)
    )
