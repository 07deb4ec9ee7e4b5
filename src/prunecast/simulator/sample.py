"""Samples of the engine: a few equal blocks on one SM, to which L2 and DRAM have nothing else to deliver.

The closed form takes the times of prologues, k-steps and epilogues from here, so that warp programs have one
meaning. Bandwidth of L2 and DRAM is left out: `models` adds the traffic of all SMs.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from prunecast.hardware.spec import GpuSpec
from prunecast.plan.kernel_plan import BlockShape, Schedule
from prunecast.plan.program import WarpProgram
from prunecast.simulator import engine
from prunecast.simulator.engine_state import Machine, Program, Status, Work, new_state, run_engine
from prunecast.simulator.lower import a_ways, lowered_program, sm_costs, ticks_per_kib


class SampledBlock(NamedTuple):
    """A block of a launch and the SM that runs it."""

    programs: tuple[WarpProgram, ...]
    """Programs with the costs of the GPU's architecture."""
    shape: BlockShape
    stages: int
    """Slots of the ring in shared memory; 0 without one."""
    dtype: str
    tensor: str
    gpu: GpuSpec
    store_latency: int
    """Cycles from a block's last store until L2 has it."""
    store_bytes_per_clk: float
    """Bytes per cycle that L2 accepts of this SM while all others with a block store too."""
    read_latency: int
    """Cycles until weights, indices and rows arrive that L2 does not have; its own latency if it has all."""
    b_in_l2: bool = False
    """True if L2 has the rows of B in any case."""
    dram_sms: int = 0
    """SMs among which DRAM's bandwidth is divided evenly; 0 for unlimited bandwidth."""


class SampledItem(NamedTuple):
    """A work item of a sampled block."""

    columns: int
    """Kept columns."""
    rows: int
    tokens: int
    parts: int = 1
    """K-slices of its tile. The partial sums of the others are there when an owner asks for them."""
    owner: bool = True


@lru_cache(maxsize=1 << 14)
def sample_cycles(
    block: SampledBlock, items: tuple[SampledItem, ...], slots: int = 1, blocks: int | None = None
) -> int:
    """Return the cycles until L2 has all stores of `blocks` blocks, each of which runs `items` in turn.

    The SM holds `slots` of them at once, and as many are run unless `blocks` says otherwise.
    """
    count = slots if blocks is None else blocks
    run = new_state(_machine(block, slots), _program(block), _work(block, items, count))
    status = run_engine(run)
    if status != Status.DONE:
        raise AssertionError(f"sample of {block.programs[0].role}: {Status(status).name.lower()}")
    return int(run.mem[engine.G_END])


@lru_cache(maxsize=4096)
def _machine(block: SampledBlock, slots: int) -> Machine:
    gpu, dram = block.gpu, 0
    if block.dram_sms:
        dram = ticks_per_kib(gpu.dram_bytes_per_s / gpu.max_clock_hz / block.dram_sms)
    return Machine(
        sms=1,
        slots=slots,
        warps=sum(program.warps for program in block.programs),
        stages=block.stages,
        policy=engine.GREEDY_YOUNGEST,
        block_start=gpu.block_start_cycles,
        store_latency=block.store_latency,
        dram_latency=block.read_latency,
        l2_ticks=0,
        l2_store_ticks=ticks_per_kib(block.store_bytes_per_clk),
        dram_ticks=dram,
        dram_write_ticks=0,
        **sm_costs(gpu, block.tensor),
    )


@lru_cache(maxsize=4096)
def _program(block: SampledBlock) -> Program:
    program = lowered_program(block.programs, block.shape, block.dtype, block.tensor, block.gpu)
    # No other block delivers partial sums
    return program._replace(part_signals=0)


def _work(block: SampledBlock, items: tuple[SampledItem, ...], blocks: int) -> Work:
    block_k, each, ways = block.shape.block_k, len(items), a_ways(block.programs)
    steps = np.array([-(-item.columns // block_k) for item in items])
    # Every item reads its own weights and rows: its k-steps have segments of their own
    first_step = np.concatenate(([0], np.cumsum(np.tile(steps + block.stages, blocks))))
    all_steps, rows = int(first_step[-1]), np.zeros((each, engine.T_FIELDS), np.int64)
    rows[:, engine.T_STEPS] = steps
    for column, name in (
        (engine.T_KCOUNT, "columns"),
        (engine.T_MULTIPLIED, "columns"),
        (engine.T_ROWS, "rows"),
        (engine.T_TOKENS, "tokens"),
        (engine.T_PARTS, "parts"),
        (engine.T_OWNER, "owner"),
    ):
        rows[:, column] = [getattr(item, name) for item in items]
    item = np.tile(rows, (blocks, 1))
    item[:, engine.T_STEPFIRST] = first_step[:-1]
    item[:, engine.T_KFIRST] = block_k * first_step[:-1]
    following = np.arange(1, blocks * each + 1)
    following[each - 1 :: each] = engine.NO_ITEM
    weights = all_steps * ways
    return Work(
        schedule=int(Schedule.STATIC),
        blocks=blocks,
        item=item,
        first_item=np.arange(blocks) * each,
        next_item=following,
        column=np.arange(block_k * all_steps, dtype=np.int32),
        panel=block_k,
        token_blocks=1,
        gather_base=weights,
        box_base=weights + all_steps,
        index_base=weights + 2 * all_steps,
        a_ways=ways,
        segments=2 * weights + 2 * all_steps,
        groups=1,
        rows_in_l2=block.b_in_l2 or block.read_latency <= block.gpu.l2_latency_cycles,
    )
