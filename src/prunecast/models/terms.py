"""Warp programs as a short table of terms: how amounts depend on an item.

Every amount is linear in a few properties of an item (its steps, kept columns, rows, tokens, parts), so
equal terms of all instructions of all warps are added up once, and a work list is one matrix product.
"""

from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.plan.program import WHOLE_LINES, Code, Instruction, Op, WarpProgram, When

FloatArray = npt.NDArray[np.float64]


class Quantity(IntEnum):
    """Columns of the matrices of `Amounts`."""

    FMA = 0
    """Tensor multiply-adds."""
    FP32 = 1
    """fp32 multiply-add instructions of a full warp."""
    ISSUE = 2
    """Warp instructions."""
    SHARED = 3
    """Bytes through the port of shared memory, async copies into it included."""
    PORT = 4
    """Bytes from L2 into the SM; stores leave by a port of their own."""
    L2 = 5
    """Bytes through L2, reads and writes, where a multicast to several blocks is one read. Read rows that do
    not begin with a line count for what they cost."""
    A = 6
    """Bytes of packed weights that arrive in the SM."""
    B = 7
    """Bytes of B that arrive in the SM."""
    INDEX = 8
    """Bytes of column indices that arrive in the SM."""
    C = 9
    """Bytes of C written."""
    PARTIALS_OUT = 10
    """Bytes of partial sums written."""
    PARTIALS_IN = 11
    """Bytes of partial sums read back."""


class ProgramSection(IntEnum):
    """The parts of a `WarpProgram`, by its field names."""

    START = 0
    BEGIN = 1
    FILL = 2
    STEP = 3
    END = 4
    FINISH = 5


class Unit(IntEnum):
    """Quantities that a coefficient is multiplied with in each step."""

    ONCE = 0
    K16 = 1
    COLUMNS = 2


class Clip(IntEnum):
    """The part of a full tile that counts: clipped to the item's tokens, to its rows and tokens, or
    unclipped.
    """

    FULL = 0
    TOKENS = 1
    AREA = 2
    AREA_OF_PARTS = 3
    PARTS = 4


class _Term(NamedTuple):
    """Place and count of a coefficient."""

    section: ProgramSection
    on_step: bool
    """Acts on the step `shift` after the one it stands in, and is skipped where there is none."""
    shift: int
    unit: Unit
    clip: Clip
    when: When


class Table(NamedTuple):
    """Programs as terms."""

    terms: tuple[_Term, ...]
    places: npt.NDArray[np.int64]
    """(terms, 6): the fields of `terms` as numbers."""
    weights: FloatArray
    """(terms, quantities) float64: coefficients, warps counted."""
    of_steps: FloatArray
    """`weights` of `fill` and `step`, else 0."""
    of_edges: FloatArray
    """`weights` of `begin` and `end`, else 0."""
    of_block: FloatArray
    """(quantities,): what `start` and `finish` add up to."""
    tensor_warps: float
    """Warps of a block among which its tensor work is spread."""


_ACTS_ON_STEP = frozenset(range(Op.COPY_A, Op.LOAD_INDEX + 1)) | {Op.WAIT_EMPTY, Op.WAIT_FULL, Op.RELEASE}


@lru_cache(maxsize=64)
def table_of(programs: tuple[WarpProgram, ...]) -> Table:
    """Boil programs down to terms; equal terms of all instructions are added up."""
    sums: dict[_Term, FloatArray] = {}
    tensor_fma: list[int] = []
    for program in programs:
        for section in ProgramSection:
            code: Code = getattr(program, section.name.lower())
            for instruction in code:
                warps = 1 if instruction.leader else program.warps
                for term, quantity, coefficient in _contributions(section, instruction, warps):
                    sums.setdefault(term, np.zeros(len(Quantity)))[quantity] += coefficient
        tensor_fma.append(sum(i.amount for i in program.step if i.op in (Op.MMA, Op.MMA_SYNC)))
    busiest = max(tensor_fma, default=0)
    spread = sum(fma * program.warps for fma, program in zip(tensor_fma, programs, strict=True))
    weights = np.array(list(sums.values())) if sums else np.zeros((0, len(Quantity)))
    return _table(tuple(sums), weights, spread / busiest if busiest else 1.0)


