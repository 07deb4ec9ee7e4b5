"""One warp on its walk through the sections of its program, under the rules of `kernels.program`.

Copies land after the latency of memory, a slot is filled again only when it has been released, loads, tensor
work, shared memory and barriers cost their latency.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from prunecast.models.chain import Chain
from prunecast.models.roles import COPIES, LOADS
from prunecast.plan.program import WHOLE_LINES, Code, Instruction, Op, WarpProgram, When

__all__ = ["KINDS", "Ring", "Warp", "run", "store_cycles", "warp_of"]

KINDS = {
    "unsplit": (When.ALWAYS, When.FINAL),
    "owner": (When.ALWAYS, When.FINAL, When.OWNER),
    "part": (When.ALWAYS, When.PARTIAL),
}


@dataclass
class Warp:
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
    shared_free: float = 0.0
    """When its own posted writes have passed the port of shared memory."""
    stores_free: float = 0.0
    """When the port has taken the posted stores of the whole role."""

    issued_meanwhile: float = 0.0
    """Cycles, part of `now`, in which the neighbours that a barrier keeps abreast have issued, or it itself
    has multiplied or issued beside its reads: others use the port of shared memory then."""

    def sleep_until(self, cycle: float) -> None:
        """The others pass the port meanwhile."""
        self.others_shared = max(self.others_shared - max(cycle - self.now, 0.0), 0.0)
        self.now = max(self.now, cycle)

    def let_others_pass(self) -> None:
        """The ports work side by side, and while this sub-partition issues for others."""
        self.now += max(self.others_shared - self.issued_meanwhile, self.others_stores, 0.0)
        self.others_shared = self.others_stores = self.issued_meanwhile = 0.0


@dataclass
class Ring:
    """What the warps of the block share."""

    port_free: float = 0.0
    gather_free: float = 0.0
    landed: dict[int, float] = field(default_factory=dict)
    released: dict[int, float] = field(default_factory=dict)
    first_full: float = -1.0
    waited: bool = False
    """Whether a load has been waited for."""


def warp_of(program: WarpProgram, chain: Chain) -> Warp:
    """A warp that stands for the role of a program."""
    abreast = any(instruction.op is Op.SYNC for instruction in program.step)
    return Warp(program, -(-program.warps // chain.sub_partitions) if abreast else 1)


def run(
    warp: Warp, code: Code, chain: Chain, ring: Ring, step: int, kinds: tuple[When, ...] = KINDS["unsplit"]
) -> None:
    """Move the warp through a section; `ring` and `warp` are changed."""
    if chain.lacks_tokens:
        kinds = (*kinds, When.EDGE)
    if step >= chain.stages:
        kinds = (*kinds, When.REFILL)
    for instruction in _chosen(code, kinds):
        groups = -(-chain.shape.block_k // 16) if instruction.per_k16 else 1
        _wait(warp, instruction, chain, ring, step)
        _work(warp, instruction, chain, ring, step, groups)


def _chosen(code: Code, kinds: tuple[When, ...]) -> Iterator[Instruction]:
    return (instruction for instruction in code if instruction.when in kinds)


def _wait(warp: Warp, instruction: Instruction, chain: Chain, ring: Ring, step: int) -> None:
    """Put the warp to sleep until the instruction may issue."""
    target = step + instruction.ahead
    if instruction.op is Op.WAIT_LOAD:
        ring.waited = True
        warp.sleep_until(warp.arrived.get(step, 0.0) if instruction.amount else warp.loaded)
        if instruction.amount and ring.first_full < 0.0:
            ring.first_full = warp.now
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


def _sleep(warp: Warp, until: float, chain: Chain) -> None:
    if until > warp.now:
        warp.now = until + chain.barrier_latency


def _work(warp: Warp, instruction: Instruction, chain: Chain, ring: Ring, step: int, groups: int) -> None:
    """Issue the instruction; its effects and when the warp goes on."""
    op, amount = instruction.op, instruction.amount * groups
    together = 1 if instruction.leader else warp.abreast
    slots = max(instruction.issue * groups, 1)
    issued = warp.now + slots * together
    if op not in (Op.FMA, Op.SYNC):
        # Of its own, what stands beside a read: at the top of a step nobody has read yet
        warp.issued_meanwhile += slots * (together - 1) + (slots - 1 if op is Op.SHARED else 0)
    if op is Op.LOAD_A and instruction.posted:
        pass  # for the next launch
    elif op in COPIES or op in LOADS:
        arrival = _read(warp, instruction, chain, ring, groups)
        if op in COPIES:
            target = step + instruction.ahead
            late = instruction.late if chain.memory_latency else 0
            ring.landed[target] = max(ring.landed.get(target, 0.0), arrival + late)
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
        issued = warp.now + slots * chain.fp32_cycles * together
        warp.issued_meanwhile += issued - warp.now
    elif op is Op.SHARED:
        cost = amount / chain.shared_bytes_per_clk
        behind = max(warp.shared_free, warp.now)
        if instruction.posted:
            warp.shared_free = behind + cost
        else:
            issued += behind - warp.now + cost + chain.shared_latency
        warp.others_shared += _others(warp, instruction) * cost
    elif op in (Op.STORE_C, Op.STORE_PARTIAL):
        cost = store_cycles(instruction, chain, groups)
        if instruction.posted:
            free = max(warp.stores_free, warp.now + warp.others_stores)
            warp.stores_free = free + (1 + _others(warp, instruction)) * cost
        else:
            issued += cost + (chain.perform_latency if op is Op.STORE_PARTIAL else 0)
            warp.others_stores += _others(warp, instruction) * cost
    elif op is Op.SYNC:
        warp.let_others_pass()
        issued = warp.now + max(chain.sync_latency, 1)
    warp.now = issued


def store_cycles(instruction: Instruction, chain: Chain, groups: int = 1) -> float:
    """Of the store port, for what one warp stores; 0 of other instructions."""
    if instruction.op not in (Op.STORE_C, Op.STORE_PARTIAL):
        return 0.0
    rate = chain.store_bytes_per_clk if instruction.op is Op.STORE_C else chain.port_store_bytes_per_clk
    stored = instruction.amount * groups * chain.store_share
    return stored * instruction.piece_cost / WHOLE_LINES / rate


def _others(warp: Warp, instruction: Instruction) -> int:
    return 0 if instruction.leader else warp.program.warps - 1


def _read(warp: Warp, instruction: Instruction, chain: Chain, ring: Ring, groups: int) -> float:
    """When the data of the whole role are there, the block's reads going through the port in turn."""
    size: float = instruction.amount * groups * (1 if instruction.leader else warp.program.warps)
    if instruction.op in (Op.COPY_B, Op.GATHER_B, Op.LOAD_B):
        size = instruction.amount * chain.shape.block_k
        if instruction.op in (Op.COPY_B, Op.LOAD_B):
            size *= chain.tokens_share
    elif instruction.op is Op.LOAD_PARTIALS:
        size = 0
    late = chain.first_weights_late if instruction.op is Op.LOAD_A and not ring.waited else 0.0
    if warp.abreast > 1 and instruction.op in COPIES:
        # Nobody waits for what lands and for its addresses, but they pass the port of shared memory too
        passed = size + groups * instruction.operand_bytes * (_others(warp, instruction) + 1)
        warp.others_shared += passed / chain.shared_bytes_per_clk
    ring.port_free = max(ring.port_free, warp.now) + size / chain.port_bytes_per_clk
    latency = (
        min(chain.memory_latency, chain.b_latency) if instruction.op is Op.LOAD_B else chain.memory_latency
    )
    arrival = ring.port_free + latency + late
    if instruction.op is Op.GATHER_B:
        pieces = size * instruction.piece_cost / WHOLE_LINES
        ring.gather_free = max(ring.gather_free, warp.now) + pieces / chain.gather_bytes_per_clk
        arrival = max(arrival, ring.gather_free + chain.gather_latency)
    elif instruction.op is Op.LOAD_PARTIALS:
        asked = instruction.late + chain.memory_latency if instruction.late else chain.gather_latency
        arrival = max(arrival, warp.now + asked)
    elif instruction.op is Op.LOAD_INDEX and ring.gather_free > 0.0:
        # It comes back behind the gathers that are on their way; alone it takes half as long as they do
        arrival = max(arrival, ring.gather_free + chain.gather_latency, warp.now + chain.gather_latency / 2)
    return arrival
