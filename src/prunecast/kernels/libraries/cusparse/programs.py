"""Warp programs of the CSR kernel: the warps of a block share its elements and tokens, on CUDA cores.

What an element costs an SM, and what a warp of cuSPARSE waits for, stands in `costs/sm_*.toml`.
"""

import math
from functools import cache

import numpy as np
import numpy.typing as npt

from prunecast.hardware.costs import Costs, load_costs
from prunecast.plan.program import Instruction, Op, WarpProgram, When

CSR_WARPS = 16
"""Warps of the model's block, which stands for all that an SM has at once. Kind: choice, four a scheduler."""
INDEX_BYTES = 4
"""Bytes of a column's index. Kind: definition, CSR with 32-bit indices."""
WIDTHS = (32, 64, 128)
"""Tokens of a CTA. Kind: choice, those that `slots_per_element_*` were fitted for."""


def csr_programs(
    block_n: int,
    element_bytes: int,
    elements_per_group: float,
    slots: float,
    wait_cycles: float,
    costs: Costs,
) -> tuple[WarpProgram, ...]:
    """Rows of B are read for one row of A alone and never shared.

    Indices, values and rows of B are loaded ahead, over the ends of rows of A: the slots, which are fitted,
    have whatever they are waited for.

    Parameters
    ----------
    block_n : tokens of a CTA, one of `costs.WIDTHS`
    elements_per_group : that a group of 16 columns has on average, at most 16: the kernel takes elements one
        by one, while these programs take rows in whole groups
    slots : issue slots for an element
    wait_cycles : by which an SM's warps take longer than they issue. It stands at the start, so that all of
        them wait at once
    """
    tokens_per_lane = block_n // 32
    ahead = (INDEX_BYTES + element_bytes) * 16 // CSR_WARPS
    convert = tokens_per_lane if element_bytes < 4 else 0
    # Beside the load of B, that of indices, the conversion and the FMA: addresses, shuffles, bounds
    whole = round(slots * elements_per_group / 16)
    other = max(whole - 2 * tokens_per_lane - max(convert, 1) - 1, 1)
    out_bytes = block_n * element_bytes // CSR_WARPS
    worker = WarpProgram(
        role="worker",
        warps=CSR_WARPS,
        start=(Instruction(Op.ISSUE, round(wait_cycles), 10),),
        begin=(
            Instruction(Op.ISSUE, issue=costs.whole("slots_per_row") // CSR_WARPS, when=When.FINAL),
            Instruction(Op.LOAD_INDEX, ahead, per_k16=True),
        ),
        step=(
            Instruction(Op.LOAD_B, block_n * element_bytes, tokens_per_lane, per_k16=True),
            Instruction(Op.LOAD_INDEX, ahead, per_k16=True, ahead=1),
            Instruction(Op.ISSUE, issue=other, per_k16=True),
            Instruction(Op.ISSUE, issue=max(convert, 1), per_k16=True),
            Instruction(Op.FMA, issue=tokens_per_lane, per_k16=True),
        ),
        # Other parts of a row add to it in L2, which is little beside what they read
        end=(Instruction(Op.STORE_C, out_bytes, 1, when=When.FINAL),),
        finish=(Instruction(Op.WAIT_LOAD),),
    )
    return (worker,)


def one_token_programs(
    element_bytes: int, costs: Costs, elements_of_rows: npt.NDArray[np.int64]
) -> tuple[WarpProgram, ...]:
    """Rows times a vector: elements stream from DRAM, and their products are added where a row ends.

    The vector is read element by element, from L1. Where the library gives a row to few threads, an element
    takes the longer the more its row has.

    Parameters
    ----------
    elements_of_rows : (rows,) kept
    """
    group = (INDEX_BYTES + element_bytes) * 16
    in_long_rows = round(16 * _one_token_slots(elements_of_rows, costs))
    waits = (Instruction(Op.ISSUE, issue=in_long_rows, per_k16=True),) if in_long_rows else ()
    worker = WarpProgram(
        role="worker",
        warps=1,
        begin=(
            Instruction(Op.ISSUE, issue=costs.whole("one_token_slots_per_row"), when=When.FINAL),
            Instruction(Op.LOAD_INDEX, group, per_k16=True),
        ),
        step=(
            Instruction(Op.LOAD_B, element_bytes, 1, per_k16=True),
            Instruction(Op.LOAD_INDEX, group, per_k16=True, ahead=1),
            *waits,
            Instruction(Op.FMA, issue=1, per_k16=True),
        ),
        end=(Instruction(Op.STORE_C, element_bytes, 1, when=When.FINAL),),
        finish=(Instruction(Op.WAIT_LOAD),),
    )
    return (worker,)


def _one_token_slots(elements_of_rows: npt.NDArray[np.int64], costs: Costs) -> float:
    """Mean issue slots of an element for the length of its row, rounded, so that programs are found again."""
    kept = elements_of_rows.astype(np.float64)
    long = kept > costs["one_token_long_row"]
    slope = np.where(long, costs["one_token_slots_in_long_row"], costs["one_token_slots_in_row"])
    beyond = np.maximum(kept - costs["one_token_short_row"], 0.0)
    return round(float((slope * beyond * kept).sum() / max(kept.sum(), 1.0)), 2)


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
