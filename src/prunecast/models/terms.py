"""Conversion of warp programs to a short table of terms, from which the work counts of an item are computed.

A term stands for all instructions of a block that run under equal conditions (`_Term`). It has one
coefficient per `Quantity`: the work of one execution, of 16 columns, or of one kept column. The work of an
item is the sum over the terms of count times coefficient, so that the work counts of all kinds of items are
one matrix product.
"""

from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.plan.program import (
    COPIES,
    DATA,
    LOADS,
    ON_STEP,
    WHOLE_LINES,
    Instruction,
    Op,
    WarpProgram,
    When,
)

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
    """Bytes from L2 into the SM. Stores use another port."""
    L2 = 5
    """Bytes through L2, reads and writes. A multicast to several blocks is one read. Rows of B that are not
    aligned to lines count more than their bytes, by the factor `line_cost`."""
    A = 6
    """Bytes of packed weights that arrive in the SM."""
    B = 7
    """Bytes of B that arrive in the SM."""
    INDEX = 8
    """Bytes of column indices that arrive in the SM, of lists, and of C if a launch adds to it."""
    C = 9
    """Bytes of C written."""
    PARTIALS_OUT = 10
    """Bytes of partial sums written."""
    PARTIALS_IN = 11
    """Bytes of partial sums read back."""


OF_READS, OF_STORES = [Quantity.A, Quantity.B, Quantity.INDEX], [Quantity.C, Quantity.PARTIALS_OUT]
"""Quantities that L2 serves as reads, and those that it accepts as stores. Lists, because NumPy takes a tuple
as an index for each axis."""


class ProgramSection(IntEnum):
    """Sections of a `WarpProgram`; the names are those of its fields."""

    START = 0
    BEGIN = 1
    FILL = 2
    STEP = 3
    END = 4
    FINISH = 5


class Unit(IntEnum):
    """Unit in which a term is counted; its coefficients are the work per unit."""

    ONCE = 0
    """One execution of the instruction."""
    K16 = 1
    """One group of 16 columns of a k-step."""
    COLUMNS = 2
    """One kept column of a k-step."""


class Clip(IntEnum):
    """Factor on the work of an item, relative to a full tile of `block_m` rows and `block_n` tokens."""

    FULL = 0
    """1: the work does not depend on the rows and tokens of the item."""
    TOKENS = 1
    """Tokens of the item divided by `block_n`."""
    AREA = 2
    """Rows of the item divided by `block_m`, times TOKENS."""
    AREA_OF_PARTS = 3
    """AREA times the number of other k-slices of the item's tile."""
    PARTS = 4
    """Number of other k-slices of the item's tile."""


class _Term(NamedTuple):
    """Conditions and factors of instructions; those with equal fields are added to one term."""

    section: ProgramSection
    on_step: bool
    """True if the instruction acts on a k-step, and is skipped if the item does not have this k-step. It is
    `shift` k-steps after the current one."""
    shift: int
    unit: Unit
    clip: Clip
    when: When


class Table(NamedTuple):
    """Warp programs of a block as a sum of terms."""

    terms: tuple[_Term, ...]
    places: npt.NDArray[np.int64]
    """(terms, 6) fields of `terms` as integers."""
    weights: FloatArray
    """(terms, quantities) float64 coefficients, summed over the warps of the block."""
    of_steps: FloatArray
    """(terms, quantities) `weights` of terms in `fill` and `step`; 0 for other terms."""
    of_edges: FloatArray
    """(terms, quantities) `weights` of terms in `begin` and `end`; 0 for other terms."""
    of_block: FloatArray
    """(quantities,) sum of the work of `start` and `finish`."""
    tensor_warps: float
    """Number of warps of a block that share its tensor work: work of all warps / work of the busiest warp."""


_CLIPS = {
    Quantity.B: Clip.TOKENS,
    Quantity.C: Clip.AREA,
    Quantity.PARTIALS_OUT: Clip.AREA,
    Quantity.PARTIALS_IN: Clip.AREA_OF_PARTS,
}
"""Quantity -> factor on its bytes for items smaller than a full tile; `Clip.FULL` for other quantities."""
_WHOLE_CLIPS = {**_CLIPS, Quantity.PARTIALS_OUT: Clip.FULL, Quantity.PARTIALS_IN: Clip.PARTS}
"""`_CLIPS` of instructions with `Instruction.whole`, which always move the partial sums of a full tile."""


@lru_cache(maxsize=64)
def table_of(programs: tuple[WarpProgram, ...]) -> Table:
    """Return the table of terms of a block's warp programs, one program per role."""
    sums: dict[_Term, FloatArray] = {}
    tensor_fma: list[int] = []
    for program in programs:
        for section in ProgramSection:
            for instruction in getattr(program, section.name.lower()):
                warps = 1 if instruction.leader else program.warps
                _add_terms(sums, section, instruction, warps)
        tensor_fma.append(sum(i.amount for i in program.step if i.op in (Op.MMA, Op.BLOCKING_MMA)))
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


def _add_terms(
    sums: dict[_Term, FloatArray], section: ProgramSection, instruction: Instruction, warps: int
) -> None:
    """Add the work of one instruction, executed by `warps` warps, to the coefficients in `sums`.

    `sums` maps each term to its coefficients, (quantities,). An instruction contributes to several terms if
    its quantities have different units or factors, e.g. issue slots per execution and bytes per column.
    """
    op, amount = instruction.op, float(instruction.amount)
    on_step = op in ON_STEP or instruction.per_k16
    shift = -instruction.amount if op is Op.RELEASE else instruction.ahead if on_step else 0
    unit = Unit.K16 if instruction.per_k16 else Unit.ONCE

    def add(quantity: Quantity, value: float, unit: Unit = unit, clip: Clip = Clip.FULL) -> None:
        if value:
            term = _Term(section, on_step, shift, unit, clip, instruction.when)
            sums.setdefault(term, np.zeros(len(Quantity)))[quantity] += value

    # Every instruction takes at least one issue slot.
    add(Quantity.ISSUE, warps * max(instruction.issue, 1), unit if instruction.issue else Unit.ONCE)
    if op is Op.FMA:
        add(Quantity.FP32, warps * max(instruction.issue, 1))
    elif op in (Op.MMA, Op.BLOCKING_MMA):
        add(Quantity.FMA, warps * amount)
        add(Quantity.SHARED, float(warps * instruction.operand_bytes))
    elif op is Op.SHARED:
        add(Quantity.SHARED, warps * amount)
    elif op in DATA:
        quantity, by_column = Quantity[DATA[op]], DATA[op] == "B"
        clip = (_WHOLE_CLIPS if instruction.whole else _CLIPS).get(quantity, Clip.FULL)
        per, moved = (Unit.COLUMNS, amount) if by_column else (unit, warps * amount)
        add(quantity, moved, per, clip)
        if op in COPIES or op in LOADS:
            add(Quantity.PORT, moved, per, clip)
        lines = instruction.line_cost / WHOLE_LINES if by_column else 1.0
        add(Quantity.L2, lines * moved / instruction.multicast, per, clip)
        if op in COPIES:
            add(Quantity.SHARED, moved, per, clip)
            add(Quantity.SHARED, float(warps * instruction.operand_bytes))
