"""Warp programs of the CSR kernel: the warps of a block share its elements and tokens, on CUDA cores."""

from prunecast.kernels.program import Instruction, Op, WarpProgram, When

__all__ = [
    "CSR_WARPS",
    "SLOTS_PER_ELEMENT",
    "TAIL",
    "chain_cycles",
    "csr_programs",
    "slots_per_element",
]

CSR_WARPS = 16
INDEX_AND_VALUE_BYTES = 8
SLOTS_PER_ELEMENT = {32: 43.0, 64: 47.0, 128: 56.0}
"""Issue slots of an SM for one kept element, by the tokens of a block, fitted to 252 products: cuSPARSE's
code is not public. Own measurement, H200, 2026-11-22: with 1,024 columns a block of 96 elements adds 0.51 us
to an SM that has many with 16 tokens and 0.62 with 128. Warps whose tokens are beyond the last still go
through the elements."""
SAVED_IN_L1 = 7.0
"""Of these slots for 128 tokens, if L1 keeps all rows of B: fitted with them."""
SLOTS_PER_ROW = 224
"""Of an SM for a row, which no chain hides, in the launch before too: 196,608 rows of 4 elements take 83 us
with 16 tokens, 1,536 of 512 elements 40."""
CHAIN_CYCLES, ROW_CHAIN_CYCLES, L2_CHAIN_CYCLES = 7300, 900, 9400
"""From a warp's first instruction to its last: that its 24 elements take one after another; for each of its
rows of 128 tokens, whose sums are added to C; and where L2 has all rows of B instead of L1. Fitted as the
slots: one block to an SM and ten take the same time within 1 us."""
TAIL = 0.6
"""Of a chain, how much longer than their work SMs take where blocks follow others: those that end last have
fewer and fewer beside them. 1,280 blocks with 16 tokens take 10.9 us, 1,323 take 13.3: 1,320 are resident."""


def chain_cycles(rows: float, share_in_l1: float, block_n: int) -> float:
    """What a warp that has `rows` rows takes, which lone blocks take too."""
    in_rows = rows * ROW_CHAIN_CYCLES if block_n == 128 else 0.0
    return CHAIN_CYCLES + in_rows + L2_CHAIN_CYCLES * (1.0 - share_in_l1)


def slots_per_element(block_n: int, share_in_l1: float) -> float:
    """Of an SM; only 128 tokens fill so much of L1 that it matters."""
    return SLOTS_PER_ELEMENT[block_n] - (SAVED_IN_L1 * share_in_l1 if block_n == 128 else 0.0)


def csr_programs(
    block_n: int,
    element_bytes: int,
    elements_per_group: float = 16.0,
    slots: float | None = None,
    wait_cycles: float = 0.0,
) -> tuple[WarpProgram, ...]:
    """Rows of B are read for one row of A alone and never shared.

    Indices, values and rows of B are loaded ahead, over the ends of rows of A: the slots, which are fitted,
    have whatever they are waited for.

    Parameters
    ----------
    block_n : tokens of a block, one of `SLOTS_PER_ELEMENT`
    elements_per_group : that a group of 16 columns has on average, at most 16: the kernel takes elements one
        by one, while these programs take rows in whole groups
    slots : for an element, those of `block_n` tokens if None
    wait_cycles : by which an SM's warps take longer than they issue. It stands at the start, so that all of
        them wait at once
    """
    tokens_per_lane = block_n // 32
    ahead = INDEX_AND_VALUE_BYTES * 16 // CSR_WARPS
    convert = tokens_per_lane if element_bytes < 4 else 0
    # Beside the load of B, that of indices, the conversion and the FMA: addresses, shuffles, bounds
    whole = round((SLOTS_PER_ELEMENT[block_n] if slots is None else slots) * elements_per_group / 16)
    other = max(whole - 2 * tokens_per_lane - max(convert, 1) - 1, 1)
    out_bytes = block_n * element_bytes // CSR_WARPS
    worker = WarpProgram(
        role="worker",
        warps=CSR_WARPS,
        start=(Instruction(Op.ISSUE, round(wait_cycles), 10),),
        begin=(
            Instruction(Op.ISSUE, issue=SLOTS_PER_ROW // CSR_WARPS, when=When.FINAL),
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
