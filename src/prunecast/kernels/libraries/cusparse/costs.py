"""What an element of a CSR matrix costs an SM, and what a warp waits for: cuSPARSE's code is not public.

Fitted to products of cuSPARSE of CUDA 13.1, own measurement, H200, 2026-11-22: 411 together, and what odd
counts of tokens cost, beside these, to the 65 with such counts.
"""

import math

import numpy as np
import numpy.typing as npt

__all__ = [
    "ELEMENTS_OF_WARP",
    "MISSED_CHAIN_CYCLES",
    "MISSED_SLOTS",
    "ONE_TOKEN_SLOTS_PER_ROW",
    "ROW_CHAIN_CYCLES",
    "SLOTS_PER_ELEMENT",
    "SLOTS_PER_ROW",
    "TAIL",
    "chain_cycles",
    "meeting_cycles",
    "missed_share",
    "odd_slots",
]

ELEMENTS_OF_WARP = 24
"""Of the matrix in the order of its rows, whatever rows they belong to."""
SLOTS_PER_ELEMENT = {32: 40.0, 64: 43.0, 128: 46.0}
"""Issue slots of an SM for one kept element whose row of B is in L1, by the tokens of a block. Warps whose
tokens are beyond the last still go through the elements: 8 tokens take what 32 take."""
MISSED_SLOTS = 12.0
"""More, where L1 has not that row: a million elements with 32 tokens take 50 us in 1,024 columns, 62 in
16,384."""
ODD_SLOTS, ODD_SLOTS_TOKENS = 25.0, 120.0
"""More with an odd count of tokens, whose rows begin between pairs of elements, so that loads and sums go one
by one; and more still, that by the tokens: 819,200 elements take 41 us with 16, 66 with 17, 100 with 3."""
MEETING_CYCLES, APART_WARPS = 0.75, 13.4
"""For each two warps of a row that add to C at once, by the square root of the tokens, and how many of a row
do so one after another: single elements of an odd count of tokens are added by comparing and trying again.
Fitted with the slots of odd counts: 1,408 rows of 2,048 elements take 1,150 us with 9 tokens, 590 with 33
and 128 with 8."""
SLOTS_PER_ROW = 230
"""Of an SM for a row, which no chain hides, in the launch before too: 196,608 rows of 4 elements take 83 us
with 16 tokens, 1,536 of 512 elements 40."""
ONE_TOKEN_SLOTS_PER_ROW = 10
"""Of the SM's quarter that all rows of one token go to here, fitted: 1 million elements take 8.6 us in 2,048
rows and 11.5 in 65,536."""
CHAIN_CYCLES, MISSED_CHAIN_CYCLES, ROW_CHAIN_CYCLES = 800, 9300, 1100
"""From a warp's first instruction to its last: its 24 elements one after another, 33 cycles each from L1
and 390 each, fitted, from L2; and for each of its rows of 128 tokens, whose sums are added to C."""
TAIL = 0.9
"""Of a chain, how much longer than their work SMs take where blocks follow others: those that end last have
fewer and fewer beside them. 1,280 blocks with 16 tokens take 10.9 us, 1,323 take 13.3: 1,320 are resident."""


def missed_share(elements: float, columns: int, row_bytes: int, l1_bytes: int) -> float:
    """Of reads of B's rows, those that L1 cannot answer.

    Parameters
    ----------
    elements : that an SM has of a token range; their columns are as good as random
    columns : of the matrix: rows that B has
    row_bytes : of B, for the tokens of a block
    l1_bytes : that keep rows once read
    """
    kept = min(l1_bytes / row_bytes, columns)
    # L1 fills with what it misses; from then on the share of rows that it has stays
    filled_after = -columns * math.log1p(-kept / columns) if kept < columns else math.inf
    if elements <= filled_after:
        return -columns * math.expm1(-elements / columns) / elements
    return (kept + (elements - filled_after) * (1.0 - kept / columns)) / elements


def odd_slots(n: int) -> float:
    """More slots for an element, since rows of B and C are aligned to single elements only."""
    return ODD_SLOTS + ODD_SLOTS_TOKENS / min(n, 128) if n % 2 else 0.0


def meeting_cycles(elements_of_rows: npt.NDArray[np.int64], n: int) -> float:
    """By which everything is late since warps add to the same row of C, for `n` tokens in all.

    Parameters
    ----------
    elements_of_rows : (rows,) kept
    """
    if n % 2 == 0 or n == 1:
        return 0.0
    meeting = np.maximum(elements_of_rows / ELEMENTS_OF_WARP - APART_WARPS, 0.0)
    ranges, tokens = -(-n // 128), min(n, 128)
    return float(ranges * MEETING_CYCLES / math.sqrt(tokens) * (meeting**2).sum())


def chain_cycles(rows: float, missed: float, block_n: int) -> float:
    """What a warp that has `rows` rows takes, which lone blocks take too."""
    in_rows = rows * ROW_CHAIN_CYCLES if block_n == 128 else 0.0
    return CHAIN_CYCLES + in_rows + (MISSED_CHAIN_CYCLES - CHAIN_CYCLES) * missed
