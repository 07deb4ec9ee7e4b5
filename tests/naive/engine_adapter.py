"""Runs the jitted engine on the slow simulator's inputs and reports in the slow simulator's words."""

import math
from collections import Counter

import numpy as np
import numpy.typing as npt

from prunecast.plan.kernel_plan import Schedule
from prunecast.plan.program import Instruction, Op
from prunecast.simulator import engine, engine_state
from prunecast.simulator.result import STALLS
from tests.naive.records import POLICIES, Kernel, Machine, NaiveResult, Work

__all__ = ["launch_engine", "simulate_fast"]

LONGEST_RUN_CYCLES = 10_000_000
COPIES = (Op.COPY_A, Op.COPY_B, Op.GATHER_B)
SEGMENTS = ("start", "begin", "fill", "step", "end", "finish")


def simulate_fast(machine: Machine, kernel: Kernel, work: Work) -> NaiveResult:
    """The engine's account of the launch. Raises RuntimeError where warps wait for ever."""
    return launch_engine(_machine(machine, kernel), _program(machine, kernel), _work(machine, kernel, work))


def launch_engine(
    machine: engine_state.Machine, program: engine_state.Program, work: engine_state.Work
) -> NaiveResult:
    """The same for what is lowered already."""
    state = engine_state.new_state(machine, program, work)
    status = engine_state.run_engine(state)
    if status != engine_state.Status.DONE:
        raise RuntimeError(engine_state.Status(status).name)
    return _result(machine, state)


def _machine(machine: Machine, kernel: Kernel) -> engine_state.Machine:
    return engine_state.Machine(
        sms=machine.sms,
        partitions=machine.partitions,
        slots=machine.slots,
        warps=sum(program.warps for program in kernel.programs),
        stages=kernel.stages,
        policy=POLICIES.index(machine.policy),
        block_start=machine.block_start,
        barrier_latency=machine.barrier_latency,
        sync_latency=machine.sync_latency,
        signal_latency=machine.signal_latency,
        tensor_latency=machine.tensor_latency,
        shared_latency=machine.shared_latency,
        l2_latency=machine.l2_latency,
        store_latency=machine.store_latency,
        dram_latency=machine.dram_latency,
        port_ticks=machine.port_ticks_per_kib,
        gather_ticks=machine.gather_ticks_per_kib,
        store_ticks=machine.store_ticks_per_kib,
        shared_ticks=machine.shared_ticks_per_kib,
        l2_ticks=machine.l2_ticks_per_kib,
        l2_store_ticks=machine.l2_store_ticks_per_kib,
        dram_ticks=machine.dram_ticks_per_kib,
        l2_capacity=machine.l2_capacity,
        max_cycles=LONGEST_RUN_CYCLES,
        gather_latency=machine.gather_latency,
        dram_write_ticks=machine.dram_write_ticks_per_kib,
        l2_contention=machine.l2_contention,
        dram_queue=machine.dram_queue,
        block_interval=machine.block_interval,
        answer_interval=machine.answer_interval,
    )


def _program(machine: Machine, kernel: Kernel) -> engine_state.Program:
    rows: list[list[int]] = []
    bounds = []
    for program in kernel.programs:
        bounds.append([len(rows)])
        for name in SEGMENTS:
            rows += [_row(machine, instruction) for instruction in getattr(program, name)]
            bounds[-1].append(len(rows))
    warps = [program.warps for program in kernel.programs]
    return engine_state.Program(
        code=np.array(rows, np.int64).reshape(-1, engine.I_FIELDS),
        bounds=np.array(bounds, np.int64),
        role=np.repeat(np.arange(len(warps)), warps),
        rank=np.concatenate([np.arange(count) for count in warps]),
        role_warps=np.array(warps, np.int64),
        full_arrivals=_executions(kernel, ("step",), COPIES),
        # A kernel releases a step either in the step or one later, and the last one in `end`: once per warp.
        empty_arrivals=_executions(kernel, ("step",), (Op.RELEASE,)),
        part_signals=_executions(kernel, ("end",), (Op.STORE_PARTIAL,)),
        block_m=kernel.block_m,
        block_n=kernel.block_n,
        block_k=kernel.block_k,
    )


def _executions(kernel: Kernel, names: tuple[str, ...], ops: tuple[Op, ...]) -> int:
    return sum(
        1 if code.leader else program.warps
        for program in kernel.programs
        for name in names
        for code in getattr(program, name)
        if code.op in ops
    )


def _row(machine: Machine, code: Instruction) -> list[int]:
    ticks = {
        Op.MMA: math.ceil(code.amount * machine.tensor_ticks_per_kfma / 1024),
        Op.BLOCKING_MMA: math.ceil(code.amount * machine.tensor_ticks_per_kfma / 1024),
        Op.FMA: machine.fma_ticks,
    }
    row = [0] * engine.I_FIELDS
    row[engine.I_OP], row[engine.I_ISSUE], row[engine.I_AMOUNT] = int(code.op), code.issue, code.amount
    row[engine.I_PER_K16], row[engine.I_AHEAD], row[engine.I_WHEN] = (
        int(code.per_k16),
        code.ahead,
        int(code.when),
    )
    row[engine.I_LEADER], row[engine.I_TICKS] = int(code.leader), ticks.get(code.op, 0)
    row[engine.I_OPERAND], row[engine.I_MULTICAST] = code.operand_bytes, code.multicast
    row[engine.I_POSTED], row[engine.I_QUEUED] = int(code.posted), int(code.queued)
    row[engine.I_LINE_COST], row[engine.I_PIECE_COST] = code.line_cost, code.piece_cost
    row[engine.I_FETCHED], row[engine.I_LATE] = code.fetched, code.late
    row[engine.I_WHOLE] = int(code.whole)
    return row


