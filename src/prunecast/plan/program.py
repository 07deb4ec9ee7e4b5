"""What the warps of a block do: the program that each kernel declares and the simulator lowers for a GPU.

Amounts are facts about the kernel (bytes, FMA, instructions). Cycles belong to a GPU: instructions name
them (`Charge`), and `bind` puts in what its file and the kernel's costs on its architecture say.
A block runs its work items one after another; for each item a warp runs

    begin, then fill for the first `stages - 1` steps, then step for every step, then end

and, once each, `start` before the first item and `finish` after the last. A step is one k-step: a slab
of `block_k` kept columns. Steps go round a ring of `stages` slots in shared memory; slot `s` has a
*full* barrier (its copies have landed) and an *empty* barrier (its readers are done).

In `begin` instructions act on the item's first step, in `end` on its last. What acts on a step that the item
does not have is skipped: an item without k-steps copies and multiplies nothing, waits for no slot and
releases none, but its `end` writes zeros.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from functools import lru_cache, partial
from typing import Any, NamedTuple

from prunecast.hardware.costs import Costs
from prunecast.hardware.spec import GpuSpec


class Op(IntEnum):
    """What one instruction does, and what its `amount` means."""

    ISSUE = 0
    """Plain instructions: `issue` of them. The warp's next one waits `amount` cycles more, where one hangs on
    the other."""
    FMA = 1
    """`issue` fp32 multiply-add instructions of a full warp."""
    COPY_A = 2
    """Asynchronous copy of packed weights into the step's slot, arriving on its full barrier. Bytes by this
    warp."""
    COPY_B = 3
    """Asynchronous copy of a box of B (the step's columns, contiguous in B). Bytes per column, all by this
    warp."""
    GATHER_B = 4
    """Asynchronous copy of the rows of B that the step's kept columns name, shared evenly by the warps of
    the role. Bytes per column, also with `per_k16`."""
    LOAD_A = 5
    """Copy of weights into registers: the warp meets the data at WAIT_LOAD. Bytes by this warp."""
    LOAD_B = 6
    """Gather of rows of B into registers. Bytes per column."""
    LOAD_INDEX = 7
    """Indices of the step's kept columns, into registers. Bytes by this warp."""
    WAIT_LOAD = 8
    """Sleep until all loads of this warp have arrived; with an `amount` of 1 those for the current step, and
    for steps a multiple of 8 away."""
    WAIT_EMPTY = 9
    """Sleep until the step's slot has been read by everyone since its last use."""
    WAIT_FULL = 10
    """Sleep until all copies into the step's slot have landed."""
    RELEASE = 11
    """Arrive on the empty barrier of the slot of the step `amount` steps back (0 = this step)."""
    MMA = 12
    """Tensor instructions. `amount` FMA by this warp, reading `operand_bytes` of shared memory; the warp
    goes on at once. With 2:4 weights `amount` counts kept FMA only, half of the dense ones, which run at the
    dense rate times half of `sparse_tensor_factor`."""
    MMA_SYNC = 13
    """Tensor instructions of warp-level mma.sync: the warp goes on when the tensor pipe has taken them."""
    WAIT_MMA = 14
    """Sleep until at most `amount` (0 or 1) of this warp's MMA instructions are unfinished."""
    SHARED = 15
    """Read or write `amount` bytes of shared memory and wait for it, unless it is `posted`."""
    STORE_C = 16
    """Write `amount` bytes of C; the warp goes on at once."""
    STORE_PARTIAL = 17
    """Write `amount` bytes of fp32 partial sums and signal the reduction group."""
    WAIT_PARTS = 18
    """Sleep until all other parts of the item's reduction group have signalled."""
    LOAD_PARTIALS = 19
    """Read `amount` bytes of partial sums from each other part of the group, in order of `part`; meet them at
    WAIT_LOAD."""
    SYNC = 20
    """Barrier of all warps of the role."""


COPIES = (Op.COPY_A, Op.COPY_B, Op.GATHER_B)
LOADS = (Op.LOAD_A, Op.LOAD_B, Op.LOAD_INDEX, Op.LOAD_PARTIALS)


class When(IntEnum):
    """The items that an instruction belongs to."""

    ALWAYS = 0
    PARTIAL = 1
    """Parts of a split tile that hand their sums over."""
    OWNER = 2
    """The part of a split tile that collects the sums and writes C."""
    FINAL = 3
    """Items that write C: unsplit ones and owners."""
    EDGE = 4
    """Items with fewer tokens than a block takes."""
    REFILL = 5
    """Steps of a block beyond its first ring of stages, whose slots have been filled before."""
    AHEAD = 6
    """Steps of a block's first item within its first ring: of them the kernel brings some before its loop."""
    IN_TURN = 7
    """All other steps."""


_ON_A_STEP = (
    *(Op.COPY_A, Op.COPY_B, Op.GATHER_B),
    *(Op.LOAD_A, Op.LOAD_B, Op.LOAD_INDEX),
    *(Op.WAIT_EMPTY, Op.WAIT_FULL),
)


WHOLE_LINES = 256
"""`Instruction.line_cost` of rows that begin with a line of L2."""


class Charge(NamedTuple):
    """A cost that an instruction takes besides what it says itself, by name."""

    name: str
    """Entry of the kernel's `costs/sm_*.toml`, or quantity of `GpuSpec`."""
    times: float = 1.0
    field: str = "amount"
    """Field of `Instruction` that grows by the entry, so many times."""


class Instruction(NamedTuple):
    """One instruction of a warp program.

    `amount` is for a full tile (`block_m` x `block_n`); data moves are clipped to the item's rows and
    tokens when they run, unless they are `whole`. `issue` counts the warp instructions it stands for.
    """

    op: Op
    amount: int = 0
    issue: int = 1
    per_k16: bool = False
    """`amount`, `issue` and `operand_bytes` are for 16 kept columns, and scale with those of the step;
    amounts in bytes per column (COPY_B, GATHER_B, LOAD_B) stay what they are."""
    ahead: int = 0
    """Acts on the step this many steps later (a copy that runs ahead); skipped where there is none."""
    when: When = When.ALWAYS
    leader: bool = False
    """Issued by the first warp of the role only."""
    operand_bytes: int = 0
    """Shared memory read by tensor instructions; of a copy, what it takes of the port besides its bytes."""
    multicast: int = 1
    """Blocks of a cluster that share one read of L2."""
    posted: bool = False
    """A store that does not hold its warp up: nothing of the warp stands behind it in the queue. A LOAD_A is
    what blocks of the next launch asked for before this one was let go: DRAM has it to bring from the
    beginning on, and nobody here waits for it. A SHARED is what copies have brought: it takes the port."""
    line_cost: int = WHOLE_LINES
    """L2 cost of a gather or a store of C, over its bytes: more than `WHOLE_LINES` where rows are misaligned
    with lines or sectors."""
    piece_cost: int = WHOLE_LINES
    """Port cost of a gather or a store of C in its SM, over its bytes: more than `WHOLE_LINES` where rows are
    misaligned."""
    fetched: int = 0
    """256ths of the bytes of a store of C that L2 fetches from DRAM because sectors are partially written."""
    queued: bool = False
    """A store by the warps that takes turns with the gathers of its SM, where some wait: they pass the same
    queue of memory instructions."""
    late: int = 0
    """Cycles by which a copy arrives later than memory answers: L2 serves blocks that read the same lines one
    after the other. For LOAD_PARTIALS, cycles of requesting the sums of each other slice piece by piece,
    where they do not come by the gather port."""
    whole: bool = False
    """Whether partial sums move as they lie in the registers, missing rows and tokens included, through the
    operator's own workspace, which L2 writes to DRAM as it does C."""
    charges: tuple[Charge, ...] = ()
    """Costs of the architecture, until they are bound."""

    @property
    def of_a_step(self) -> bool:
        """Whether it is skipped where the step is not there that it acts on."""
        return self.per_k16 or self.op in _ON_A_STEP


Code = tuple[Instruction, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WarpProgram:
    """The program of one role: `warps` warps of the block that do the same thing."""

    role: str
    warps: int
    start: Code = ()
    begin: Code = ()
    fill: Code = ()
    step: Code = ()
    end: Code = ()
    finish: Code = ()
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash(self._key()))

    def __hash__(self) -> int:
        """Known from the start: an estimate looks up twenty walks of a plan's programs, at 3 us each."""
        return self._hash

    @property
    def fetches(self) -> bool:
        """Whether its warps copy or load in a k-step, or before the first one."""
        return any(i.op in (*COPIES, *LOADS) for i in (*self.fill, *self.step))

    @property
    def multiplies(self) -> bool:
        """Whether its warps multiply in a k-step."""
        return any(i.op in (Op.MMA, Op.MMA_SYNC, Op.FMA) for i in self.step)

    def __reduce__(self) -> tuple[Callable[..., "WarpProgram"], tuple[Any, ...]]:
        """Made anew where it is read: hashes of texts are another process's own."""
        return _program, self._key()

    def _key(self) -> tuple[Any, ...]:
        return tuple(getattr(self, f.name) for f in fields(self) if f.compare)


def _program(*values: Any) -> WarpProgram:
    names = (f.name for f in fields(WarpProgram) if f.compare)
    return WarpProgram(**dict(zip(names, values, strict=True)))


@lru_cache(maxsize=4096)
def bind(programs: tuple[WarpProgram, ...], costs: Costs | None, gpu: GpuSpec) -> tuple[WarpProgram, ...]:
    """Programs whose instructions have what they name, in whole units and at least 0.

    A name is an entry of the costs, or else a quantity of the GPU. Programs without charges come back as they
    are. AttributeError: there is no such number.
    """
    return tuple(_bound_program(program, partial(_number, costs=costs, gpu=gpu)) for program in programs)


def _number(name: str, costs: Costs | None, gpu: GpuSpec) -> float:
    if costs is not None and name in costs.entries:
        return costs[name]
    return float(getattr(gpu, name))


def total(charges: tuple[Charge, ...], costs: Costs) -> float:
    """What charges add up to."""
    return sum(charge.times * costs[charge.name] for charge in charges)


def _bound_program(program: WarpProgram, number: Callable[[str], float]) -> WarpProgram:
    changed: dict[str, Any] = {}
    for part in ("start", "begin", "fill", "step", "end", "finish"):
        code: Code = getattr(program, part)
        if any(instruction.charges for instruction in code):
            changed[part] = tuple(_bound(instruction, number) for instruction in code)
    return replace(program, **changed) if changed else program


def _bound(instruction: Instruction, number: Callable[[str], float]) -> Instruction:
    fields: dict[str, Any] = {}
    for name, times, column in instruction.charges:
        fields[column] = fields.get(column, getattr(instruction, column)) + times * number(name)
    whole = {column: max(round(value), 0) for column, value in fields.items()}
    return instruction._replace(**whole, charges=()) if fields else instruction
