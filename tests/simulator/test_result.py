"""Attribution and utilisation of simulated launches whose parts can be reckoned by hand."""

from dataclasses import replace

import numpy as np
import pytest

from prunecast.launch import Conditions, launch_context
from prunecast.plan.kernel_plan import WorkList
from prunecast.plan.program import Instruction, Op, WarpProgram
from prunecast.simulator import SimResult, simulate
from prunecast.simulator.result import ATTRIBUTION, PIPES, _Account, _account, _attribute_cycles
from prunecast.simulator.simulate import settle
from tests.models.hand_plans import hand_plan
from tests.toy_gpu import toy_gpu

STEP = 256
"""Tensor cycles of a k-step of 64 columns on the toy GPU: 64 x 64 x 64 multiply-adds, 1024 in a cycle."""
GPU = toy_gpu()
ONE_BLOCK = 120_000
"""Bytes of shared memory of which an SM of the toy GPU has room for one block."""


def cycles_of(result: SimResult) -> dict[str, float]:
    return {name: seconds * result.clock_hz for name, seconds in result.attribution_s.items()}


@pytest.mark.parametrize(
    ("kept", "ideal", "tail", "imbalance"),
    [
        # Five equal items on four SMs: one SM has two of them, 5/4 is the mean
        ([64] * 5, 5 / 4, 2 - 5 / 4, 0),
        ([64] * 4, 1, 0, 0),
        # One item on each SM: there is no last wave that is partly filled
        ([64, 64, 64, 256], 7 / 4, 0, 4 - 7 / 4),
        # The fifth item shares the SM of the first: 5 steps. Five equal items of 8/5 steps would be 2 * 8/5
        ([256, 64, 64, 64, 64], 2, 2 * 8 / 5 - 2, 5 - 2 * 8 / 5),
    ],
)
def test_work_is_ideal_or_lost_in_the_last_wave_or_to_unequal_items(
    kept: list[int], ideal: float, tail: float, imbalance: float
) -> None:
    result = simulate(hand_plan(kept, 64), GPU, launch="stream")
    found = cycles_of(result)
    assert found["ideal work"] == pytest.approx(STEP * ideal)
    assert found["tail"] == pytest.approx(STEP * tail)
    assert found["imbalance"] == pytest.approx(STEP * imbalance)
    assert tuple(result.attribution_s) == ATTRIBUTION
    assert sum(result.attribution_s.values()) == pytest.approx(result.seconds)
    assert result.sm_items.sum() == len(kept)
    assert result.sm_tensor_cycles.sum() == STEP * sum(kept) / 64


@pytest.mark.parametrize("warps", [1, 2, 4])
def test_waits_for_loads_are_memory_beyond_the_start_of_the_block(warps: int) -> None:
    """Eight steps wait for DRAM, one after the other, with all warps at the same time."""
    load, use = Instruction(Op.LOAD_A, 64), Instruction(Op.FMA, issue=64)
    worker = WarpProgram(role="worker", warps=warps, step=(load, Instruction(Op.WAIT_LOAD), use))
    plan = hand_plan([8 * 64], 64, stages=0, programs=(worker,), shared_bytes=ONE_BLOCK)
    result = simulate(replace(plan, tensor="none"), GPU, launch="stream")
    found = cycles_of(result)
    assert found["memory"] == pytest.approx(8 * GPU.dram_latency_cycles - GPU.block_start_cycles, abs=8)
    assert found["fill and drain"] == GPU.block_start_cycles
    # Every cycle of a resident warp has one state
    assert sum(result.stalls.values()) == pytest.approx(1.0)
    assert result.stalls["wait load"] == pytest.approx(8 * GPU.dram_latency_cycles / result.cycles, abs=0.01)
    assert result.stalls["fetch"] == pytest.approx(GPU.block_start_cycles / result.cycles, abs=0.01)
    assert result.stalls["issuing"] == pytest.approx(8 * 66 / result.cycles, abs=0.01)
    assert result.seconds == pytest.approx(result.launch_s + result.cycles / result.clock_hz)
    # Useful work of CUDA cores is issue: 66 instructions a step, on one of four schedulers for each warp
    slots = result.warp_instructions / GPU.sub_partitions_per_sm
    assert result.warp_instructions == pytest.approx(8 * 66 * warps, abs=2 * warps)
    assert found["ideal work"] + found["tail"] + found["imbalance"] == pytest.approx(slots)


def test_warps_that_wait_side_by_side_wait_once() -> None:
    """Three blocks on the only SM, each as above."""
    load, use = Instruction(Op.LOAD_A, 64), Instruction(Op.FMA, issue=64)
    worker = WarpProgram(role="worker", warps=2, step=(load, Instruction(Op.WAIT_LOAD), use))
    gpu = toy_gpu(sm_count=1)
    plan = hand_plan([8 * 64] * 3, 64, stages=0, programs=(worker,))
    result = simulate(replace(plan, tensor="none"), gpu, launch="stream")
    assert result.occupancy.blocks_per_sm == 3
    expected = 8 * gpu.dram_latency_cycles - gpu.block_start_cycles
    assert cycles_of(result)["memory"] == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize(
    ("tensor", "shared", "bound"),
    [
        (0.80, 0.82, "tensor"),  # within 3 %: the first of both
        (0.80, 0.84, "shared"),
        (0.50, 0.20, "tensor"),
        (0.49, 0.49, "latency"),
    ],
)
def test_the_bound_is_the_busiest_unit_if_it_is_busy_half_of_the_time(
    tensor: float, shared: float, bound: str
) -> None:
    result = simulate(hand_plan([64], 64), GPU, launch="stream")
    busy = {**dict.fromkeys(PIPES, 0.1), "tensor": tensor, "shared": shared}
    assert replace(result, utilisation=busy).bound == bound