def _work(machine: Machine, kernel: Kernel, work: Work) -> engine_state.Work:
    # The fewest steps multiply 16 columns, which are two steps where a step has 8
    behind = kernel.fewest_steps * math.ceil(16 / kernel.block_k)
    zeros = [max((i.zeros for i in work.items if i.tile == t), default=0) for t in range(len(work.columns))]
    lengths = [len(columns) + more for columns, more in zip(work.columns, zeros, strict=True)]
    steps = [math.ceil(length / kernel.block_k) + behind for length in lengths]
    ways = sum(program.warps for program in kernel.programs)
    ranges = 1 + max((item.token_start // kernel.block_n for item in work.items), default=0)
    token_blocks = ranges * work.box_parts
    features = 1 + max((column for columns in work.columns for column in columns), default=0)
    gather_base = sum(steps) * ways
    box_base = gather_base + math.ceil(features / machine.panel) * token_blocks
    index_base = box_base + math.ceil(features / kernel.block_k) * token_blocks
    return engine_state.Work(
        schedule=int(work.schedule),
        blocks=work.blocks,
        item=_items(kernel, work, steps),
        first_item=_first_items(work),
        next_item=_next_items(work),
        column=np.array([column for columns in work.columns for column in columns], np.int32),
        panel=machine.panel,
        token_blocks=token_blocks,
        gather_base=gather_base,
        box_base=box_base,
        index_base=index_base,
        a_ways=ways,
        segments=index_base + gather_base,
        groups=1 + max((item.group for item in work.items), default=-1),
        rows_in_l2=work.rows_in_l2,
        early_sms=work.early_sms,
    )


def _items(kernel: Kernel, work: Work, steps: list[int]) -> npt.NDArray[np.int64]:
    rows = np.zeros((len(work.items), engine.T_FIELDS), np.int64)
    for row, item in zip(rows, work.items, strict=True):
        row[engine.T_TILE], row[engine.T_KCOUNT] = item.tile, item.k_count
        row[engine.T_MULTIPLIED] = kernel.multiplied(item)
        row[engine.T_STEPS] = math.ceil(kernel.multiplied(item) / kernel.block_k)
        row[engine.T_KFIRST] = sum(len(columns) for columns in work.columns[: item.tile]) + item.k_start
        row[engine.T_STEPFIRST] = sum(steps[: item.tile]) + item.k_start // kernel.block_k
        row[engine.T_ROWS], row[engine.T_TOKENS] = item.rows, item.tokens
        place, part = item.token_start // kernel.block_n, item.tile % work.box_parts
        row[engine.T_TOKENBLOCK] = place * work.box_parts + part
        row[engine.T_GROUP], row[engine.T_PARTS], row[engine.T_OWNER] = (
            item.group,
            item.parts,
            int(item.owner),
        )
    return rows


def _first_items(work: Work) -> npt.NDArray[np.int64]:
    if work.schedule is not Schedule.STATIC:
        return np.zeros(0, np.int64)
    start = np.array(work.block_start, np.int64)
    return np.where(start[1:] > start[:-1], start[:-1], engine.NO_ITEM)


def _next_items(work: Work) -> npt.NDArray[np.int64]:
    stops = set(work.block_start)
    following = [engine.NO_ITEM if i in stops else i for i in range(1, len(work.items) + 1)]
    return np.array(following, np.int64)


def _result(machine: engine_state.Machine, state: engine_state.State) -> NaiveResult:
    chip, sm = state.mem, state.sm
    tensor = state.part[:, engine.P_TENSOR_BUSY].reshape(machine.sms, machine.partitions)
    stalls = Counter(dict(zip(STALLS, state.stall.sum(axis=0).tolist(), strict=True)))
    return NaiveResult(
        cycles=int(chip[engine.G_END]),
        stalls=stalls,
        resident_warp_cycles=stalls.total(),
        sm_busy=sm[:, engine.S_BUSY].tolist(),
        sm_items=sm[:, engine.S_ITEMS].tolist(),
        sm_tensor_ticks=tensor.sum(axis=1).tolist(),
        instructions=int(chip[engine.G_INSTRUCTIONS]),
        operations=int(chip[engine.G_OPERATIONS]),
        l2_bytes=int(chip[engine.G_L2_BYTES]),
        l2_hit_bytes=int(chip[engine.G_HIT_BYTES]),
        l2_miss_bytes=int(chip[engine.G_MISS_BYTES]),
        dram_bytes=int(chip[engine.G_DRAM_BYTES]),
    )
