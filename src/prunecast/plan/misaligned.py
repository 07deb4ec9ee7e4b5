"""Cost of rows of B and C that are not aligned to L2 lines or sectors.

A warp copies rows in chunks of 128 bytes, 16 bytes per lane. If the number of tokens is not a multiple of 64
(with two bytes each), rows are not aligned to lines, and a chunk can straddle two lines: two requests instead
of one. If it is not a multiple of 16 either, rows are not aligned to sectors of 32 bytes: the 16 bytes of two
neighbouring lanes no longer fill one sector, and stores write partial sectors. The specification of the GPU
contains both costs: `l2_second_line_share` and `l2_split_sector_...`. Storing rows of C that are aligned to
sectors but not to lines costs nothing extra.

If rows are not aligned to 16 bytes, an operator copies B to aligned rows before the launch and copies C back
after it (`kernels/device/arrays.py`).
"""

import math
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from prunecast.hardware.spec import LINE_BYTES, SECTOR_BYTES, GpuSpec
from prunecast.plan.program import WHOLE_LINES, Code, Op, WarpProgram

WAY_OF_COPIES = "rows of whole lines, in words"
"""Label of the copy method in records. Until 2026-11-22 03:15 copied rows were multiples of 16 bytes and were
moved element by element."""

ROW_BYTES = 16
"""Alignment in bytes that the kernels need for rows of B and C."""
WIDEST_WORD_BYTES = 8
FEW_TOKENS = 64
"""Maximum number of tokens of a call that runs the kernel for few tokens. Kind: definition,
`kernels/small_n`."""
VECTOR_TOKENS = 8
"""Number of tokens of a row of two-byte elements in `ROW_BYTES`."""


def planned_tokens(tokens: int) -> int:
    """Return the number of tokens for which a plan in torch is made, to which rows are padded.

    It is 1 for one token, the next multiple of 8 up to `FEW_TOKENS`, and above it the next multiple of 64 (an
    L2 line of two-byte elements).
    """
    if tokens == 1:
        return 1
    group = VECTOR_TOKENS if tokens <= FEW_TOKENS else VECTOR_TOKENS * LINE_BYTES // ROW_BYTES
    return -(-tokens // group) * group


def row_bytes_of(tokens: int, element_bytes: int) -> int:
    """Return the row stride in bytes of B and C as the kernel accesses them: the caller's arrays, or padded
    copies if the rows are not aligned.
    """
    row_bytes = tokens * element_bytes
    return row_bytes if row_bytes % ROW_BYTES == 0 else copied_row_bytes(tokens, element_bytes)


def copied_row_bytes(tokens: int, element_bytes: int) -> int:
    """Return the row stride of a copy in bytes: whole lines, or the next power of two for rows below a line.

    All rows then begin at a sector boundary and span as few lines as possible. For 4328 tokens, the kernel
    needs 17 to 24 % less time with rows of 4352 elements than with rows of 4328, and the copies need the same
    time (three products, H200, own measurement, 2026-11-22).
    """
    row_bytes = max(-(-tokens * element_bytes // ROW_BYTES) * ROW_BYTES, ROW_BYTES)
    whole = min(1 << (row_bytes - 1).bit_length(), LINE_BYTES)
    return -(-row_bytes // whole) * whole


def word_bytes(element_bytes: int, *lengths: int) -> int:
    """Return the bytes of the widest word that divides all lengths (in bytes); at least one element."""
    return max(math.gcd(WIDEST_WORD_BYTES, *lengths), element_bytes)


def two_line_share(row_bytes: int) -> float:
    """Return the fraction of 128-byte chunks of rows that straddle two lines, averaged over row positions.

    Rows shorter than 128 bytes are one chunk.
    """
    step, piece = math.gcd(row_bytes, LINE_BYTES), min(row_bytes, LINE_BYTES)
    begins = range(0, LINE_BYTES, step)
    return sum(begin + piece > LINE_BYTES for begin in begins) / len(begins)


def in_sector_share(row_bytes: int) -> float:
    """Return the fraction of rows that do not begin at a sector boundary."""
    return 1.0 - math.gcd(row_bytes, SECTOR_BYTES) / SECTOR_BYTES


@lru_cache(maxsize=256)
def with_row_starts(
    programs: tuple[WarpProgram, ...], row_bytes: int, gpu: GpuSpec
) -> tuple[WarpProgram, ...]:
    """Return the programs with the L2 and port costs of rows of B and C whose stride is `row_bytes`."""
    # Fractions of 128-byte chunks that straddle two L2 lines, and of rows that begin inside a sector
    lines, sectors = two_line_share(row_bytes), in_sector_share(row_bytes)
    one_more, apart = gpu.l2_second_line_share, gpu.l2_split_sector_read_factor - 1.0
    read = _of_whole(1.0 + (lines - sectors) * one_more + sectors * apart)
    stored = _of_whole(1.0 + sectors * (gpu.l2_split_sector_store_factor - 1.0))
    fetched = _of_whole(sectors * gpu.l2_split_sector_fetched_share)
    changes: dict[Op, dict[str, Any]] = {
        Op.GATHER_B: {"line_cost": read, "piece_cost": read},
        Op.STORE_C: {"line_cost": stored, "fetched": fetched},
    }

    def changed(code: Code) -> Code:
        return tuple(i._replace(**changes.get(i.op, {})) for i in code)

    return tuple(replace(p, step=changed(p.step), end=changed(p.end)) for p in programs)


def gather_line_cost(programs: tuple[WarpProgram, ...]) -> float:
    """Return the L2 cost of gathering rows of B, relative to rows that are aligned to lines."""
    costs = (i.line_cost for program in programs for i in program.step if i.op is Op.GATHER_B)
    return max(costs, default=WHOLE_LINES) / WHOLE_LINES


class StoreCost(NamedTuple):
    """Cost of storing C, relative to its bytes in whole lines."""

    lines: float
    """L2 cost per byte of C: 1 if rows are aligned to sectors."""
    fetched: float
    """Bytes that L2 fetches from DRAM to complete partial sectors, per byte of C: 0 if rows are aligned to
    sectors."""


def store_cost(programs: tuple[WarpProgram, ...]) -> StoreCost:
    """Return the cost of the stores of C in the programs, relative to the bytes of C."""
    for program in programs:
        for instruction in program.end:
            if instruction.op is Op.STORE_C:
                return StoreCost(instruction.line_cost / WHOLE_LINES, instruction.fetched / WHOLE_LINES)
    return StoreCost(1.0, 0.0)


def _of_whole(share: float) -> int:
    return round(WHOLE_LINES * share)
