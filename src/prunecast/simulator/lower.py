"""Lowering: translate a `KernelPlan` and a `GpuSpec` to the integer tables that the engine runs."""

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from prunecast.hardware.spec import GpuSpec
from prunecast.launch import LaunchContext
from prunecast.launch.memory import MemoryRules
from prunecast.plan.kernel_plan import BlockShape, Schedule
from prunecast.plan.program import COPIES, Code, Instruction, Op, WarpProgram, has_producer_warps
from prunecast.plan.tensor_rate import tensor_fma_per_clk, tensor_latency_cycles
from prunecast.simulator import engine
from prunecast.simulator.engine_state import Machine, Program, Work
from prunecast.simulator.item_rows import (
    first_items,
    first_steps,
    items,
    next_items,
    rows_of_source,
)
from prunecast.simulator.launch_gap import with_prefetch

PER_STEP_FIXED = (Op.ISSUE, Op.FMA, Op.SHARED, Op.LOAD_INDEX, Op.LOAD_A)
OPERATIONS_WANTED = 200_000
"""Number of operations above which plans without pipeline stages run longer k-steps. On CSR plans of 256 to
2048 rows, this changes the predicted time by at most 1.2 % and makes the simulation up to five times as
fast."""
ANSWER_CYCLES = 4
"""SM cycles between the answers of L2 to two requests for one segment, if blocks start one after another: a
slice of L2 moves a line of 128 bytes at 32 bytes per clock. Kind: datasheet, as `l2_store_read_share` of the
V100."""
LONGEST_RUN_CYCLES = 1 << 40
"""SM cycles, about ten minutes of GPU time, after which a run stops with `Status.TOO_LONG`. Kind: choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lowered:
    """Integer tables of a launch for the engine, the arguments of `new_state`."""

    machine: Machine
    program: Program
    work: Work


def lower(context: LaunchContext, rules: MemoryRules, *, policy: int, clock_hz: float) -> Lowered:
    """Translate a launch and its memory rules for the engine.

    Parameters
    ----------
    policy : warp scheduler, a value of `simulate.POLICIES`
    clock_hz : SM clock; the bytes per cycle of L2 and DRAM depend on it
    """
    coarse = _coarseness(context)
    return Lowered(
        machine=_machine(context, rules, policy, clock_hz),
        program=_program(context, coarse),
        work=_work(context, rules, coarse),
    )


def _coarseness(context: LaunchContext) -> int:
    """Return the number of k-steps that the engine runs as one.

    It is above 1 only for kernels without pipeline stages (CSR). They hide latency with many warps, so that
    longer k-steps hardly change the time, while the number of operations falls in proportion.
    """
    if context.plan.resources.stages > 0:
        return 1
    per_step = sum(len(program.step) * program.warps for program in context.programs)
    operations = int(context.plan.steps_per_item.sum(dtype=np.int64)) * per_step
    return max(1, -(-operations // OPERATIONS_WANTED))


def _machine(context: LaunchContext, rules: MemoryRules, policy: int, clock_hz: float) -> Machine:
    """Return the sizes and costs of the GPU; `clock_hz` converts rates per second to ticks per KiB."""
    plan, gpu = context.plan, context.gpu
    # For every byte that enters L2, read or stored, DRAM writes the fraction `write_back` of a byte
    written = round(rules.write_back * ticks_per_kib(gpu.dram_write_bytes_per_s / clock_hz))
    costs = {**sm_costs(gpu, plan.tensor), "store_ticks": ticks_per_kib(_store_rate(context, clock_hz))}
    return Machine(
        sms=gpu.sm_count,
        slots=context.fit.blocks_per_sm,
        warps=sum(program.warps for program in context.programs),
        stages=plan.resources.stages,
        policy=policy,
        block_start=gpu.block_start_cycles,
        store_latency=context.store_latency_cycles,
        dram_latency=gpu.dram_latency_cycles,
        l2_ticks=ticks_per_kib(gpu.l2_bytes_per_s / clock_hz),
        l2_store_ticks=ticks_per_kib(gpu.l2_store_bytes_per_s / clock_hz),
        dram_ticks=ticks_per_kib(gpu.dram_bytes_per_s / clock_hz) + written,
        dram_write_ticks=written,
        l2_contention=round(256 * gpu.l2_store_read_share),
        dram_queue=round(gpu.dram_queue_bytes / gpu.dram_bytes_per_s * clock_hz),
        block_interval=round(context.block_interval_s * clock_hz * engine.TICKS),
        answer_interval=ANSWER_CYCLES if context.block_interval_s else 0,
        **costs,
    )


def _store_rate(context: LaunchContext, clock_hz: float) -> float:
    """Return the bytes per cycle that the store port of an SM accepts.

    Blocks with producer warps end together on all SMs in every wave (measured on the H200), and L2 serves
    their stores in turn, so that each SM gets its share of L2's store rate. The queue of the engine's L2
    serves one SM after another instead. The SMs that it serves first would begin their next items first, and
    later waves would store at different times, each SM at the rate of its own port.
    """
    gpu = context.gpu
    if not has_producer_warps(context.programs):
        return gpu.store_bytes_per_clk_per_sm
    storing = max(min(context.plan.blocks, gpu.sm_count), 1)
    return min(gpu.store_bytes_per_clk_per_sm, gpu.l2_store_bytes_per_s / clock_hz / storing)


def sm_costs(gpu: GpuSpec, tensor: str) -> dict[str, int]:
    """Return the fields of `Machine` that depend only on the GPU and on the kind of tensor instruction."""
    return {
        "partitions": gpu.sub_partitions_per_sm,
        "barrier_latency": gpu.barrier_latency_cycles,
        "sync_latency": gpu.sync_latency_cycles,
        "signal_latency": gpu.signal_latency_cycles,
        "tensor_latency": tensor_latency_cycles(gpu, tensor),
        "shared_latency": gpu.shared_latency_cycles,
        "l2_latency": gpu.l2_latency_cycles,
        "gather_latency": gpu.gather_latency_cycles,
        "port_ticks": ticks_per_kib(gpu.l2_port_bytes_per_clk_per_sm),
        "gather_ticks": ticks_per_kib(gpu.gather_bytes_per_clk_per_sm),
        "store_ticks": ticks_per_kib(gpu.store_bytes_per_clk_per_sm),
        "shared_ticks": ticks_per_kib(gpu.shared_bytes_per_clk_per_sm),
        "l2_capacity": gpu.l2_usable_bytes,
        "max_cycles": LONGEST_RUN_CYCLES,
    }


def ticks_per_kib(bytes_per_clk: float) -> int:
    """Return the ticks per KiB of a server (port, L2 or DRAM) with this rate, rounded up."""
    return math.ceil(1024 * engine.TICKS / bytes_per_clk)


def _program(context: LaunchContext, coarse: int) -> Program:
    plan, hidden = context.plan, context.prologue_is_hidden
    programs = context.programs if hidden else with_prefetch(context)
    if hidden:
        programs = tuple(replace(program, start=(), begin=()) for program in programs)
    return lowered_program(programs, plan.shape, plan.dtype, plan.tensor, context.gpu, coarse)


def lowered_program(
    programs: tuple[WarpProgram, ...],
    shape: BlockShape,
    dtype: str,
    tensor: str,
    gpu: GpuSpec,
    coarse: int = 1,
) -> Program:
    """Translate the warp programs of a block for the engine; `coarse` k-steps run as one."""
    rows: list[list[int]] = []
    bounds = []
    for program in programs:
        bound = [len(rows)]
        for name in ("start", "begin", "fill", "step", "end", "finish"):
            scale = coarse if name == "step" else 1
            for instruction in getattr(program, name):
                rows.append(_row(instruction, scale, _pipe_ticks(instruction, dtype, tensor, gpu)))
            bound.append(len(rows))
        bounds.append(bound)
    warps = [program.warps for program in programs]
    return Program(
        code=np.array(rows, np.int64).reshape(-1, engine.I_FIELDS),
        bounds=np.array(bounds, np.int64),
        role=np.repeat(np.arange(len(warps)), warps),
        rank=np.concatenate([np.arange(count) for count in warps]),
        role_warps=np.array(warps, np.int64),
        full_arrivals=sum(_executions(program, program.step, COPIES) for program in programs),
        empty_arrivals=sum(_releasing_warps(program) for program in programs),
        part_signals=sum(_executions(program, program.end, (Op.STORE_PARTIAL,)) for program in programs),
        block_m=shape.block_m,
        block_n=shape.block_n,
        block_k=shape.block_k * coarse,
    )


def _executions(program: WarpProgram, code: Code, ops: tuple[Op, ...]) -> int:
    """Return how many instructions of `ops` all warps of a role execute in one pass through `code`."""
    return sum(1 if ins.leader else program.warps for ins in code if ins.op in ops)


def _releasing_warps(program: WarpProgram) -> int:
    """Return the number of warps of a role that release each pipeline stage.

    Only the first RELEASE of a program counts. A second one releases the last stage of an item in `end`, if
    stages are released one k-step after they are read.
    """
    releases = [ins for ins in (*program.step, *program.end) if ins.op is Op.RELEASE]
    return _executions(program, tuple(releases[:1]), (Op.RELEASE,))


def _row(instruction: Instruction, scale: int, pipe_ticks: int) -> list[int]:
    """Return an instruction as a row of `Program.code`; the engine runs `scale` k-steps as one."""
    fixed = instruction.op in PER_STEP_FIXED and not instruction.per_k16
    factor = scale if fixed else 1
    return [
        int(instruction.op),
        instruction.issue * factor,
        instruction.amount * factor,
        int(instruction.per_k16),
        instruction.ahead,
        int(instruction.when),
        int(instruction.leader),
        pipe_ticks,
        instruction.operand_bytes,
        instruction.multicast,
        int(instruction.posted),
        instruction.line_cost,
        instruction.piece_cost,
        instruction.fetched,
        int(instruction.queued),
        instruction.late,
        int(instruction.whole),
    ]


def _pipe_ticks(instruction: Instruction, dtype: str, tensor: str, gpu: GpuSpec) -> int:
    """Return the ticks for which an instruction occupies the tensor pipe or the FMA pipe of a sub-partition.

    For Op.FMA, these are the ticks of one fp32 instruction of a full warp. For instructions that use neither
    pipe, the result is 0.
    """
    if instruction.op in (Op.MMA, Op.BLOCKING_MMA):
        fma_per_clk = tensor_fma_per_clk(gpu, dtype, tensor) / gpu.sub_partitions_per_sm
        return math.ceil(instruction.amount * engine.TICKS / fma_per_clk)
    if instruction.op is Op.FMA:
        lanes_per_clk = gpu.fp32_fma_per_clk_per_sm / gpu.sub_partitions_per_sm
        return math.ceil(32 * engine.TICKS / lanes_per_clk)
    return 0


def _work(context: LaunchContext, rules: MemoryRules, coarse: int) -> Work:
    """Return the work items and the numbers of their segments (see `Work`).

    `coarse` is the number of k-steps of the plan that one k-step of the engine represents.
    """
    plan = context.plan
    work, shape = plan.work, plan.shape
    block_k = shape.block_k * coarse
    first_step, all_steps = first_steps(plan, block_k)
    ways, first = a_ways(context.programs), first_items(context)
    panel = rules.rows_per_miss
    token_blocks = -(-plan.n // shape.block_n) * rules.box_parts
    gather_base = all_steps * ways
    box_base = gather_base + -(-plan.k // panel) * token_blocks
    index_base = box_base + -(-plan.k // block_k) * token_blocks
    return Work(
        schedule=int(Schedule.STATIC if context.places is not None else plan.schedule),
        blocks=first.size if context.places is not None else plan.blocks,
        item=items(plan, first_step, block_k, rules.box_parts),
        first_item=first,
        next_item=next_items(plan),
        column=rows_of_source(plan, block_k),
        panel=panel,
        token_blocks=token_blocks,
        gather_base=gather_base,
        box_base=box_base,
        index_base=index_base,
        a_ways=ways,
        segments=index_base + gather_base,
        groups=int(work.group.max(initial=-1)) + 1,
        rows_in_l2=context.weights_evict_first,
        early_sms=rules.early_blocks,
    )


@lru_cache(maxsize=4096)
def a_ways(programs: tuple[WarpProgram, ...]) -> int:
    """Return the number of L2 segments per k-step of weights or of indices, whichever is larger.

    The L2 model keeps one segment of weights for each warp that loads a part of a k-step's weights, and one
    segment of indices for each warp of the block.
    """
    own = {Op.COPY_A: 0, Op.LOAD_A: 0, Op.LOAD_INDEX: sum(program.warps for program in programs)}
    return max(
        (
            max(own[ins.op], 1 if ins.leader else program.warps)
            for program in programs
            for ins in (*program.begin, *program.fill, *program.step, *program.end)
            if ins.op in own
        ),
        default=1,
    )