def _table(terms: tuple[_Term, ...], weights: FloatArray, tensor_warps: float) -> Table:
    places = np.array(terms, np.int64).reshape(len(terms), len(_Term._fields))
    in_steps = np.isin(places[:, :1], (ProgramSection.FILL, ProgramSection.STEP))
    in_edges = np.isin(places[:, :1], (ProgramSection.BEGIN, ProgramSection.END))
    of_steps, of_edges = np.where(in_steps, weights, 0.0), np.where(in_edges, weights, 0.0)
    of_block = (weights - of_steps - of_edges).sum(axis=0)
    return Table(terms, places, weights, of_steps, of_edges, of_block, tensor_warps)


class _Contribution(NamedTuple):
    term: _Term
    quantity: Quantity
    coefficient: float


def _contributions(section: ProgramSection, instruction: Instruction, warps: int) -> list[_Contribution]:
    """What one instruction, run by so many warps, adds to which quantities."""
    op, amount = instruction.op, float(instruction.amount)
    on_step = op in _ACTS_ON_STEP or instruction.per_k16
    shift = -instruction.amount if op is Op.RELEASE else instruction.ahead if on_step else 0
    unit = Unit.K16 if instruction.per_k16 else Unit.ONCE

    def add(quantity: Quantity, value: float, unit: Unit = unit, clip: Clip = Clip.FULL) -> None:
        if value:
            term = _Term(section, on_step, shift, unit, clip, instruction.when)
            found.append(_Contribution(term, quantity, value))

    def move(quantity: Quantity, value: float, unit: Unit = unit, clip: Clip = Clip.FULL) -> None:
        add(quantity, value, unit, clip)
        if op not in (Op.STORE_C, Op.STORE_PARTIAL):
            add(Quantity.PORT, value, unit, clip)
        lines = instruction.line_cost / WHOLE_LINES if op in (Op.COPY_B, Op.GATHER_B, Op.LOAD_B) else 1.0
        add(Quantity.L2, lines * value / instruction.multicast, unit, clip)
        if op in (Op.COPY_A, Op.COPY_B, Op.GATHER_B):
            add(Quantity.SHARED, value, unit, clip)
            add(Quantity.SHARED, float(warps * instruction.operand_bytes))

    found: list[_Contribution] = []
    # Every instruction takes at least one issue slot.
    add(Quantity.ISSUE, warps * max(instruction.issue, 1), unit if instruction.issue else Unit.ONCE)
    if op is Op.FMA:
        add(Quantity.FP32, warps * max(instruction.issue, 1))
    elif op in (Op.MMA, Op.MMA_SYNC):
        add(Quantity.FMA, warps * amount)
        add(Quantity.SHARED, float(warps * instruction.operand_bytes))
    elif op is Op.SHARED:
        add(Quantity.SHARED, warps * amount)
    elif op in (Op.COPY_A, Op.LOAD_A):
        move(Quantity.A, warps * amount)
    elif op in (Op.COPY_B, Op.GATHER_B, Op.LOAD_B):
        move(Quantity.B, amount, Unit.COLUMNS, Clip.TOKENS)
    elif op is Op.LOAD_INDEX:
        move(Quantity.INDEX, warps * amount)
    elif op is Op.STORE_C:
        move(Quantity.C, warps * amount, Unit.ONCE, Clip.AREA)
    elif op is Op.STORE_PARTIAL:
        move(Quantity.PARTIALS_OUT, warps * amount, Unit.ONCE, Clip.FULL if instruction.whole else Clip.AREA)
    elif op is Op.LOAD_PARTIALS:
        clip = Clip.PARTS if instruction.whole else Clip.AREA_OF_PARTS
        move(Quantity.PARTIALS_IN, warps * amount, Unit.ONCE, clip)
    return found
