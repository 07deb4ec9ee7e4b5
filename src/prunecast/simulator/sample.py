"""Samples of the engine: a few equal blocks on one SM, to which L2 and DRAM have nothing else to deliver.

The closed form takes the times of prologues, k-steps and epilogues from here, so that warp programs have one
meaning. Bandwidth of L2 and DRAM is left out: `models` adds the traffic of all SMs.
"""

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
    dram_busy: int = 0
    """Cycles at the start in which DRAM serves others."""


class SampledItem(NamedTuple):
    """A work item of a sampled block."""

    columns: int
    """Kept columns."""
    rows: int
    tokens: int
    parts: int = 1
    """K-slices of its tile. The partial sums of the others are there when an owner asks for them."""
    owner: bool = True


class SampledRun(NamedTuple):
    """Blocks that an SM runs."""

    slots: int = 1
    """Blocks that it holds at once."""
    blocks: int = 1
    """Blocks in all."""
    items: int = 1
    """Items of each block, one after another."""


ALONE = SampledRun()


class BlockSamples:
    """Samples of one block. Each is simulated once."""

    def __init__(self, block: SampledBlock) -> None:
        self.block = block
        # No other block delivers partial sums
        self._program: Program = lowered_program(
            block.programs, block.shape, block.dtype, block.tensor, block.gpu
        )._replace(part_signals=0)
        self._cycles: dict[tuple[SampledItem, SampledRun], int] = {}

    def cycles(self, item: SampledItem, sampled: SampledRun = ALONE) -> int:
        """Return the cycles until L2 has all stores of a sample of equal blocks with equal items."""
        if (item, sampled) not in self._cycles:
            block = self.block
            run = new_state(_machine(block, sampled.slots), self._program, _work(block, item, sampled))
            run.mem[engine.G_DRAM_FREE] = block.dram_busy * engine.TICKS
            status = run_engine(run)
            if status != Status.DONE:
                raise AssertionError(f"sample of {block.programs[0].role}: {Status(status).name.lower()}")
            self._cycles[item, sampled] = int(run.mem[engine.G_END])
        return self._cycles[item, sampled]


def _machine(block: SampledBlock, slots: int) -> Machine:
    gpu = block.gpu
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
        dram_ticks=0,
        dram_write_ticks=0,
        **sm_costs(gpu, block.tensor),
    )


def _work(block: SampledBlock, item: SampledItem, sampled: SampledRun) -> Work:
    block_k, each, ways = block.shape.block_k, sampled.items, a_ways(block.programs)
    count, steps = sampled.blocks * each, -(-item.columns // block_k)
    # Every item reads its own weights and rows: its k-steps have segments of their own
    own_steps = steps + block.stages
    place, all_steps = np.arange(count), count * own_steps
    columns: dict[int, int | np.ndarray] = {
        engine.T_STEPS: steps,
        engine.T_MULTIPLIED: item.columns,
        engine.T_KCOUNT: item.columns,
        engine.T_KFIRST: block_k * own_steps * place,
        engine.T_STEPFIRST: own_steps * place,
        engine.T_ROWS: item.rows,
        engine.T_TOKENS: item.tokens,
        engine.T_PARTS: item.parts,
        engine.T_OWNER: item.owner,
    }
    items = np.zeros((count, engine.T_FIELDS), np.int64)
    for column, values in columns.items():
        items[:, column] = values
    following = place + 1
    following[each - 1 :: each] = engine.NO_ITEM
    weights = all_steps * ways
    return Work(
        schedule=int(Schedule.STATIC),
        blocks=sampled.blocks,
        item=items,
        first_item=place[::each],
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
