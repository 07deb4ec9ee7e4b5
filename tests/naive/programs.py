"""Random kernels that keep the protocol.

Such a kernel never reads a slot before it is full, never fills one that is still being read, and never waits
for what nobody will do; the simulator's rules say nothing about kernels that break it.
"""

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from prunecast.plan.program import WHOLE_LINES, Code, Instruction, Op, WarpProgram, When
from tests.naive.records import Kernel

__all__ = ["kernels", "one_warp_kernels", "register_kernels", "ring_kernels", "shared_kernels"]

# Instructions that may stand anywhere in `begin`, `step` and `end`: they wait for nothing that others do.
_FILLERS = (
    Instruction(Op.ISSUE, issue=0),
    Instruction(Op.ISSUE, issue=3),
    Instruction(Op.ISSUE, issue=2, per_k16=True),
    Instruction(Op.ISSUE, issue=3, per_k16=True, ahead=1),
    Instruction(Op.ISSUE, issue=2, leader=True),
    Instruction(Op.ISSUE, amount=7),
    Instruction(Op.ISSUE, amount=5, issue=2, per_k16=True),
    Instruction(Op.ISSUE, amount=40, when=When.EDGE),
    Instruction(Op.SHARED, amount=20, per_k16=True, when=When.EDGE),
    Instruction(Op.ISSUE, amount=30, per_k16=True, when=When.REFILL),
    Instruction(Op.ISSUE, issue=5, when=When.REFILL),
    Instruction(Op.LOAD_INDEX, amount=30, ahead=1, when=When.AHEAD),
    Instruction(Op.ISSUE, issue=3, when=When.AHEAD),
    Instruction(Op.ISSUE, amount=20, per_k16=True, when=When.IN_TURN),
    Instruction(Op.FMA, issue=3, per_k16=True),
    Instruction(Op.FMA, issue=0, when=When.FINAL),
    Instruction(Op.SHARED, amount=100),
    Instruction(Op.SHARED, amount=33, per_k16=True, issue=2),
    Instruction(Op.MMA, amount=700, operand_bytes=50),
    Instruction(Op.BLOCKING_MMA, amount=300, per_k16=True, operand_bytes=40),
    Instruction(Op.WAIT_MMA, amount=0),
    Instruction(Op.WAIT_MMA, amount=1, issue=2),
    Instruction(Op.LOAD_INDEX, amount=64),
    Instruction(Op.LOAD_INDEX, amount=40, per_k16=True),
    Instruction(Op.LOAD_INDEX, amount=50, per_k16=True, ahead=1),
    Instruction(Op.LOAD_A, amount=90, ahead=1),
    Instruction(Op.LOAD_A, amount=25, per_k16=True, leader=True),
    Instruction(Op.LOAD_B, amount=20, per_k16=True, issue=2),
    Instruction(Op.WAIT_LOAD),
    Instruction(Op.WAIT_LOAD, amount=1),
    Instruction(Op.LOAD_A, amount=60, ahead=3),
    Instruction(Op.LOAD_A, amount=70, per_k16=True, posted=True),
    Instruction(Op.STORE_C, amount=77, when=When.OWNER),
    Instruction(Op.SYNC),
    Instruction(Op.SYNC, issue=3),
)
# The same for `start` and `finish`, where whatever asks for an item is skipped.
_OUTSIDE = (
    Instruction(Op.ISSUE, issue=4),
    Instruction(Op.SYNC),
    Instruction(Op.SHARED, amount=60),
    Instruction(Op.BLOCKING_MMA, amount=300),
    Instruction(Op.LOAD_INDEX, amount=64),
    Instruction(Op.ISSUE, issue=2, per_k16=True),
    Instruction(Op.STORE_C, amount=9, when=When.FINAL),
)


_block_k = st.sampled_from((8, 16, 24, 40))
# Bytes of a full row of a tile of B; the first ones leave nothing of it in a ragged tile of five tokens.
_row_bytes = st.sampled_from((1, 3, 20, 64))
_line_cost = st.sampled_from((WHOLE_LINES, 346))