def test_waits_for_copies_are_memory_where_dram_is_slow() -> None:
    """16 KiB a step, at 20 bytes per cycle: 819 cycles for 256 of tensor cores."""
    plan = hand_plan([16 * 64], 64, shared_bytes=ONE_BLOCK)
    slow = toy_gpu(dram_bytes_per_s=20e9)
    fast, found = (cycles_of(simulate(plan, gpu, launch="stream")) for gpu in (GPU, slow))
    assert found["memory"] == pytest.approx(16 * (16 * 1024 / 20 - STEP), rel=0.06)
    assert fast["memory"] < STEP


def test_each_unit_is_busy_with_what_the_launch_moves_and_issues() -> None:
    result = simulate(hand_plan([64, 256, 64, 128, 64, 64], 64), GPU, launch="stream")
    busy = {name: share * result.cycles for name, share in result.utilisation.items()}
    sms, steps = GPU.sm_count, 10
    assert busy["tensor"] == pytest.approx(STEP * steps / sms)
    assert busy["issue"] == pytest.approx(result.warp_instructions / (4 * sms))
    # A step copies 16 KiB into shared memory; tensor instructions read 1 KiB for each of 4 warps and 4 k16
    read = steps * 16 * 1024
    assert busy["shared"] == pytest.approx((read + read) / GPU.shared_bytes_per_clk_per_sm / sms, rel=0.01)
    assert busy["l2 port"] == pytest.approx(read / GPU.l2_port_bytes_per_clk_per_sm / sms)
    assert result.l2_bytes == read + 6 * 2 * 64 * 64
    assert busy["l2"] == pytest.approx(read / (GPU.l2_bytes_per_s / 1e9), rel=1e-3)  # of its reads
    assert busy["dram"] == pytest.approx(result.dram_bytes / (GPU.dram_bytes_per_s / 1e9), rel=1e-3)


@pytest.mark.parametrize(
    ("kept", "tokens", "hits"),
    [
        ([64], 64, 0.0),
        ([64], 128, 1 / 4),  # two token ranges share the weights
        ([64] * 4, 64, 3 / 8),  # four tiles share the rows of B
        ([64] * 4, 128, 5 / 8),  # of 8 times 16 KiB, four tiles and two ranges of B come from DRAM
    ],
)
def test_data_that_an_item_reads_again_hit_l2(kept: list[int], tokens: int, hits: float) -> None:
    result = simulate(hand_plan(kept, tokens), GPU, launch="stream")
    assert result.l2_hit_rate == pytest.approx(hits, abs=0.01)
    read = 16 * 1024 * len(kept) * tokens / 64
    written = 2 * 64 * len(kept) * tokens
    assert result.l2_bytes == read + written
    assert result.dram_bytes == pytest.approx(read * (1.0 - hits) + written, rel=0.01)


def test_a_launch_that_reads_nothing_hits_nothing() -> None:
    worker = WarpProgram(role="worker", warps=1, step=(Instruction(Op.FMA, issue=64),))
    plan = hand_plan([64], 64, stages=0, programs=(worker,))
    result = simulate(replace(plan, tensor="none"), GPU, launch="stream")
    assert (result.l2_hit_rate, result.l2_bytes, result.dram_bytes) == (0.0, 0, 0)


def test_the_owner_of_a_split_tile_waits_for_the_longer_part() -> None:
    """The part has 15 steps and the owner one; both copy from cycle 500 on."""
    whole = hand_plan([16 * 64], 64, shared_bytes=ONE_BLOCK)
    columns = {
        "k_start": [64, 0],
        "k_stop": [1024, 64],
        "part": [1, 0],
        "owner": [0, 1],
        **{name: [0, 0] for name in ("tile", "token_start", "group")},
        "token_stop": [64, 64],
        "parts": [2, 2],
    }
    work = WorkList(np.arange(3), **{name: np.array(column) for name, column in columns.items()})
    plan = replace(whole, work=work, blocks=2)
    settled = settle(launch_context(plan, GPU, Conditions(launch="stream")), policy="gty")
    account = _account(plan, settled.lowered, settled.run, 10_000)
    assert account.fix_up == pytest.approx(14 * STEP + GPU.signal_latency_cycles, rel=0.1)
    assert account.work.tolist() == pytest.approx([15 * STEP, STEP, 0, 0])
    assert account.items == 2


ACCOUNT = _Account(
    cycles=1000,
    work=np.array([400.0, 200.0]),
    items=3,
    first_work=50.0,
    last_work=900.0,
    wait_data=120.0,
    fix_up=30.0,
)


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, (150, 30, 120 - 50, 350)),
        # Waits for data before the first useful cycle are part of the fill
        ({"wait_data": 40.0}, (150, 30, 0, 420)),
        # Edges, fix-up and memory share what the busiest SM leaves, in this order
        ({"fix_up": 9e9}, (150, 450, 0, 0)),
        ({"wait_data": 9e9}, (150, 30, 420, 0)),
        ({"first_work": 700.0}, (600, 0, 0, 0)),
    ],
)
def test_cycles_beyond_the_work_of_the_busiest_sm_are_shared_out_in_turn(
    changes: dict[str, float], wanted: tuple[float, ...]
) -> None:
    """Three items on two SMs: a mean of 300, of which a partly filled second wave makes 400."""
    found = _attribute_cycles(replace(ACCOUNT, **changes))
    assert [found[name] for name in ("ideal work", "tail", "imbalance")] == pytest.approx([300, 100, 0])
    assert tuple(found[name] for name in ("fill and drain", "split fix-up", "memory", "other")) == wanted
    assert sum(found.values()) == pytest.approx(ACCOUNT.cycles)
