"""Warp programs of the CSR kernel, whose warps multiply on CUDA cores.

The warps of a block share its elements and tokens. `costs/sm_*.toml` contains the cost of an element on an SM
and the latencies of a cuSPARSE warp.
"""

import math
from functools import cache

import numpy as np
import numpy.typing as npt

from prunecast.hardware.costs import Costs, load_costs
from prunecast.plan.program import Instruction, Op, WarpProgram, When

CSR_WARPS = 16
"""Warps of the model's block, which represents all CTAs of an SM. Kind: choice, four per scheduler."""
INDEX_BYTES = 4
"""Bytes of a column's index. Kind: definition, CSR with 32-bit indices."""
WIDTHS = (32, 64, 128)
"""Tokens of a CTA. Kind: choice, the widths for which `slots_per_element_*` were fitted."""


def csr_programs(
    block_n: int,
    element_bytes: int,
    elements_per_group: float,
    slots: float,
    wait_cycles: float,
    costs: Costs,
) -> tuple[WarpProgram, ...]:
    """Return the warp program for several tokens; a row of B is read again for every row of A.

    Indices, values and rows of B are prefetched, also across the ends of rows of A. The fitted issue slots
    include the time that warps wait for these loads.

    Parameters
    ----------
    block_n : tokens of a CTA, one of `WIDTHS`
    element_bytes : size of an element of B and C
    elements_per_group : mean number of elements in a group of 16 columns, at most 16: the library processes
        single elements, while these programs process rows in whole groups
    slots : issue slots per element
    wait_cycles : cycles by which the time of an SM exceeds its issue time. The program charges them at the
        start, so that all warps wait at the same time
    """
    tokens_per_lane = block_n // 32
    ahead = (INDEX_BYTES + element_bytes) * 16 // CSR_WARPS
    convert = tokens_per_lane if element_bytes < 4 else 0
    # All instructions other than loads of B and indices, conversion and FMA: addresses, shuffles, bounds
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
        # Other parts of a row add to it in L2; this traffic is negligible compared with their reads
        end=(Instruction(Op.STORE_C, out_bytes, 1, when=When.FINAL),),
        finish=(Instruction(Op.WAIT_LOAD),),
    )
    return (worker,)


def one_token_programs(
    element_bytes: int, costs: Costs, elements_of_rows: npt.NDArray[np.int64]
) -> tuple[WarpProgram, ...]:
    """Return the warp program for one token (a matrix-vector product).

    The elements of A stream from DRAM, and the products of a row are added at its end. The vector is read
    element by element from L1. If the library assigns a row to few threads, the time per element increases
    with the length of the row.

    Parameters
    ----------
    element_bytes : size of an element of B and C
    elements_of_rows : (rows,) number of kept elements of each row
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
    """Return the mean issue slots per element due to row lengths, rounded so that programs are cached."""
    kept = elements_of_rows.astype(np.float64)
    long = kept > costs["one_token_long_row"]
    slope = np.where(long, costs["one_token_slots_in_long_row"], costs["one_token_slots_in_row"])
    beyond = np.maximum(kept - costs["one_token_short_row"], 0.0)
    return round(float((slope * beyond * kept).sum() / max(kept.sum(), 1.0)), 2)


@cache
def cusparse_costs(compute_capability: int) -> Costs:
    """Return the fitted costs of cuSPARSE's kernels, from `costs/sm_*.toml`."""
    return load_costs(__package__, compute_capability)


def width(tokens: int) -> int:
    """Return the number of tokens of a CTA, one of `WIDTHS`, for a product or token range of `tokens`."""
    return min(width for width in WIDTHS if width >= min(tokens, WIDTHS[-1]))


def missed_share(elements: float, columns: int, row_bytes: int, l1_bytes: int) -> float:
    """Return the fraction of reads of B's rows that miss L1.

    Parameters
    ----------
    elements : number of elements that an SM processes in one token range; columns are assumed random
    columns : number of columns of the matrix, which is the number of rows of B
    row_bytes : bytes of a row of B, for the tokens of a CTA
    l1_bytes : bytes of L1 that are available for rows of B
    """
    kept = min(l1_bytes / row_bytes, columns)
    # Misses fill L1; once it is full, the fraction of rows that it holds is constant
    filled_after = -columns * math.log1p(-kept / columns) if kept < columns else math.inf
    if elements <= filled_after:
        return -columns * math.expm1(-elements / columns) / elements
    return (kept + (elements - filled_after) * (1.0 - kept / columns)) / elements


def missed_after(elements: float, columns: int, row_bytes: int, l1_bytes: int) -> float:
    """Return the fraction of reads of B's rows that miss L1 after an SM has processed `elements` elements.

    The parameters are those of `missed_share`.
    """
    return max(math.exp(-elements / columns), 1.0 - min(l1_bytes / row_bytes / columns, 1.0))


def odd_slots(n: int, costs: Costs) -> float:
    """Return the extra issue slots per element for an odd number of tokens; 0 for an even number.

    With an odd number of tokens, rows are only aligned to single elements.
    """
    return costs["odd_slots"] + costs["odd_slots_tokens"] / min(n, WIDTHS[-1]) if n % 2 else 0.0


def meeting_cycles(
    elements_of_rows: npt.NDArray[np.int64], n: int, elements_of_warp: int, costs: Costs
) -> float:
    """Return the delay in cycles because several warps add to the same row of C by compare-and-swap.

    It is 0 for one token and for an even number of tokens.

    Parameters
    ----------
    elements_of_rows : (rows,) number of kept elements of each row
    n : number of tokens
    elements_of_warp : number of elements that a warp processes
    """
    if n % 2 == 0 or n == 1:
        return 0.0
    meeting = np.maximum(elements_of_rows / elements_of_warp - costs["apart_warps"], 0.0)
    ranges, tokens = -(-n // WIDTHS[-1]), min(n, WIDTHS[-1])
    return float(ranges * costs["meeting_cycles"] / math.sqrt(tokens) * (meeting**2).sum())


def chain_cycles(rows: float, missed: float, block_n: int, costs: Costs) -> float:
    """Return the latency in cycles of the chain of dependent loads of a warp.

    Parameters
    ----------
    rows : number of rows that the warp processes
    missed : fraction of reads of B that miss L1
    block_n : tokens of a CTA, one of `WIDTHS`
    """
    in_rows = rows * costs["row_chain_cycles"] if block_n == WIDTHS[-1] else 0.0
    from_l2 = costs["missed_chain_cycles"] - costs["chain_cycles"]
    return costs["chain_cycles"] + in_rows + from_l2 * missed
