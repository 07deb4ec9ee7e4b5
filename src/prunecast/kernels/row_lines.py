"""Rows of B and C that do not begin with a line of L2: what L2 and the SMs' ports of stores take for them.

Rows are copied and stored in pieces of 128 bytes. Where the tokens of a row are no multiple of 64 (of two
bytes each), rows begin within a line, and most of their pieces lie in two lines: two requests for one. With
6304 tokens every second row does. Without it products of the tile kernels with 6304 tokens take 3.8 % less
than was measured, those with tokens that are multiples of 64 1.3 % more (H200, 2026-11-21, marked fit).
"""

import math
from dataclasses import replace

from prunecast.kernels.program import WHOLE_LINES, Code, Op, WarpProgram

__all__ = ["across_lines", "two_line_share"]

LINE_BYTES = 128
READ_SECOND = 0.7
"""Of a line's time in L2 that the second request for a read piece takes. Fitted: steps of the 2:4 kernel and
of 64 x 256 tiles that L2 bounds take 7 to 13 % longer with 6304 tokens."""
STORE_SECOND = 1.0
"""Of its time at the SM's port of stores that the second request for a stored piece takes. Blocks of
128 x 256 tiles with 6304 tokens take 840 to 1,040 cycles more than is modelled without it, half of what their
64 KB take."""


def two_line_share(tokens: int, element_bytes: int) -> float:
    """Share of a row's pieces of 128 bytes that lie in two lines, on average over the rows of a matrix."""
    row_bytes = tokens * element_bytes
    if row_bytes < LINE_BYTES:
        return 0.0
    return 1.0 - math.gcd(row_bytes, LINE_BYTES) / LINE_BYTES


def across_lines(programs: tuple[WarpProgram, ...], share: float) -> tuple[WarpProgram, ...]:
    """Programs that gather and store rows of which such a share of the pieces lies in two lines."""
    if share == 0.0:
        return programs
    return tuple(
        replace(program, step=_costlier(program.step, share), end=_costlier(program.end, share))
        for program in programs
    )


def _costlier(code: Code, share: float) -> Code:
    second = {Op.GATHER_B: READ_SECOND, Op.STORE_C: STORE_SECOND}
    return tuple(
        instruction._replace(line_cost=round(WHOLE_LINES * (1.0 + share * second[instruction.op])))
        if instruction.op in second
        else instruction
        for instruction in code
    )
