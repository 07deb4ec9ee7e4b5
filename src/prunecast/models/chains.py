"""How long a block takes when nobody is in its way: the chain of waits along its warp programs.

The roofline says how fast the pipes could go; this file says how fast the program lets one block go. One
warp stands for each role. It is walked through the prologue and enough k-steps for the ring of stages to
settle, under the rules of `kernels.program`: copies land after the latency of memory, a slot is filled
again only when it has been released, loads, tensor work, shared memory and barriers cost their latency.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.plan import BlockShape, KernelPlan, Schedule
from prunecast.kernels.program import Code, Instruction, Op, WarpProgram, When
from prunecast.models.rates import SmRates

__all__ = [
    "Chain",
    "Pace",
    "after_parts_cycles",
    "begun_early",
    "edge_cycles",
    "multiply_pace",
    "plan_chain",
    "runs_ahead",
    "stores_behind_cycles",
    "turn_cycles",
    "waits_for_parts",
    "walk_block",
    "walk_pace",
]

_COPIES = (Op.COPY_A, Op.COPY_B, Op.GATHER_B)
_LOADS = (Op.LOAD_A, Op.LOAD_B, Op.LOAD_INDEX, Op.LOAD_PARTIALS)
_KINDS = {
    "unsplit": (When.ALWAYS, When.FINAL),
    "owner": (When.ALWAYS, When.FINAL, When.OWNER),
    "part": (When.ALWAYS, When.PARTIAL),
}


class Chain(NamedTuple):
    """A block's programs and what the GPU's units cost it, in cycles."""

    programs: tuple[WarpProgram, ...]
    shape: BlockShape
    stages: int
    sub_partitions: int
    tensor_fma_per_clk: float
    """Of one sub-partition."""
    fp32_cycles: float
    shared_bytes_per_clk: float
    port_bytes_per_clk: float
    gather_bytes_per_clk: float
    store_bytes_per_clk: float
    """That an SM can hand to L2 while all others with a block do the same."""
    port_store_bytes_per_clk: float
    """The same while they do not: parts of tiles end when they end."""
    store_share: float
    """Mean size of an item's tile of C over a full one."""
    tensor_latency: int
    shared_latency: int
    barrier_latency: int
    sync_latency: int
    perform_latency: int
    """From a part's last store until it may signal."""
    parts_wait: int
    """That an owner waits for the other parts, where the walk must say so."""
    memory_latency: int
    """From the issue of a read to its use; 0 with endless ports for data that are there already."""
    gather_latency: int
    """From a gather's turn to its use, at least; loads come back behind gathers."""
    lacks_tokens: bool
    """Whether the item has fewer tokens than a block takes."""

    def with_data_there(self) -> "Chain":
        """The same block reading memory that answers at once."""
        endless = float("inf")
        return self._replace(
            memory_latency=0,
            gather_latency=0,
            port_bytes_per_clk=endless,
            gather_bytes_per_clk=endless,
        )

    def where_tokens_lack(self) -> "Chain":
        """The same block with an item of fewer tokens; what it moves stays that of a full one."""
        return self._replace(lacks_tokens=True)

    def with_short_steps(self) -> "Chain":
        """The same block with k-steps of 16 columns, and a ring of as many columns."""
        stages = self.stages * -(-self.shape.block_k // 16)
        return self._replace(shape=self.shape._replace(block_k=16), stages=stages)


class Pace(NamedTuple):
    """How a block goes that has its SM alone, in cycles."""

    lead: float
    """From its first instruction to the first k-step's data in the hands of the warps that multiply."""
    step: float
    """From one k-step to the next, once the ring has settled."""


@dataclass
class _Warp:
    """One warp on its walk."""

    program: WarpProgram
    abreast: int
    """Warps of its sub-partition that a barrier in every k-step keeps abreast: the last one issues last."""
    now: float = 0.0
    loaded: float = 0.0
    arrived: dict[int, float] = field(default_factory=dict)
    """When loads have come, by the step that they are for."""
    tensor_free: float = 0.0
    tensor_done: float = 0.0
    tensor_done_before: float = 0.0
    others_shared: float = 0.0
    others_stores: float = 0.0
    """What the other warps of its role want of a port meanwhile; the last warp has waited for it."""
    stores_free: float = 0.0
    """When the port has taken the posted stores of the whole role."""

    issued_meanwhile: float = 0.0
    """Cycles in which it and the neighbours that a barrier keeps abreast have multiplied, part of `now`."""

    def sleep_until(self, cycle: float) -> None:
        """The others pass the port meanwhile."""
        self.others_shared = max(self.others_shared - max(cycle - self.now, 0.0), 0.0)
        self.now = max(self.now, cycle)

    def let_others_pass(self) -> None:
        """The ports work side by side, and while this sub-partition multiplies."""
        self.now += max(self.others_shared - self.issued_meanwhile, self.others_stores, 0.0)
        self.others_shared = self.others_stores = self.issued_meanwhile = 0.0


@dataclass
class _Ring:
    """What the warps of the block share."""

    port_free: float = 0.0
    gather_free: float = 0.0
    landed: dict[int, float] = field(default_factory=dict)
    released: dict[int, float] = field(default_factory=dict)
    first_full: float = -1.0


def plan_chain(plan: KernelPlan, gpu: GpuSpec, rates: SmRates, memory_latency_cycles: float) -> Chain:
    """Gather what the walk needs; the latency is rounded to whole cycles, so that walks are found again."""
    return Chain(
        programs=plan.programs,
        shape=plan.shape,
        stages=plan.resources.stages,
        sub_partitions=rates.sub_partitions,
        tensor_fma_per_clk=rates.tensor_fma_per_clk / rates.sub_partitions,
        fp32_cycles=rates.fp32_cycles,
        shared_bytes_per_clk=rates.shared_bytes_per_clk,
        port_bytes_per_clk=rates.port_bytes_per_clk,
        gather_bytes_per_clk=float(gpu.gather_bytes_per_clk_per_sm),
        store_bytes_per_clk=_store_rate(plan, gpu),
        port_store_bytes_per_clk=float(gpu.store_bytes_per_clk_per_sm),
        store_share=_store_share(plan),
        tensor_latency=_tensor_latency(plan, gpu),
        shared_latency=gpu.shared_latency_cycles,
        barrier_latency=gpu.barrier_latency_cycles,
        sync_latency=gpu.sync_latency_cycles,
        perform_latency=gpu.store_latency_cycles if waits_for_parts(plan.programs) else 0,
        parts_wait=_parts_wait(plan, gpu),
        memory_latency=round(memory_latency_cycles),
        gather_latency=gpu.gather_latency_cycles,
        lacks_tokens=False,
    )


def _store_rate(plan: KernelPlan, gpu: GpuSpec) -> float:
    busy_sms = max(min(plan.blocks, gpu.sm_count), 1)
    share_of_l2 = gpu.l2_store_bytes_per_s / gpu.max_clock_hz / busy_sms
    return min(gpu.store_bytes_per_clk_per_sm, share_of_l2)


def _store_share(plan: KernelPlan) -> float:
    """Rounded, so that walks are found again."""
    work, shape = plan.work, plan.shape
    if not plan.item_count:
        return 1.0
    rows = plan.tiles.rows_per_tile[work.tile].astype(np.float64)
    area = float(np.mean(rows * (work.token_stop - work.token_start)))
    return round(area / (shape.block_m * shape.block_n), 2)


def _parts_wait(plan: KernelPlan, gpu: GpuSpec) -> int:
    """None where lists say when parts end (`loops.run_lists`); of items that are drawn those of one tile end
    about together, and what is waited for is their signal on its way.
    """
    return gpu.signal_latency_cycles if plan.schedule is Schedule.DYNAMIC else 0


def _tensor_latency(plan: KernelPlan, gpu: GpuSpec) -> int:
    """Warpgroup instructions answer later than those of a warp."""
    return gpu.warpgroup_latency_cycles if plan.tensor.endswith("wgmma") else gpu.tensor_latency_cycles


@lru_cache(maxsize=64)
def runs_ahead(programs: tuple[WarpProgram, ...]) -> bool:
    """Whether warps that only fetch go on to the next item while others still finish this one."""
    return any(_fetches(program) and not _multiplies(program) for program in programs)


@lru_cache(maxsize=64)
def waits_for_parts(programs: tuple[WarpProgram, ...]) -> bool:
    """Whether owners of split tiles collect the sums themselves; else another launch adds them up."""
    return any(i.op is Op.WAIT_PARTS for program in programs for i in program.end)


@lru_cache(maxsize=256)
def walk_block(chain: Chain) -> Pace:
    """Walk one block through its prologue and some k-steps."""
    ring = _Ring()
    # Warps that fetch first: those that multiply wait for what they bring.
    warps = [_warp(program, chain) for program in sorted(chain.programs, key=_multiplies)]
    for warp in warps:
        _run(warp, warp.program.start, chain, ring, 0)
        _run(warp, warp.program.begin, chain, ring, 0)
    for step in range(max(chain.stages - 1, 0)):
        for warp in warps:
            _run(warp, warp.program.fill, chain, ring, step)
    before = max(warp.now for warp in warps)
    settle, count = 2 * max(chain.stages, 2), max(chain.stages, 2)
    marks = []
    for step in range(settle + count):
        for warp in warps:
            _run(warp, warp.program.step, chain, ring, step)
        marks.append(warps[-1].now)
    lead = ring.first_full if ring.first_full >= 0.0 else before
    return Pace(lead=lead, step=(marks[-1] - marks[-1 - count]) / count)


def begun_early(chain: Chain) -> Chain:
    """The same block if it has started before the walk begins, and has there what it waits for before B."""
    programs = (replace(program, start=(), begin=_begun(program.begin)) for program in chain.programs)
    return chain._replace(programs=tuple(programs))


def _begun(begin: Code) -> Code:
    first_of_b = next((at for at, i in enumerate(begin) if i.op in (*_COPIES, Op.LOAD_B)), len(begin))
    early = tuple(i for i in begin[:first_of_b] if i.op not in (Op.ISSUE, Op.WAIT_LOAD))
    return (*early, *begin[first_of_b:])


def walk_pace(chain: Chain) -> float:
    """From one k-step to the next."""
    return walk_block(chain).step


@lru_cache(maxsize=256)
def multiply_pace(chain: Chain) -> float:
    """From one k-step to the next of the warps that multiply, if all data are there already."""
    programs = tuple(program for program in chain.programs if _multiplies(program))
    return walk_block(chain._replace(programs=programs).with_data_there()).step


@lru_cache(maxsize=256)
def edge_cycles(chain: Chain, sections: tuple[str, ...], kind: str) -> float:
    """Cycles of the slowest multiplying warp for sections around the steps (`begin`, `end`, ...) of an item.

    kind : `unsplit`, `owner` or `part`
    """
    return max((warp.now for warp in _walk_edges(chain, sections, kind)), default=0.0)


@lru_cache(maxsize=256)
def stores_behind_cycles(chain: Chain) -> float:
    """Cycles from the end of an item's last warp until the store port has taken what it posted."""
    warps = _walk_edges(chain, ("end",), "unsplit")
    return max(0.0, max((warp.stores_free - warp.now for warp in warps), default=0.0))


@lru_cache(maxsize=256)
def turn_cycles(chain: Chain) -> float:
    """From the last copy of an item to the first of the next one, of warps that only fetch.

    What they load meanwhile comes half a gather's latency later, as behind gathers that are under way.
    """
    found = 0.0
    for program in chain.programs:
        if _fetches(program) and not _multiplies(program):
            warp, ring = _warp(program, chain), _Ring(gather_free=chain.gather_latency / 2)
            warp.now = float(chain.gather_latency)
            _run(warp, program.begin, chain, ring, 0)
            found = max(found, warp.now - chain.gather_latency)
    return found


@lru_cache(maxsize=256)
def after_parts_cycles(chain: Chain) -> float:
    """What an owner's end takes once the signals of the other parts are there, their sums' bytes aside."""
    programs = []
    for program in chain.programs:
        ops = [instruction.op for instruction in program.end]
        first = ops.index(Op.WAIT_PARTS) if Op.WAIT_PARTS in ops else len(ops)
        programs.append(replace(program, end=program.end[first:]))
    return edge_cycles(chain._replace(programs=tuple(programs)), ("end",), "owner")


def _walk_edges(chain: Chain, sections: tuple[str, ...], kind: str) -> list[_Warp]:
    """The multiplying warps after these sections."""
    walked = []
    for program in chain.programs:
        if _multiplies(program) or not runs_ahead(chain.programs):
            warp = _warp(program, chain)
            # The last step's products are still on their way when the sections after it begin.
            warp.tensor_done = chain.tensor_latency
            for section in sections:
                _run(warp, getattr(program, section), chain, _Ring(), 0, _KINDS[kind])
                if section == "begin":
                    # The steps lie between; what was asked for before them is there after them.
                    warp.loaded = 0.0
                    warp.arrived.clear()
            warp.let_others_pass()
            walked.append(warp)
    return walked


def _warp(program: WarpProgram, chain: Chain) -> _Warp:
    abreast = any(instruction.op is Op.SYNC for instruction in program.step)
    return _Warp(program, -(-program.warps // chain.sub_partitions) if abreast else 1)


def _fetches(program: WarpProgram) -> bool:
    return any(i.op in (*_COPIES, *_LOADS) for i in (*program.fill, *program.step))


def _multiplies(program: WarpProgram) -> bool:
    return any(i.op in (Op.MMA, Op.MMA_SYNC, Op.FMA) for i in program.step)


def _run(
    warp: _Warp, code: Code, chain: Chain, ring: _Ring, step: int, kinds: tuple[When, ...] = _KINDS["unsplit"]
) -> None:
    """Move the warp through a section; `ring` and `warp` are changed."""
    if chain.lacks_tokens:
        kinds = (*kinds, When.EDGE)
    for instruction in _chosen(code, kinds):
        groups = -(-chain.shape.block_k // 16) if instruction.per_k16 else 1
        _wait(warp, instruction, chain, ring, step)
        _work(warp, instruction, chain, ring, step, groups)


def _chosen(code: Code, kinds: tuple[When, ...]) -> Iterator[Instruction]:
    return (instruction for instruction in code if instruction.when in kinds)


def _wait(warp: _Warp, instruction: Instruction, chain: Chain, ring: _Ring, step: int) -> None:
    """Put the warp to sleep until the instruction may issue."""
    target = step + instruction.ahead
    if instruction.op is Op.WAIT_LOAD:
        warp.sleep_until(warp.arrived.get(step, 0.0) if instruction.amount else warp.loaded)
    elif instruction.op is Op.WAIT_MMA:
        warp.now = max(warp.now, warp.tensor_done_before if instruction.amount else warp.tensor_done)
    elif instruction.op is Op.WAIT_PARTS:
        warp.now += chain.parts_wait
    elif instruction.op is Op.WAIT_FULL:
        _sleep(warp, ring.landed.get(target, 0.0), chain)
        if ring.first_full < 0.0:
            ring.first_full = warp.now
    elif instruction.op is Op.WAIT_EMPTY:
        _sleep(warp, ring.released.get(target - chain.stages, 0.0), chain)


def _sleep(warp: _Warp, until: float, chain: Chain) -> None:
    if until > warp.now:
        warp.now = until + chain.barrier_latency


def _work(warp: _Warp, instruction: Instruction, chain: Chain, ring: _Ring, step: int, groups: int) -> None:
    """Issue the instruction; its effects and when the warp goes on."""
    op, amount = instruction.op, instruction.amount * groups
    together = 1 if instruction.leader else warp.abreast
    issued = warp.now + max(instruction.issue * groups, 1) * together
    if op in _COPIES or op in _LOADS:
        arrival = _read(warp, instruction, chain, ring, amount)
        if op in _COPIES:
            target = step + instruction.ahead
            ring.landed[target] = max(ring.landed.get(target, 0.0), arrival)
        else:
            target = step + instruction.ahead
            warp.loaded = max(warp.loaded, arrival)
            warp.arrived[target] = max(warp.arrived.get(target, 0.0), arrival)
    elif op is Op.RELEASE:
        ring.released[step - instruction.amount] = issued
    elif op in (Op.MMA, Op.MMA_SYNC):
        warp.tensor_free = max(warp.tensor_free, warp.now) + amount / chain.tensor_fma_per_clk
        warp.tensor_done_before = warp.tensor_done
        warp.tensor_done = warp.tensor_free + chain.tensor_latency
        issued = max(issued, warp.tensor_free) if op is Op.MMA_SYNC else issued
    elif op is Op.ISSUE:
        issued += amount
    elif op is Op.FMA:
        issued = warp.now + max(instruction.issue * groups, 1) * chain.fp32_cycles * together
        warp.issued_meanwhile += issued - warp.now
    elif op is Op.SHARED:
        cost = amount / chain.shared_bytes_per_clk
        issued += cost + chain.shared_latency
        warp.others_shared += _others(warp, instruction) * cost
    elif op in (Op.STORE_C, Op.STORE_PARTIAL):
        rate = chain.store_bytes_per_clk if instruction.op is Op.STORE_C else chain.port_store_bytes_per_clk
        cost = amount * chain.store_share / rate
        if instruction.posted:
            warp.stores_free = max(warp.stores_free, warp.now) + (1 + _others(warp, instruction)) * cost
        else:
            issued += cost + (chain.perform_latency if op is Op.STORE_PARTIAL else 0)
            warp.others_stores += _others(warp, instruction) * cost
    elif op is Op.SYNC:
        warp.let_others_pass()
        issued = warp.now + max(chain.sync_latency, 1)
    warp.now = issued


def _others(warp: _Warp, instruction: Instruction) -> int:
    return 0 if instruction.leader else warp.program.warps - 1


def _read(warp: _Warp, instruction: Instruction, chain: Chain, ring: _Ring, amount: float) -> float:
    """When the data of the whole role are there, the block's reads going through the port in turn."""
    size = amount * (1 if instruction.leader else warp.program.warps)
    if instruction.op in (Op.COPY_B, Op.GATHER_B, Op.LOAD_B):
        size = instruction.amount * chain.shape.block_k
    elif instruction.op is Op.LOAD_PARTIALS:
        size = 0
    ring.port_free = max(ring.port_free, warp.now) + size / chain.port_bytes_per_clk
    arrival = ring.port_free + chain.memory_latency
    if instruction.op is Op.GATHER_B:
        ring.gather_free = max(ring.gather_free, warp.now) + size / chain.gather_bytes_per_clk
        arrival = max(arrival, ring.gather_free + chain.gather_latency)
    elif instruction.op is Op.LOAD_PARTIALS:
        arrival = max(arrival, warp.now + chain.gather_latency)
    elif instruction.op is Op.LOAD_INDEX and ring.gather_free > 0.0:
        # It comes back behind the gathers that are on their way; alone it takes half as long as they do
        arrival = max(arrival, ring.gather_free + chain.gather_latency, warp.now + chain.gather_latency / 2)
    return arrival
