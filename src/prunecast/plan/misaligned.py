"""Rows of B and C that do not begin with a line of L2, or not even with a sector, and what they cost.

Rows are copied in pieces of 128 bytes, 16 bytes a lane. Where the tokens of a row are no multiple of 64 (of
two bytes each), rows begin within a line, and their pieces lie in two lines: two requests for one. Where they
are no multiple of 16 either, rows begin within a sector of 32 bytes: two lanes side by side no longer have a
sector to themselves, and stores write parts of sectors. The GPU's file says what either
takes, in `l2_second_line_share` and `l2_split_sector_...`. Rows of C that begin within a line take no longer.

An operator copies B to rows that begin at multiples of 16 bytes before the launch, and C back after it
(`kernels/device/arrays.py`).
"""

import math
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from prunecast.hardware.spec import LINE_BYTES, SECTOR_BYTES, GpuSpec
from prunecast.plan.program import WHOLE_LINES, Code, Instruction, Op, WarpProgram

WAY_OF_COPIES = "rows of whole lines, in words"
"""Told in records: until 2026-11-22 03:15 copies had rows of 16 bytes and moved element by element."""

ROW_BYTES = 16
"""What rows begin at multiples of."""
WIDEST_WORD_BYTES = 8


def row_bytes_of(tokens: int, element_bytes: int) -> int:
    """Bytes from one row of B or C to the next, as the kernel has them: the caller's rows or copied ones."""
    row_bytes = tokens * element_bytes
    return row_bytes if row_bytes % ROW_BYTES == 0 else copied_row_bytes(tokens, element_bytes)


def copied_row_bytes(tokens: int, element_bytes: int) -> int:
    """Bytes from one row of a copy to the next: whole lines, or the next power of two below a line.

    So all rows begin with a sector and lie in as few lines as they can. 4328 tokens in rows of 4352 take 17
    to 24 % less than in rows of 4328, and the copies themselves as long (three products, H200, own
    measurement, 2026-11-22).
    """
    row_bytes = max(-(-tokens * element_bytes // ROW_BYTES) * ROW_BYTES, ROW_BYTES)
    whole = min(1 << (row_bytes - 1).bit_length(), LINE_BYTES)
    return -(-row_bytes // whole) * whole


def word_bytes(element_bytes: int, *lengths: int) -> int:
    """The widest word of a copy that all lengths, in bytes, are multiples of; at least an element."""
    return max(math.gcd(WIDEST_WORD_BYTES, *lengths), element_bytes)


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


@lru_cache(maxsize=256)
def with_row_starts(
    programs: tuple[WarpProgram, ...], row_bytes: int, gpu: GpuSpec
) -> tuple[WarpProgram, ...]:
    """Programs that gather rows of B and store rows of C which begin so many bytes after one another."""
    costs = _row_costs(two_line_share(row_bytes), in_sector_share(row_bytes), gpu)
    return tuple(
        replace(program, step=_with_costs(program.step, costs), end=_with_costs(program.end, costs))
        for program in programs
    )


@lru_cache(maxsize=64)
def gather_line_cost(programs: tuple[WarpProgram, ...]) -> float:
    """What rows of B cost L2, over as many bytes in rows that begin with a line."""
    costs = (i.line_cost for program in programs for i in program.step if i.op is Op.GATHER_B)
    return max(costs, default=WHOLE_LINES) / WHOLE_LINES


class StoreCost(NamedTuple):
    """Cost of storing C over that of its bytes in whole lines."""

    lines: float
    """What it costs L2: 1 where rows begin with a sector."""
    fetched: float
    """What L2 fetches from DRAM for it: 0 there."""


@lru_cache(maxsize=64)
def store_cost(programs: tuple[WarpProgram, ...]) -> StoreCost:
    """Cost of the C that programs write, over its bytes."""
    for program in programs:
        for instruction in program.end:
            if instruction.op is Op.STORE_C:
                return StoreCost(instruction.line_cost / WHOLE_LINES, instruction.fetched / WHOLE_LINES)
    return StoreCost(1.0, 0.0)


class _RowCosts(NamedTuple):
    """Costs of misaligned rows, in parts of `WHOLE_LINES`."""

    read: int
    stored: int
    fetched: int


def _row_costs(lines: float, sectors: float, gpu: GpuSpec) -> _RowCosts:
    """lines, sectors : shares of pieces that lie in two lines, and of rows that begin within a sector."""
    one_more, apart = gpu.l2_second_line_share, gpu.l2_split_sector_read_factor - 1.0
    return _RowCosts(
        read=_of_whole(1.0 + (lines - sectors) * one_more + sectors * apart),
        stored=_of_whole(1.0 + sectors * (gpu.l2_split_sector_store_factor - 1.0)),
        fetched=_of_whole(sectors * gpu.l2_split_sector_fetched_share),
    )


def _with_costs(code: Code, costs: _RowCosts) -> Code:
    def changed(i: Instruction) -> Instruction:
        if i.op is Op.GATHER_B:
            return i._replace(line_cost=costs.read, piece_cost=costs.read)
        return i._replace(line_cost=costs.stored, fetched=costs.fetched) if i.op is Op.STORE_C else i

    return tuple(map(changed, code))


def _of_whole(share: float) -> int:
    return round(WHOLE_LINES * share)
