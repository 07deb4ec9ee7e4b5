"""What an element of a CSR matrix costs an SM, and what a warp of cuSPARSE waits for: `costs/sm_*.toml`."""

import math
from functools import cache

import numpy as np
import numpy.typing as npt

from prunecast.hardware.costs import Costs, load_costs

__all__ = ["WIDTHS", "chain_cycles", "cusparse_costs", "meeting_cycles", "missed_share", "odd_slots", "width"]

WIDTHS = (32, 64, 128)
"""Tokens of a CTA."""


@cache
def cusparse_costs(compute_capability: int) -> Costs:
    """Fitted numbers of the library's kernels."""
    return load_costs(__package__, compute_capability)


def width(tokens: int) -> int:
    """Tokens of the CTAs that such a range of tokens is given to."""
    return min(width for width in WIDTHS if width >= min(tokens, WIDTHS[-1]))


def missed_share(elements: float, columns: int, row_bytes: int, l1_bytes: int) -> float:
    """Share of reads of B's rows that L1 cannot answer.

    Parameters
    ----------
    elements : that an SM has of a token range; their columns are as good as random
    columns : of the matrix: rows that B has
    row_bytes : of B, for the tokens of a CTA
    l1_bytes : that keep rows once read
    """
    kept = min(l1_bytes / row_bytes, columns)
    # L1 fills with what it misses; from then on the share of rows that it has stays
    filled_after = -columns * math.log1p(-kept / columns) if kept < columns else math.inf
    if elements <= filled_after:
        return -columns * math.expm1(-elements / columns) / elements
    return (kept + (elements - filled_after) * (1.0 - kept / columns)) / elements


def odd_slots(n: int, costs: Costs) -> float:
    """Issue slots for an element with an odd count of tokens, whose rows are aligned to elements only."""
    return costs["odd_slots"] + costs["odd_slots_tokens"] / min(n, WIDTHS[-1]) if n % 2 else 0.0


def meeting_cycles(
    elements_of_rows: npt.NDArray[np.int64], n: int, elements_of_warp: int, costs: Costs
) -> float:
    """Cycles by which all is late since warps add to the same row of C by compare and swap, for `n` tokens.

    Parameters
    ----------
    elements_of_rows : (rows,) kept
    """
    if n % 2 == 0 or n == 1:
        return 0.0
    meeting = np.maximum(elements_of_rows / elements_of_warp - costs["apart_warps"], 0.0)
    ranges, tokens = -(-n // WIDTHS[-1]), min(n, WIDTHS[-1])
    return float(ranges * costs["meeting_cycles"] / math.sqrt(tokens) * (meeting**2).sum())


def chain_cycles(rows: float, missed: float, block_n: int, costs: Costs) -> float:
    """Cycles of a warp that has `rows` rows, of which L1 misses a share: its chain of loads."""
    in_rows = rows * costs["row_chain_cycles"] if block_n == WIDTHS[-1] else 0.0
    from_l2 = costs["missed_chain_cycles"] - costs["chain_cycles"]
    return costs["chain_cycles"] + in_rows + from_l2 * missed
