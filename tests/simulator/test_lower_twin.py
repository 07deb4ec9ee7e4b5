"""Real kernels: the engine runs the lowered plan, its slow twin reads the plan itself, and they agree."""

import sys
from dataclasses import replace

import numpy as np
import pytest

from prunecast.choice import fastest_plan
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels import KERNELS, KernelPlan
from prunecast.kernels.tile.config import wgmma_configs
from prunecast.kernels.tile.stspmm import ASSIGNMENTS, STREAM_K
from prunecast.kernels.tile.tile_plan import items_of, tile_plan
from prunecast.launch import launch_context
from prunecast.launch.memory import memory_rules
from prunecast.patterns import element_map_from_mask
from prunecast.plan.assignment import assign_longest_first, split_items
from prunecast.plan.program import Instruction, Op, WarpProgram
from prunecast.simulator import POLICIES
from prunecast.simulator.lower import lower
from tests.kernels.layouts import PLANNED, elements_of_density, example_plan, tiles_keeping
from tests.models.hand_plans import hand_plan
from tests.naive.engine_adapter import launch_engine
from tests.naive.from_plan import kernel_of, machine_of, work_of
from tests.naive.simulator import simulate_naively
from tests.toy_gpu import toy_gpu

M, K, N = 208, 320, 150
"""Ragged on purpose: no block is full at the edges."""
TILES = tiles_keeping([300, 40, 0, 170], height=64, m=M, k=K)


def assert_agree(plan: KernelPlan, gpu: GpuSpec, policy: str = "gty") -> None:
    context = launch_context(plan, gpu)
    lowered = lower(context, memory_rules(context), policy=POLICIES[policy], clock_hz=gpu.max_clock_hz)
    fast = launch_engine(lowered.machine, lowered.program, lowered.work)
    machine = machine_of(plan, gpu, lowered.machine, lowered.work.panel)
    assert fast == simulate_naively(machine, kernel_of(context), work_of(context))


@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize("kernel", PLANNED)
def test_every_kernel(kernel: str, capability: int) -> None:
    gpu = toy_gpu(compute_capability=capability)
    tokens = 37 if KERNELS[kernel].most_tokens else N
    if kernel == "cusparselt":  # takes whole groups of 8
        tokens = 152
    assert_agree(example_plan(kernel, M, K, tokens, gpu), gpu)


@pytest.mark.parametrize("seed", range(3))
def test_rows_that_are_padded_each_to_another_length(seed: int) -> None:
    plan = fastest_plan("csr", elements_of_density(40, 64, 0.2), 24, "fp16", toy_gpu(sm_count=3))
    zeros = np.random.default_rng(seed).choice([0, 1, 70], plan.tiles.tile_count)
    assert_agree(replace(plan, padded=plan.tiles.kept_per_tile + zeros), toy_gpu(sm_count=3))


def test_one_token_blocks_that_lie_together() -> None:
    gpu = toy_gpu(compute_capability=90, sm_count=5)
    plan = fastest_plan("balanced", elements_of_density(128, 64, 0.1), 1, "fp16", gpu)
    assert launch_context(plan, gpu).crowd > 1
    assert_agree(plan, gpu)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("assignment", ASSIGNMENTS)
def test_split_tiles_under_every_assignment_and_policy(assignment: str, policy: str) -> None:
    gpu = toy_gpu(sm_count=3 * STREAM_K.get(assignment, 1))
    plan = fastest_plan("stspmm", TILES, N, "fp16", gpu, assignment=assignment, split=2)
    assert plan.work.parts.max() > 1
    assert_agree(plan, gpu, policy)


@pytest.mark.parametrize("block_m", [256, 128])
def test_split_tiles_of_two_of_four(block_m: int) -> None:
    gpu = toy_gpu(compute_capability=90, sm_count=3)
    tiles = tiles_keeping([300, 40, 170], height=block_m, k=320)
    inner = element_map_from_mask(np.zeros((tiles.m, tiles.k), bool), tiles.pattern)
    config = next(c for c in wgmma_configs(gpu, "fp16", "sparse-wgmma") if c.shape[:2] == (block_m, 128))
    items = items_of(tiles, config, N, gpu)
    parts = split_items(items, np.where(items.k_stop > 64, 2, 1), 64)
    assigned = assign_longest_first(parts, parts.k_stop - parts.k_start, 3)
    assert_agree(tile_plan("2:4", tiles, N, config, assigned, gpu, b_access="gather", inner=inner), gpu)


@pytest.mark.parametrize("coarse", [2, 3, 12])
def test_long_steps_without_stages_cost_what_their_steps_do(coarse: int, monkeypatch) -> None:
    """One warp, twelve steps of 64 columns: as many bytes, instructions and cycles, in fewer operations."""
    step = (
        Instruction(Op.LOAD_INDEX, 64),
        Instruction(Op.LOAD_A, 96, 2),
        Instruction(Op.SHARED, 512, 2),
        Instruction(Op.ISSUE, 70, 3),
        Instruction(Op.FMA, issue=5),
        Instruction(Op.FMA, issue=2, per_k16=True),
    )
    worker = WarpProgram(role="worker", warps=1, step=step)
    plan = replace(hand_plan([12 * 64], 64, stages=0, programs=(worker,)), tensor="none")
    context = launch_context(plan, toy_gpu(shared_latency_cycles=0))
    totals, operations = [], []
    for wanted in (12 * len(step), 12 * len(step) // coarse):
        monkeypatch.setattr(sys.modules[lower.__module__], "OPERATIONS_WANTED", wanted)
        lowered = lower(context, memory_rules(context), policy=POLICIES["gty"], clock_hz=1e9)
        found = launch_engine(lowered.machine, lowered.program, lowered.work)
        totals.append((found.cycles, found.instructions, found.l2_bytes, found.dram_bytes))
        operations.append(found.operations)
    assert totals[0] == totals[1]
    assert operations == [12 * len(step) + 1, 12 * len(step) // coarse + 1]