def _fillers(most: int) -> st.SearchStrategy[Code]:
    return st.lists(st.sampled_from(_FILLERS), max_size=most).map(tuple)


@st.composite
def _around(draw: DrawFn) -> dict[str, Code]:
    outside = st.lists(st.sampled_from(_OUTSIDE), max_size=1).map(tuple)
    return {"start": draw(outside), "begin": draw(_fillers(1)), "finish": draw(outside)}


@st.composite
def _epilogue(draw: DrawFn) -> Code:
    """Hand over or collect the parts of a split tile, and store C."""
    amount, whole = draw(st.integers(1, 600)), draw(st.booleans())
    return (
        *draw(_fillers(1)),
        Instruction(
            Op.STORE_PARTIAL, amount=amount, when=When.PARTIAL, leader=draw(st.booleans()), whole=whole
        ),
        Instruction(Op.WAIT_PARTS, when=When.OWNER, issue=draw(st.integers(1, 2))),
        Instruction(
            Op.LOAD_PARTIALS,
            amount=amount,
            when=When.OWNER,
            whole=whole,
            late=draw(st.sampled_from((0, 90))),
        ),
        Instruction(Op.WAIT_LOAD, when=When.OWNER),
        *draw(_fillers(1)),
        Instruction(
            Op.STORE_C,
            amount=draw(st.integers(1, 600)),
            when=When.FINAL,
            posted=draw(st.booleans()),
            queued=draw(st.booleans()),
            line_cost=draw(_line_cost),
            piece_cost=draw(_line_cost),
            fetched=draw(st.sampled_from((0, 96))),
        ),
    )


@st.composite
def _copies(draw: DrawFn, ahead: int = 0, leader: bool = False) -> Code:
    """Asynchronous copies of a step's weights and activations."""
    multicast = draw(st.sampled_from((1, 1, 2, 3)))
    box = leader or draw(st.booleans())
    weights = Instruction(
        Op.COPY_A,
        amount=draw(st.integers(1, 300)),
        per_k16=draw(st.booleans()),
        leader=leader or draw(st.booleans()),
        ahead=ahead,
        multicast=multicast,
    )
    activations = Instruction(
        Op.COPY_B if box else Op.GATHER_B,
        amount=draw(_row_bytes),
        issue=draw(st.integers(0, 3)),
        per_k16=draw(st.booleans()),
        operand_bytes=draw(st.sampled_from((0, 0, 50))),
        leader=box,
        ahead=ahead,
        multicast=multicast,
        late=draw(st.sampled_from((0, 0, 70))),
        line_cost=WHOLE_LINES if box else draw(_line_cost),
        piece_cost=WHOLE_LINES if box else draw(_line_cost),
    )
    return (weights, activations)


@st.composite
def _producer(draw: DrawFn) -> WarpProgram:
    leader = draw(st.booleans())
    wait = Instruction(Op.WAIT_EMPTY, leader=leader, issue=draw(st.integers(1, 2)))
    return WarpProgram(
        role="producer",
        warps=draw(st.integers(1, 3)),
        **draw(_around()),
        step=(wait, *draw(_fillers(1)), *draw(_copies(leader=leader))),
    )


@st.composite
def _consumer(draw: DrawFn, role: str, lag: int) -> WarpProgram:
    """Multiplies a step and releases its slot, or while the tensor pipe still reads it, the one before."""
    mma = Instruction(
        Op.MMA,
        amount=draw(st.integers(0, 3000)),
        per_k16=draw(st.booleans()),
        operand_bytes=draw(st.integers(0, 500)),
    )
    leader = lag == 0 and draw(st.booleans())
    release = Instruction(Op.RELEASE, amount=lag, leader=leader)
    together = (Instruction(Op.SYNC),) if leader else ()
    return WarpProgram(
        role=role,
        warps=draw(st.integers(1, 4)),
        **draw(_around()),
        step=(
            Instruction(Op.WAIT_FULL, issue=draw(st.integers(1, 2))),
            *draw(_fillers(1)),
            mma,
            Instruction(Op.WAIT_MMA, amount=lag),
            *together,
            release,
        ),
        end=(Instruction(Op.WAIT_MMA), *((Instruction(Op.RELEASE),) * lag), *draw(_epilogue())),
    )


