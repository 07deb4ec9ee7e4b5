"""Warp programs of the CSR kernel: the warps of a block share its elements and tokens, on CUDA cores."""

from prunecast.kernels.program import Instruction, Op, WarpProgram

__all__ = ["CSR_WARPS", "SLOTS_PER_ELEMENT", "csr_programs"]

CSR_WARPS = 16
INDEX_AND_VALUE_BYTES = 8
SLOTS_PER_ELEMENT = {32: 46, 64: 52, 128: 58}
"""Issue slots of all warps of a block for one kept element, by the tokens of the block, fitted to 106
products: cuSPARSE's code is not public. Own measurement, H200, 2026-11-21: a block of 1,024 elements takes
5.4 to 6.4 us with 8 to 32 tokens, 6.2 with 64 and 7.2 with 128. So a warp whose tokens are beyond the last
still goes through the elements, for three quarters of what one with tokens takes."""
SAVED_IN_L1 = 1.5
"""Of these slots, for each 32 tokens, if L1 keeps all rows of B: of products of 128 tokens and more a block
takes 6.7 to 6.9 us with 1,024 to 1,280 columns and 7.2 to 7.4 with 3,072 to 5,120. Fitted with them."""
SLOTS_PER_ROW = 2
"""Of each warp, before a row's elements: of rows of 10 elements instead of 50 each costs 9 to 18 cycles."""


def csr_programs(
    block_n: int, element_bytes: int, elements_per_group: float = 16.0, share_in_l1: float = 0.0
) -> tuple[WarpProgram, ...]:
    """Rows of B are read for one row of A alone and never shared.

    Indices, values and rows of B are loaded ahead, over the ends of rows of A: the slots, which are fitted,
    have whatever they are waited for.

    Parameters
    ----------
    block_n : tokens of a block, one of `SLOTS_PER_ELEMENT`
    elements_per_group : that a group of 16 columns has on average, at most 16: the kernel takes elements one
        by one, while these programs take rows in whole groups
    share_in_l1 : of the rows of B
    """
    tokens_per_lane = block_n // 32
    ahead = INDEX_AND_VALUE_BYTES * 16 // CSR_WARPS
    convert = tokens_per_lane if element_bytes < 4 else 0
    # Beside the load of B, that of indices, the conversion and the FMA: addresses, shuffles, bounds
    slots = SLOTS_PER_ELEMENT[block_n] - SAVED_IN_L1 * tokens_per_lane * share_in_l1
    slots = round(slots * elements_per_group / 16)
    other = max(slots - 2 * tokens_per_lane - max(convert, 1) - 1, 1)
    out_bytes = block_n * element_bytes // CSR_WARPS
    worker = WarpProgram(
        role="worker",
        warps=CSR_WARPS,
        start=(Instruction(Op.ISSUE, issue=10),),
        begin=(
            Instruction(Op.ISSUE, issue=SLOTS_PER_ROW),
            Instruction(Op.LOAD_INDEX, ahead, per_k16=True),
        ),
        step=(
            Instruction(Op.LOAD_B, block_n * element_bytes, tokens_per_lane, per_k16=True),
            Instruction(Op.LOAD_INDEX, ahead, per_k16=True, ahead=1),
            Instruction(Op.ISSUE, issue=other, per_k16=True),
            Instruction(Op.ISSUE, issue=max(convert, 1), per_k16=True),
            Instruction(Op.FMA, issue=tokens_per_lane, per_k16=True),
        ),
        end=(Instruction(Op.STORE_C, out_bytes, 1),),
        finish=(Instruction(Op.WAIT_LOAD),),
    )
    return (worker,)
