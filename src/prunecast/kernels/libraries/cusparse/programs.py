"""Warp programs of the CSR kernel: the warps of a block share its elements and tokens, on CUDA cores."""

from prunecast.hardware.costs import Costs
from prunecast.plan.program import Instruction, Op, WarpProgram, When

__all__ = ["CSR_WARPS", "csr_programs", "one_token_programs"]

CSR_WARPS = 16
INDEX_BYTES = 4
"""Bytes of a column's index. Kind: definition, CSR with 32-bit indices."""


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


def one_token_programs(element_bytes: int, costs: Costs) -> tuple[WarpProgram, ...]:
    """Rows times a vector: elements stream from DRAM, and their products are added where a row ends.

    The vector is read element by element, from L1.
    """
    group = (INDEX_BYTES + element_bytes) * 16
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
            Instruction(Op.FMA, issue=1, per_k16=True),
        ),
        end=(Instruction(Op.STORE_C, element_bytes, 1, when=When.FINAL),),
        finish=(Instruction(Op.WAIT_LOAD),),
    )
    return (worker,)