@st.composite
def ring_kernels(draw: DrawFn) -> Kernel:
    """Producer warps that copy into a ring of slots, consumer warps that multiply from it."""
    lag = draw(st.integers(0, 1))
    consumers = [draw(_consumer(f"consumer {i}", lag)) for i in range(draw(st.integers(1, 2)))]
    programs = tuple(draw(st.permutations([draw(_producer()), *consumers])))
    stages = draw(st.integers(1 + lag, 4))
    return Kernel(programs=programs, stages=stages, block_k=draw(_block_k))


@st.composite
def shared_kernels(draw: DrawFn, most_warps: int = 4) -> Kernel:
    """One role that copies ahead into shared memory, meets at SYNC and multiplies with mma.sync."""
    stages = draw(st.integers(1, 4))
    copies = draw(_copies(ahead=stages - 1))
    wait = (Instruction(Op.WAIT_FULL), Instruction(Op.SYNC))
    mma = Instruction(
        Op.BLOCKING_MMA, amount=draw(st.integers(0, 3000)), per_k16=True, operand_bytes=100, issue=2
    )
    program = WarpProgram(
        role="all",
        warps=draw(st.integers(1, most_warps)),
        **draw(_around()),
        fill=tuple(copy._replace(ahead=0) for copy in copies),
        step=(*copies, *wait, mma, Instruction(Op.SYNC))
        if stages == 1
        else (*wait, *copies, *draw(_fillers(1)), mma),
        end=(Instruction(Op.SYNC), *draw(_epilogue())),
    )
    return Kernel(programs=(program,), stages=stages, block_k=draw(_block_k))


@st.composite
def register_kernels(draw: DrawFn, most_warps: int = 4) -> Kernel:
    """One role that loads into registers and multiplies on the CUDA cores; no ring."""
    program = WarpProgram(
        role="all",
        warps=draw(st.integers(1, most_warps)),
        **draw(_around()),
        step=(
            Instruction(Op.LOAD_INDEX, amount=draw(st.integers(1, 99)), leader=draw(st.booleans())),
            Instruction(Op.LOAD_A, amount=draw(st.integers(1, 300))),
            Instruction(Op.WAIT_LOAD),
            Instruction(Op.LOAD_B, amount=draw(_row_bytes), issue=2, per_k16=draw(st.booleans())),
            Instruction(Op.WAIT_LOAD),
            Instruction(Op.FMA, issue=draw(st.integers(1, 4)), per_k16=draw(st.booleans())),
            *draw(_fillers(2)),
        ),
        end=draw(_epilogue()),
    )
    return Kernel(programs=(program,), block_k=draw(_block_k))


def kernels() -> st.SearchStrategy[Kernel]:
    """Any of the three kinds, and those that want some steps of every item."""
    return st.one_of(ring_kernels(), shared_kernels(), register_kernels(), _with_fewest_steps())


@st.composite
def _with_fewest_steps(draw: DrawFn) -> Kernel:
    """Boxes are left out: where there are no columns there is no box."""
    kernel = draw(st.one_of(ring_kernels(), shared_kernels(), register_kernels()))
    boxes = any(code.op == Op.COPY_B for program in kernel.programs for code in program.step)
    return replace(kernel, fewest_steps=0 if boxes else draw(st.integers(1, 3)))


def one_warp_kernels() -> st.SearchStrategy[Kernel]:
    """Kernels whose block is a single warp: everything it does happens in the order of its program."""
    return st.one_of(shared_kernels(most_warps=1), register_kernels(most_warps=1))
