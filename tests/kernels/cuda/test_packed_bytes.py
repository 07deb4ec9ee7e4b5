"""The bytes that every kernel reads, by digests of what packers with code of their own made (2026-11-28)."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest

from prunecast.hardware import load_gpu
from prunecast.kernels import KernelPlan
from prunecast.kernels.balanced.cuda.operator import BalancedOperator
from prunecast.kernels.balanced.kernel import BALANCED
from prunecast.kernels.small_n.configs import SmallConfig
from prunecast.kernels.small_n.cuda.records import SmallOperator
from prunecast.kernels.small_n.kernel import SMALL_N
from prunecast.kernels.tile.cuda.ffma.operator import FfmaOperator
from prunecast.kernels.tile.cuda.mma.operator import MmaOperator
from prunecast.kernels.tile.cuda.operator import TileOperator
from prunecast.kernels.two_of_four.cuda.operator import SparseOperator
from tests.kernels.cuda import plans
from tests.kernels.cuda.mma import mma_plans
from tests.kernels.cuda.sparse import layouts
from tests.kernels.cuda.test_on_cpu_conv import grid_of, tiles_of
from tests.kernels.layouts import elements_of_density

GPU = load_gpu("h200-sxm")


def small(n: int, height: int, width: int, dtype: str = "fp16") -> KernelPlan:
    config = SmallConfig(height, width, 4)
    return SMALL_N.plan(plans.ragged_map(128), n, dtype, GPU, config)


def balanced(n: int, dtype: str, number: int) -> KernelPlan:
    elements = elements_of_density(200, 300, 0.3)
    return BALANCED.plan(elements, n, dtype, GPU, BALANCED.configs(elements, n, dtype, GPU)[number])


def conv(stride: int, *, on_mma: bool = False) -> KernelPlan:
    grid = grid_of(height=9, stride=stride)
    made = mma_plans.plan_of if on_mma else plans.plan_of
    form = ((128, 128),) if on_mma else (128, 128)
    return replace(made(tiles_of(grid, 256, 128), grid.n, *form), source=grid)


def mma(form: tuple[int, int], **options: object) -> KernelPlan:
    return mma_plans.plan_of(mma_plans.ragged_map(form[0]), 200, form, **options)


CASES = {
    "tile": (TileOperator, lambda: plans.plan_of(plans.ragged_map(128), 200, 128, 128)),
    "tile bf16": (TileOperator, lambda: plans.plan_of(plans.ragged_map(64), 333, 64, 256, dtype="bf16")),
    "tile stream-k": (TileOperator, lambda: plans.plan_of(plans.ragged_map(256), 256, 256, 128, blocks=5)),
    "conv": (TileOperator, lambda: conv(1)),
    "conv strided": (TileOperator, lambda: conv(2)),
    "conv mma": (MmaOperator, lambda: conv(2, on_mma=True)),
    "small-n": (SmallOperator, lambda: small(16, 64, 16)),
    "small-n bf16": (SmallOperator, lambda: small(13, 32, 16, "bf16")),
    "2:4": (SparseOperator, lambda: layouts.plan_of(200, (128, 128))),
    "2:4 bf16 split": (SparseOperator, lambda: layouts.plan_of(200, (256, 64), dtype="bf16", slices=3)),
    "mma": (MmaOperator, lambda: mma((128, 128))),
    "mma bf16 stream-k": (MmaOperator, lambda: mma((16, 256), dtype="bf16", blocks=7)),
    "mma turing": (MmaOperator, lambda: mma((64, 128), gpu="t4")),
    "2:4 mma": (MmaOperator, lambda: mma((64, 64), sparse=True)),
    "2:4 mma wide": (MmaOperator, lambda: mma((128, 256), sparse=True, dtype="bf16")),
    "ffma": (FfmaOperator, lambda: mma((128, 128), dtype="fp32")),
    "balanced": (BalancedOperator, lambda: balanced(64, "fp16", 0)),
    "balanced fp32": (BalancedOperator, lambda: balanced(40, "fp32", 1)),
    "balanced vector": (BalancedOperator, lambda: balanced(1, "bf16", 0)),
}
DIGESTS = {
    "tile": "70d1ed6727cc7b13",
    "tile bf16": "8f53e58abf61c99f",
    "tile stream-k": "3959ed051df3f973",
    "conv": "5d070b6c31f730d4",
    "conv strided": "eca1590e4c63a503",
    "conv mma": "17d0a9ed1c24d326",
    "small-n": "257553045637603d",
    "small-n bf16": "2efe240a21a48f63",
    "2:4": "7001637a0e2ef8cc",
    "2:4 bf16 split": "ed09b2dd5ca129ec",
    "mma": "062180400878b1ab",
    "mma bf16 stream-k": "15f8ed0d95abea9b",
    "mma turing": "69deecd20d324078",
    "2:4 mma": "74dcc47adcc7d1e6",
    "2:4 mma wide": "34262701a12ec673",
    "ffma": "b3e951dd7e6e0901",
    "balanced": "6c59b6cdc6cacc83",
    "balanced fp32": "f120cb33796c7d46",
    "balanced vector": "d9fe78315ef368f7",
}


def digest(name: str) -> str:
    operator, plan_of = CASES[name]
    plan = plan_of()
    weights = np.random.default_rng(3).standard_normal((plan.m, plan.k), dtype=np.float32)
    packed = operator.pack(plan, weights)
    found = hashlib.sha256()
    for field, array in sorted(packed.arrays.items()):
        assert array.flags.c_contiguous
        found.update(f"{field} {array.nbytes};".encode() + array.tobytes())
    found.update(f"{packed.blocks} {sorted(packed.workspace.items())};".encode())
    # Borders and second inputs of convolutions were added behind the earlier fields
    fields = packed.args.dtype.fields
    earlier = fields["gaps"][1] if "gaps" in fields else packed.args.itemsize
    found.update(packed.args.tobytes()[:earlier] + packed.unwritten.tobytes())
    return found.hexdigest()[:16]


@pytest.mark.parametrize("name", CASES)
def test_packed_bytes_are_those_of_earlier_versions(name: str) -> None:
    assert digest(name) == DIGESTS[name]


@pytest.mark.parametrize("name", ["ffma", "balanced"])
def test_kernels_without_instructions_of_one_architecture_are_compiled_once_for_hopper(name: str) -> None:
    operator, plan = CASES[name]
    assert operator.compile_inputs(plan()).any_arch
    assert not TileOperator.compile_inputs(CASES["tile"][1]()).any_arch
