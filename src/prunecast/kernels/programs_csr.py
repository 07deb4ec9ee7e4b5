"""Warp programs of the CSR kernel: four warps multiply one row of A with their tokens on CUDA cores."""

from prunecast.kernels.program import Instruction, Op, WarpProgram

__all__ = ["CSR_WARPS", "csr_programs"]

CSR_WARPS = 4
INDEX_AND_VALUE_BYTES = 8
SLOTS_PER_ELEMENT = 12
"""Issue slots of a warp for one kept element and 32 tokens, fitted: cuSPARSE's code is not public. Own
measurement, H200, 2026-11-20: of the fit cases, the four of 512 to 2048 tokens that take over 80 us say 13,
the two of 16 tokens over 50 us say 10 to 11."""


def csr_programs(block_n: int, element_bytes: int) -> tuple[WarpProgram, ...]:
    """Each lane holds `block_n` / 128 sums; rows of B are read for this row of A alone and never shared.

    Indices and values are loaded one step ahead and handed round the warp by shuffles, one for each.
    """
    tokens_per_lane = block_n // (32 * CSR_WARPS)
    ahead = INDEX_AND_VALUE_BYTES * 16 // CSR_WARPS
    # Beside the load of B, the conversion and the FMA: addresses, shuffles, bounds
    other = 16 * (SLOTS_PER_ELEMENT * tokens_per_lane - 1) - 2 * 16 * tokens_per_lane
    convert = 16 * tokens_per_lane if element_bytes < 4 else 0
    out_bytes = block_n * element_bytes // CSR_WARPS
    worker = WarpProgram(
        role="worker",
        warps=CSR_WARPS,
        start=(Instruction(Op.ISSUE, issue=10),),
        begin=(
            Instruction(Op.ISSUE, issue=10),
            Instruction(Op.LOAD_INDEX, ahead, per_k16=True),
            Instruction(Op.WAIT_LOAD),
        ),
        step=(
            Instruction(Op.ISSUE, issue=other, per_k16=True),
            Instruction(Op.LOAD_B, block_n * element_bytes, 16, per_k16=True),
            Instruction(Op.LOAD_INDEX, ahead, per_k16=True, ahead=1),
            Instruction(Op.WAIT_LOAD),
            Instruction(Op.ISSUE, issue=max(convert, 1), per_k16=True),
            Instruction(Op.FMA, issue=16 * tokens_per_lane, per_k16=True),
        ),
        end=(
            Instruction(Op.ISSUE, issue=tokens_per_lane),
            Instruction(Op.STORE_C, out_bytes, 1),
        ),
    )
    return (worker,)
