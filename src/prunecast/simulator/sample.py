"""Short simulations (samples) of a few equal blocks on one SM, without traffic of other SMs.

`models` derives the times of prologues, k-steps and epilogues from samples, so that only the engine
interprets warp programs. In samples, reads from L2 and DRAM have latency but unlimited bandwidth; `models`
adds the traffic of all SMs.
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
    """A block of a launch, and the properties of the SM that runs it."""

    programs: tuple[WarpProgram, ...]
    """Programs with the costs of the GPU's architecture."""
    shape: BlockShape
    stages: int
    """Number of pipeline stages in shared memory; 0 if the kernel has none."""
    dtype: str
    tensor: str
    gpu: GpuSpec
    store_latency: int
    """Cycles from a block's last store until its data are in L2."""
    store_bytes_per_clk: float
    """Bytes per cycle that L2 accepts from this SM if all SMs that have blocks store at the same time."""
    read_latency: int
    """Latency in cycles of weights, indices and rows of B: that of DRAM, or of L2 if all data are in L2."""
    b_in_l2: bool = False
    """True if the rows of B are in L2, whatever `read_latency` is."""
    dram_busy: int = 0
    """Cycles at the start during which DRAM serves other requests."""
    block_interval: int = 0
    """Cycles between the starts of two blocks of the SM, because every other SM gets a block in between."""


class SampledItem(NamedTuple):
    """A work item of a sampled block."""

    columns: int
    """Kept columns."""
    rows: int
    tokens: int
    parts: int = 1
    """Number of k-slices of the tile. The owner, which adds the partial sums of the other slices, does not
    wait for them in a sample."""
    owner: bool = True
    """True if the item writes C."""


class SampledRun(NamedTuple):
    """Numbers of block slots, blocks and items in a sample."""

    slots: int = 1
    """Maximum number of resident blocks of the SM."""
    blocks: int = 1
    """Total number of blocks."""
    items: int = 1
    """Number of consecutive items of each block."""


ALONE = SampledRun()


class BlockSamples(dict[tuple[SampledItem, SampledRun], int]):
    """(item, run) -> cycles of a sample of one block, simulated at the first access."""

    def __init__(self, block: SampledBlock) -> None:
        super().__init__()
        self.block = block
        # No other block delivers partial sums
        self._program: Program = lowered_program(
            block.programs, block.shape, block.dtype, block.tensor, block.gpu
        )._replace(part_signals=0)
        self._machine, self._ways = _machine(block), a_ways(block.programs)

    def __missing__(self, key: tuple[SampledItem, SampledRun]) -> int:
        """Simulate equal blocks with equal items and return the cycles until L2 has all stores."""
        block, (item, sampled) = self.block, key
        machine = self._machine._replace(slots=sampled.slots)
        run = new_state(machine, self._program, _work(block, item, sampled, self._ways))
        run.mem[engine.G_DRAM_FREE] = block.dram_busy * engine.TICKS
        status = run_engine(run)
        if status != Status.DONE:
            raise AssertionError(f"sample of {block.programs[0].role}: {Status(status).name.lower()}")
        self[key] = int(run.mem[engine.G_END])
        return self[key]


def _machine(block: SampledBlock) -> Machine:
    """Return one SM with one block slot."""
    gpu = block.gpu
    return Machine(
        sms=1,
        slots=1,
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
        l2_contention=0,
        dram_queue=0,
        block_interval=block.block_interval * engine.TICKS,
        answer_interval=0,
        **sm_costs(gpu, block.tensor),
    )


def _work(block: SampledBlock, item: SampledItem, sampled: SampledRun, ways: int) -> Work:
    """Return the work of a sample; `ways` is `Work.a_ways`."""
    block_k, each = block.shape.block_k, sampled.items
    count, steps = sampled.blocks * each, -(-item.columns // block_k)
    # Every item reads its own weights and rows: its k-steps have segments of their own
    own_steps = steps + block.stages
    place, all_steps = np.arange(count), count * own_steps
    alike = [0] * engine.T_FIELDS
    alike[engine.T_STEPS] = steps
    alike[engine.T_MULTIPLIED] = alike[engine.T_KCOUNT] = item.columns
    alike[engine.T_ROWS], alike[engine.T_TOKENS] = item.rows, item.tokens
    alike[engine.T_PARTS], alike[engine.T_OWNER] = item.parts, item.owner
    items = np.array([alike] * count, np.int64)
    items[:, engine.T_STEPFIRST] = own_steps * place
    items[:, engine.T_KFIRST] = block_k * own_steps * place
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
