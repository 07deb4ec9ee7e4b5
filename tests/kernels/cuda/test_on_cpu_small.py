"""The kernel for few tokens computes the right product, run as it is on an emulated machine."""

from pathlib import Path

import numpy as np
import pytest

from prunecast.hardware import load_gpu
from prunecast.kernels import KernelPlan
from prunecast.kernels.small_n.configs import SmallConfig, _block_widths, small_configs
from prunecast.kernels.small_n.kernel import _plan_small_n
from prunecast.patterns import TileMap
from tests.kernels.cuda.on_cpu.mistakes import assert_noticed
from tests.kernels.cuda.on_cpu.on_cpu import UNAVAILABLE
from tests.kernels.cuda.on_cpu.operands import check_around, check_c, make_operands
from tests.kernels.cuda.on_cpu.small_run import run_small

pytestmark = pytest.mark.skipif(UNAVAILABLE, reason="needs Linux and g++")

GPU = load_gpu("h200-sxm")
KEPT = (0, 1, 15, 16, 17, 63, 64, 65, 1100)
"""The last takes every ring around twice: 69 k16s, 8 warps, 4 slots."""


def ragged_map(height: int, k: int = KEPT[-1]) -> TileMap:
    """A tile for every count of `KEPT`, the last one short, rows shuffled, five rows in no tile."""
    rng = np.random.default_rng(height)
    heights = np.full(len(KEPT), height)
    heights[-1] = height // 2 + 3
    m = int(heights.sum()) + 5
    columns = [np.sort(rng.choice(k, kept, replace=False)) for kept in KEPT]
    return TileMap(
        m=m,
        k=k,
        row_start=np.concatenate(([0], np.cumsum(heights))),
        row_index=rng.permutation(m)[: m - 5],
        column_start=np.concatenate(([0], np.cumsum(KEPT))),
        column_index=np.concatenate(columns),
        pattern=f"tile-wise:{height}",
    )


def plan_of(n: int, dtype: str, block_m: int, *, height: int = 0, depth: int = 4) -> KernelPlan:
    form = SmallConfig(block_m, _block_widths(n)[0], depth)
    return _plan_small_n(ragged_map(height or block_m), n, dtype, GPU, config=form)


@pytest.mark.parametrize("n", [1, 7, 8, 16, 33, 64])
@pytest.mark.parametrize(("dtype", "block_m"), [("fp16", 64), ("bf16", 16)])
def test_every_tile_is_right(n: int, dtype: str, block_m: int, cubins: Path) -> None:
    plan = plan_of(n, dtype, block_m)
    operands = make_operands(plan, seed=n)
    run_small(plan, operands, cubins, landing="at-once" if n == 16 else "oldest")
    check_c(plan, operands)
    check_around(operands.c, n)


@pytest.mark.parametrize("n", [2, 6, 8])
def test_blocks_of_twice_as_many_tokens(n: int, cubins: Path) -> None:
    widths = sorted({config.block_n for config in small_configs(n)})
    assert widths == [8, 16]
    config = SmallConfig(32, widths[-1], 4)
    plan = _plan_small_n(ragged_map(32), n, "fp16", GPU, config=config)
    operands = make_operands(plan, seed=n)
    run_small(plan, operands, cubins)
    check_c(plan, operands)
    check_around(operands.c, n)


@pytest.mark.parametrize("n", [65, 130])
def test_more_tokens_than_a_block_takes(n: int, cubins: Path) -> None:
    plan = plan_of(n, "fp16", 32, height=40, depth=3)
    assert plan.tiles.tile_count > len(KEPT)  # tiles of 40 rows are cut
    operands = make_operands(plan, seed=n)
    run_small(plan, operands, cubins, backwards=True)
    check_c(plan, operands)
    check_around(operands.c, n)


@pytest.mark.parametrize(("activation", "dtype"), [("relu", "fp16"), ("gelu", "bf16")])
def test_bias_and_activation(activation: str, dtype: str, cubins: Path) -> None:
    plan = plan_of(16, dtype, 32)
    operands = make_operands(plan, bias=True)
    run_small(plan, operands, cubins, activation=activation)
    check_c(plan, operands, activation)


@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize(("n", "apart"), [(7, 0), (7, 4), (1, 2)])
def test_rows_that_lie_anywhere(n: int, apart: int, shift: int, cubins: Path) -> None:
    """B begins in the middle of a word, rows are further apart than their tokens."""
    plan = plan_of(n, "fp16", 16)
    operands = make_operands(plan, apart=apart, shift=shift)
    run_small(plan, operands, cubins)
    check_c(plan, operands)
    check_around(operands.c, n)


WRONG = {
    "a copy is not waited for": ("oldest", {"wait_copies<4 - 1>();": "wait_copies<4>();"}),
    "warps do not wait for one another": ("oldest", {"__syncthreads();": ""}),
    "tokens of a pair are exchanged": ("oldest", {"0x5410 : 0x7632": "0x1054 : 0x3276"}),
    "a slot is filled before it is read": (
        "at-once",
        {
            "multiply(slot, me.lane, sums);": "refill(args, me, slot, i);",
            "    refill(args, me, slot, i);\n    slot": "    multiply(slot, me.lane, sums);\n    slot",
        },
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_kernel_that_was_made_wrong_is_found_out(wrong: str, cubins: Path) -> None:
    landing, changes = WRONG[wrong]
    plan = plan_of(16, "fp16", 16)

    def run_and_check(seed: int) -> None:
        operands = make_operands(plan)
        run_small(plan, operands, cubins, changes=changes, landing=landing, seed=seed)
        check_c(plan, operands)

    assert_noticed(run_and_check, "wrong; tile|outside of all arrays|a race", range(4))
