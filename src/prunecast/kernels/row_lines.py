"""Rows of B that do not begin with a line of L2: what L2 takes for them.

Rows are copied in pieces of 128 bytes. Where the tokens of a row are no multiple of 64 (of two bytes each),
rows begin within a line, and most of their pieces lie in two lines: two requests for one.
"""

import math
from dataclasses import replace

from prunecast.kernels.program import WHOLE_LINES, Code, Op, WarpProgram

__all__ = ["across_lines", "two_line_share"]

LINE_BYTES = 128
SECOND_REQUEST = 0.25
"""Of a line's time in L2 that the second request for a piece takes. Fitted to lists of three products with
6272, 6304 and 6288 tokens (H200, 2026-11-22), of which none, half and three quarters of the rows begin within
a line: 2.2 to 3.9 and 3.6 to 5.2 % longer a token. Rows that begin within 32 bytes (6280 tokens) take 12 to
48 % longer, which is not modelled; blocks that the hardware starts take no longer."""


def two_line_share(tokens: int, element_bytes: int) -> float:
    """Share of a row's pieces of 128 bytes that lie in two lines, on average over the rows of a matrix."""
    row_bytes = tokens * element_bytes
    if row_bytes < LINE_BYTES:
        return 0.0
    return 1.0 - math.gcd(row_bytes, LINE_BYTES) / LINE_BYTES


def across_lines(programs: tuple[WarpProgram, ...], share: float) -> tuple[WarpProgram, ...]:
    """Programs that gather rows of which such a share of the pieces lies in two lines."""
    if share == 0.0:
        return programs
    return tuple(replace(program, step=_costlier(program.step, share)) for program in programs)


def _costlier(code: Code, share: float) -> Code:
    cost = round(WHOLE_LINES * (1.0 + share * SECOND_REQUEST))
    return tuple(i._replace(line_cost=cost) if i.op is Op.GATHER_B else i for i in code)
