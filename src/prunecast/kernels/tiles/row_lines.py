"""Rows of B and C that do not begin with a line of L2, or not even with a sector, and what they cost.

Rows are copied in pieces of 128 bytes, 16 bytes a lane. Where the tokens of a row are no multiple of 64 (of
two bytes each), rows begin within a line, and their pieces lie in two lines: two requests for one. Where they
are no multiple of 16 either, rows begin within a sector of 32 bytes: two lanes side by side no longer have a
sector to themselves, and all that is asked for takes twice as long; stores write parts of sectors.
"""

import math
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from prunecast.kernels.program import WHOLE_LINES, Code, Instruction, Op, WarpProgram

__all__ = [
    "StoreCost",
    "gather_line_cost",
    "in_sector_share",
    "store_cost",
    "two_line_share",
    "with_row_starts",
]

LINE_BYTES, SECTOR_BYTES = 128, 32
SECOND_REQUEST = 0.25
"""Of a line's time in L2, and of a piece's in the gather port of its SM, that the second request takes.
Fitted, as the next three, to seven products whose rows of B and C were moved apart from each other and to 165
others that were marked fit (H200, 2026-11-22, `benchmarks.gpu_tokens`, 0007): where all rows of B begin 32
bytes behind a line, products take 2 to 17 % longer, where half of them do, half of that."""
LANES_APART = 2.75
"""Of either, what a row of B takes that begins within a sector: 13 to 107 % longer in all."""
PARTS_OF_SECTORS = 3.0
"""Of a line's time in L2, what a store takes whose row begins within a sector: 3 to 44 % longer in all. Rows
of C that begin within a line take no longer."""
FETCHED_SHARE = 0.75
"""Of the bytes of such a row, what L2 fetches from DRAM: the sectors that it has in parts, with the 64 bytes
that DRAM gives at least. Where C is most of what DRAM moves, products of 5000 and 6280 tokens take 25 to 80 %
longer."""


def two_line_share(row_bytes: int) -> float:
    """Share of a row's pieces of 128 bytes that lie in two lines, on average over the rows of a matrix.

    Rows that are shorter are one piece.
    """
    step, piece = math.gcd(row_bytes, LINE_BYTES), min(row_bytes, LINE_BYTES)
    begins = range(0, LINE_BYTES, step)
    return sum(begin + piece > LINE_BYTES for begin in begins) / len(begins)


def in_sector_share(row_bytes: int) -> float:
    """Share of rows that begin within a sector."""
    return 1.0 - math.gcd(row_bytes, SECTOR_BYTES) / SECTOR_BYTES


def with_row_starts(programs: tuple[WarpProgram, ...], row_bytes: int) -> tuple[WarpProgram, ...]:
    """Programs that gather rows of B and store rows of C which begin so many bytes after one another."""
    shares = two_line_share(row_bytes), in_sector_share(row_bytes)
    return tuple(
        replace(program, step=_with_costs(program.step, *shares), end=_with_costs(program.end, *shares))
        for program in programs
    )


@lru_cache(maxsize=64)
def gather_line_cost(programs: tuple[WarpProgram, ...]) -> float:
    """What rows of B cost L2, over as many bytes in rows that begin with a line."""
    costs = (i.line_cost for program in programs for i in program.step if i.op is Op.GATHER_B)
    return max(costs, default=WHOLE_LINES) / WHOLE_LINES


class StoreCost(NamedTuple):
    """Of C, over its bytes."""

    lines: float
    """What it costs L2: 1 where rows begin with a sector."""
    fetched: float
    """What L2 fetches from DRAM for it: 0 there."""


@lru_cache(maxsize=64)
def store_cost(programs: tuple[WarpProgram, ...]) -> StoreCost:
    """Of the C that programs write."""
    for program in programs:
        for instruction in program.end:
            if instruction.op is Op.STORE_C:
                return StoreCost(instruction.line_cost / WHOLE_LINES, instruction.fetched / WHOLE_LINES)
    return StoreCost(1.0, 0.0)


def _with_costs(code: Code, lines: float, sectors: float) -> Code:
    """lines, sectors : shares of pieces and rows as above."""
    read = _of_whole(1.0 + (lines - sectors) * SECOND_REQUEST + sectors * (LANES_APART - 1.0))
    stored = _of_whole(1.0 + sectors * (PARTS_OF_SECTORS - 1.0))
    fetched = _of_whole(sectors * FETCHED_SHARE)

    def changed(i: Instruction) -> Instruction:
        if i.op is Op.GATHER_B:
            return i._replace(line_cost=read, piece_cost=read)
        return i._replace(line_cost=stored, fetched=fetched) if i.op is Op.STORE_C else i

    return tuple(map(changed, code))


def _of_whole(share: float) -> int:
    return round(WHOLE_LINES * share)
