"""Warp programs: the instructions of a block's warps, which kernels declare and the simulator executes.

Amounts (bytes, FMA, instructions) are properties of the kernel. Cycles are properties of a GPU: instructions
refer to them by name (`Charge`), and `bind` inserts the values of the GPU's specification and of the kernel's
costs on its architecture. A block runs its work items one after another. For each item a warp runs

    begin, then fill for the first `stages - 1` steps, then step for every step, then end

and, once each, `start` before the first item and `finish` after the last. A step is one k-step: a slab of
`block_k` kept columns. Steps use a circular buffer of `stages` slots in shared memory. Each slot has a *full*
barrier (its copies have arrived) and an *empty* barrier (all warps have read it).

Instructions in `begin` act on the item's first step, those in `end` on its last. An instruction is skipped if
its step does not exist: an item without k-steps copies and multiplies nothing, waits for no slot and releases
none, but its `end` writes zeros.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import IntEnum
from functools import lru_cache, partial
from threading import Lock
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from prunecast.hardware.costs import Costs
from prunecast.hardware.spec import GpuSpec


class Op(IntEnum):
    """Kind of an instruction, and the meaning of its `amount`."""

    ISSUE = 0
    """`issue` plain instructions. The warp's next instruction waits `amount` more cycles, the dependency
    latency."""
    FMA = 1
    """`issue` fp32 multiply-add instructions of a full warp."""
    COPY_A = 2
    """Asynchronous copy of packed weights into the pipeline slot of this k-step, which arrives on the slot's
    full barrier. `amount` is bytes per warp."""
    COPY_B = 3
    """Asynchronous bulk copy of a box of B (the step's columns, contiguous in B). `amount` is bytes per
    column; one warp copies all of them."""
    GATHER_B = 4
    """Asynchronous copy of the rows of B for the step's kept columns, shared evenly by the warps of the role.
    `amount` is bytes per column, also with `per_k16`."""
    LOAD_A = 5
    """Load of weights into registers. The warp waits for the data at the next WAIT_LOAD. `amount` is bytes
    per warp."""
    LOAD_B = 6
    """Gather of rows of B into registers. `amount` is bytes per column."""
    LOAD_INDEX = 7
    """Load of other data than A and B into registers: indices of the step's kept columns, entries of work
    lists, lists of rows, the flag of a split tile, and C if a launch adds to it. `amount` is bytes per
    warp."""
    WAIT_LOAD = 8
    """Wait until all loads of this warp have arrived. With an `amount` of 1, wait only for the loads of the
    current step, and of steps a multiple of 8 away, because the simulator stores one arrival time for each
    step modulo 8."""
    WAIT_EMPTY = 9
    """Wait until all readers of the pipeline slot of this k-step have released it after its preceding use."""
    WAIT_FULL = 10
    """Wait until all copies into the pipeline slot of this k-step have arrived."""
    RELEASE = 11
    """Arrive on the empty barrier of the pipeline slot of the k-step `amount` steps earlier (0 = this step):
    this warp has read the slot."""
    MMA = 12
    """Tensor instructions (wgmma, and mma.sync of all planners): `amount` FMA per warp, reading
    `operand_bytes` of shared memory; the warp continues at once. With 2:4 weights `amount` counts only kept
    FMA, half of the dense ones, which run at the dense rate times half of `sparse_tensor_factor`."""
    BLOCKING_MMA = 13
    """As MMA, but the warp continues only when tensor pipe and shared port are done. No planner uses it;
    `benchmarks.authors` does, for kernels of other authors."""
    WAIT_MMA = 14
    """Wait until at most `amount` (0 or 1) of this warp's MMA instructions are unfinished."""
    SHARED = 15
    """Read or write `amount` bytes of shared memory. The warp waits for the result, unless the instruction is
    `posted` (asynchronous)."""
    STORE_C = 16
    """Write `amount` bytes of C; the warp continues at once."""
    STORE_PARTIAL = 17
    """Write `amount` bytes of fp32 partial sums and signal the reduction group."""
    WAIT_PARTS = 18
    """Wait until all other slices of the item's reduction group have signalled."""
    LOAD_PARTIALS = 19
    """Read `amount` bytes of partial sums of each other slice of the group, in order of `part`; the warp
    waits for them at WAIT_LOAD."""
    SYNC = 20
    """Barrier of all warps of the role."""


COPIES = (Op.COPY_A, Op.COPY_B, Op.GATHER_B)
LOADS = (Op.LOAD_A, Op.LOAD_B, Op.LOAD_INDEX, Op.LOAD_PARTIALS)
ON_STEP = (*COPIES, Op.LOAD_A, Op.LOAD_B, Op.LOAD_INDEX, Op.WAIT_EMPTY, Op.WAIT_FULL, Op.RELEASE)
"""Instructions that act on a k-step and are skipped if it does not exist."""
DATA = {
    **dict.fromkeys((Op.COPY_A, Op.LOAD_A), "A"),
    **dict.fromkeys((Op.COPY_B, Op.GATHER_B, Op.LOAD_B), "B"),
    Op.LOAD_INDEX: "INDEX",
    Op.STORE_C: "C",
    Op.STORE_PARTIAL: "PARTIALS_OUT",
    Op.LOAD_PARTIALS: "PARTIALS_IN",
}
"""Instruction -> data that it moves between the SM and L2."""


class When(IntEnum):
    """Items or steps for which an instruction is executed."""

    ALWAYS = 0
    PARTIAL = 1
    """Only k-slices of a split tile that are not the owner: they write partial sums."""
    OWNER = 2
    """Only the owner of a split tile: the k-slice that adds the partial sums and writes C."""
    FINAL = 3
    """Only items that write C: unsplit items and owners."""
    EDGE = 4
    """Only items with fewer tokens than `block_n`."""
    REFILL = 5
    """Only k-steps that reuse a pipeline stage: all except the first `stages` k-steps of a block."""
    AHEAD = 6
    """Only the first `stages` k-steps of a block's first item, which the kernel may load before its loop."""
    IN_TURN = 7
    """Only k-steps to which AHEAD does not apply."""


WHOLE_LINES = 256
"""Value of `Instruction.line_cost` and `piece_cost` for rows that are aligned to L2 lines: a factor of 1, in
256ths."""


class Charge(NamedTuple):
    """A named cost that `bind` adds to a field of an instruction.

    The entry has the kind of the number (fitted, as-compiled, measured, datasheet, guess), which `explain`
    shows; numbers in the fields themselves are counted by hand. Fitted cycles are in addition to the
    instructions of the program, and never include them.
    """

    name: str
    """Entry of the kernel's `costs/sm_*.toml`, or field of `GpuSpec`."""
    times: float = 1.0
    field: str = "amount"
    """Field of `Instruction` that increases by `times` times the entry."""


def scaled(charges: tuple[Charge, ...], times: float) -> tuple[Charge, ...]:
    """Return the charges of `times` times as much work."""
    return tuple(charge._replace(times=times * charge.times) for charge in charges)


class Instruction(NamedTuple):
    """One instruction of a warp program.

    `amount` is for a full tile (`block_m` x `block_n`). If the item has fewer rows or tokens, fewer bytes
    move, unless `whole`. `issue` is the number of warp instructions that this instruction represents.
    """

    op: Op
    amount: int = 0
    issue: int = 1
    per_k16: bool = False
    """`amount`, `issue` and `operand_bytes` are per 16 kept columns and scale with the columns of the step.
    Amounts in bytes per column (COPY_B, GATHER_B, LOAD_B) do not scale."""
    ahead: int = 0
    """Acts on the step this many steps later (a prefetch); skipped if the item has no such step, even if the
    block has a later item."""
    when: When = When.ALWAYS
    leader: bool = False
    """True if only the first warp of the role issues the instruction."""
    operand_bytes: int = 0
    """Bytes of shared memory that tensor instructions read; for copies, bytes charged to the shared-memory
    port in addition to the bytes copied."""
    multicast: int = 1
    """Number of blocks of a cluster that share one read of L2."""
    posted: bool = False
    """Asynchronous: the warp does not wait for it. For stores, no later instruction of the warp queues after
    the store. For LOAD_A, it represents the prefetch by blocks of the next launch, which DRAM serves during
    this launch and for which no warp of this launch waits. For SHARED, it occupies the shared-memory port
    with data that copies have brought."""
    line_cost: int = WHOLE_LINES
    """L2 cost per byte of a gather or of a store of C, in 256ths: `WHOLE_LINES` (256) if rows are aligned,
    more if rows are not aligned to lines or sectors."""
    piece_cost: int = WHOLE_LINES
    """Cost per byte of a gather or of a store of C at the L2 port of the SM, in 256ths: `WHOLE_LINES` (256)
    if rows are aligned, more otherwise."""
    fetched: int = 0
    """Bytes that L2 fetches from DRAM because a store of C writes partial sectors, in 256ths of the stored
    bytes."""
    queued: bool = False
    """The store shares the queue of memory instructions with pending gathers of its SM and alternates with
    them."""
    late: int = 0
    """Extra latency of a copy in cycles: L2 serves blocks that read the same lines one after another. For
    LOAD_PARTIALS: cycles to request the partial sums of each other slice one after another, if these loads do
    not use the gather port."""
    whole: bool = False
    """True if partial sums are moved in register layout, including missing rows and tokens, through the
    operator's own workspace, which L2 writes to DRAM as it does C."""
    charges: tuple[Charge, ...] = ()
    """Costs of the architecture that `bind` has not yet inserted."""

    def __repr__(self) -> str:
        """Return the fields that differ from their defaults.

        Fingerprints of plans contain this text, so that a new field changes only those of plans that use it.
        """
        default = self._field_defaults
        changed = {name: value for name, value in self._asdict().items() if value != default.get(name)}
        return f"Instruction({changed})"


Code = tuple[Instruction, ...]
SECTIONS = ("start", "begin", "fill", "step", "end", "finish")
"""Names of the sections of a warp program."""


@dataclass(frozen=True, slots=True, weakref_slot=True, kw_only=True, eq=False)
class WarpProgram:
    """The program of one role: `warps` warps of the block that run the same instructions.

    Equal programs are one object, so that caches find what follows from a program without hashing its
    instructions: an estimate looks up a program twenty times, and hashing it needs 3 us.
    """

    role: str
    warps: int
    start: Code = ()
    begin: Code = ()
    fill: Code = ()
    step: Code = ()
    end: Code = ()
    finish: Code = ()

    def __new__(cls, role: str, warps: int, **code: Code) -> "WarpProgram":
        """Return the existing program with these fields, or a new one."""
        key = (role, warps, *(code.get(section, ()) for section in SECTIONS))
        with _lock:
            return _programs.setdefault(key, object.__new__(cls))

    @property
    def fetches(self) -> bool:
        """True if the warps copy or load data in their main loop (`fill` or `step`)."""
        return any(i.op in (*COPIES, *LOADS) for i in (*self.fill, *self.step))

    @property
    def multiplies(self) -> bool:
        """True if the warps multiply in their main loop (`step`)."""
        return any(i.op in (Op.MMA, Op.BLOCKING_MMA, Op.FMA) for i in self.step)

    def __reduce__(self) -> tuple[Callable[..., "WarpProgram"], tuple[Any, ...]]:
        """Return a recipe that finds the equal program of the process that unpickles it."""
        return partial(WarpProgram, **{f.name: getattr(self, f.name) for f in fields(self)}), ()


def has_producer_warps(programs: tuple[WarpProgram, ...]) -> bool:
    """Return True if some warps only fetch data in their main loop, and other warps multiply them."""
    return any(program.fetches and not program.multiplies for program in programs)


_programs: WeakValueDictionary[tuple[Any, ...], WarpProgram] = WeakValueDictionary()
_lock = Lock()


@lru_cache(maxsize=4096)
def bind(programs: tuple[WarpProgram, ...], costs: Costs | None, gpu: GpuSpec) -> tuple[WarpProgram, ...]:
    """Return the programs with all charges added to their fields, rounded to integers and at least 0.

    Parameters
    ----------
    programs : one per role
    costs : costs of the kernel on the GPU's architecture; None if the kernel has no costs
    gpu : GPU whose fields give the values of charges that are not in `costs`
    """
    number, found = partial(number_of, costs=costs, gpu=gpu), []
    for program in programs:
        codes = {section: tuple(_bound(i, number) for i in getattr(program, section)) for section in SECTIONS}
        found.append(WarpProgram(role=program.role, warps=program.warps, **codes))
    return tuple(found)


def number_of(name: str, costs: Costs | None, gpu: GpuSpec) -> float:
    """Return the value of a charge's entry in the kernel's costs or, if they lack it, in the GPU's spec."""
    return costs[name] if costs is not None and name in costs.entries else float(getattr(gpu, name))


def total(charges: tuple[Charge, ...], costs: Costs) -> float:
    """Return the sum of the charges: `times` multiplied by the entry of each in `costs`."""
    return sum(charge.times * costs[charge.name] for charge in charges)


def _bound(instruction: Instruction, number: Callable[[str], float]) -> Instruction:
    fields: dict[str, Any] = {}
    for name, times, column in instruction.charges:
        fields[column] = fields.get(column, getattr(instruction, column)) + times * number(name)
    whole = {column: max(round(value), 0) for column, value in fields.items()}
    return instruction._replace(**whole, charges=())
