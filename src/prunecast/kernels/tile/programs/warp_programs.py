"""Warp programs for the configs of the tile kernels.

In the mma.sync kernels and the fp32 kernels on CUDA cores, eight equal warps copy and multiply. One block
barrier per step protects the stages: after it, all warps have read the stage of the previous step, which the
copies of this step overwrite. Slabs of B are copied like gathered rows, but without indices.
"""

from functools import lru_cache

from prunecast.errors import BadInput
from prunecast.kernels.tile.config import TileConfig
from prunecast.kernels.tile.programs.epilogue import copies, fix_up, sums_of_warp, write_c
from prunecast.kernels.tile.programs.gather import (
    INDEX_BYTES,
    PRODUCER_WARPS,
    gather_programs,
    wgmma_consumer,
)
from prunecast.plan.program import Charge, Code, Instruction, Op, WarpProgram

B_ACCESSES = ("gather", "dense_tile")
"""Values of `KernelPlan.b_access`: rows of B by index, or contiguous slabs of B."""


@lru_cache(maxsize=256)
def warp_programs(
    config: TileConfig,
    b_access: str,
    *,
    multicast: int = 1,
    item_in_memory: bool = False,
    scattered: bool = False,
) -> tuple[WarpProgram, ...]:
    """Return the warp programs of a block of `config`. The warps of all programs add up to the block's
    threads.

    Parameters
    ----------
    b_access : one of `B_ACCESSES`
    multicast : number of blocks of a cluster that share boxes of B (`dense_tile`) or weights (`gather`) by
        multicast; only wgmma kernels have more than one
    item_in_memory : blocks of a wgmma kernel that gathers load their item from global memory first
    scattered : most rows of the tiles are not contiguous in C

    Raises
    ------
    BadInput : unknown `b_access`, or multicast without wgmma
    """
    if b_access not in B_ACCESSES:
        raise BadInput(f"B access must be one of {', '.join(B_ACCESSES)}, got {b_access!r}")
    if multicast != 1 and config.tensor_path != "wgmma":
        raise BadInput(f"multicast {multicast} needs a wgmma kernel, got {config.tensor_path} {b_access}")
    if config.tensor_path == "wgmma":
        if b_access == "gather":
            return gather_programs(
                config, multicast=multicast, item_in_memory=item_in_memory, scattered=scattered
            )
        # B is loaded in TMA boxes, which `multicast` blocks share
        leave = (*fix_up(sums_of_warp(config)), *write_c(config))
        consumer = wgmma_consumer(config, begin=(Instruction(Op.ISSUE, issue=10),), end=leave)
        return (_boxer(config, multicast), consumer)
    if config.tensor_path == "mma":
        return _mma_programs(config, b_access)
    return _register_programs(config, b_access)


def _boxer(config: TileConfig, multicast: int) -> WarpProgram:
    """Return the program of the producer warps for dense tiles of B: one thread issues TMA loads, the other
    warps are idle.
    """
    row_bytes = config.tokens_copied * config.element_bytes
    return WarpProgram(
        role="producer",
        warps=PRODUCER_WARPS,
        start=(Instruction(Op.ISSUE, issue=20),),
        begin=(Instruction(Op.ISSUE, issue=10, leader=True),),
        step=(
            Instruction(Op.ISSUE, issue=6, leader=True),
            Instruction(Op.WAIT_EMPTY, leader=True),
            Instruction(Op.COPY_A, config.weight_bytes_per_k16, per_k16=True, leader=True),
            Instruction(Op.COPY_B, row_bytes, leader=True, multicast=multicast),
        ),
    )


MANY_SUMS = 64
"""Number of accumulators per lane from which on the fp32 kernel reads the operands of one column at a time.
Kind: CUDA source, `ffma_shape.cuh`."""
PART_WAITS = {64 * 64: "wide_part_wait", 32 * 32: "narrow_part_wait"}
"""Rows x tokens of a warp's part of C -> cost entry of the wait for operand reads, if registers hold two sets
of fragments. Kind: CUDA source, `mma_multiply.cuh`."""


def _mma_programs(config: TileConfig, b_access: str) -> tuple[WarpProgram, ...]:
    """Return the program whose cp.async copies are issued `stages` - 1 steps ahead."""
    stages = config.resources.stages
    walk = Instruction(Op.ISSUE, issue=0, charges=walk_of_step(config))
    step = (
        Instruction(Op.WAIT_FULL),
        Instruction(Op.SYNC),
        *_next_indices(config, b_access, ahead=stages),
        *((walk,) if b_access == "gather" else ()),
        *_copies(config, ahead=stages - 1),
        *_multiply(config),
    )
    return (_worker(config, b_access, fill=_copies(config, ahead=0), step=step),)


def walk_of_step(config: TileConfig) -> tuple[Charge, ...]:
    """Return the charges of a k-step for step records, column indices and addresses in a kernel that gathers
    B, in addition to copies, reads and products.

    The last step of an item costs the same, even if it has fewer columns.
    """
    k16 = config.shape.block_k // 16
    made = copies(_weights_per_warp(config) * k16) + _row_copies(config) * k16
    wait = PART_WAITS.get(config.part_m * config.part_n, "scarce_registers_wait")
    return (
        Charge("walk_instructions", field="issue"),
        Charge("walk_instructions_per_copy", made, "issue"),
        # No wait on CUDA cores: FMA instructions are issued while the next operands are read
        Charge(wait, float(config.tensor != "none")),
    )


def _register_programs(config: TileConfig, b_access: str) -> tuple[WarpProgram, ...]:
    """Return the program whose copies go through registers: loads before the products of a step, stores to
    shared memory after them.
    """
    step = (
        Instruction(Op.SYNC),
        *_copies(config, ahead=1, in_registers=True),
        *_next_indices(config, b_access, ahead=2),
        *_multiply(config),
        Instruction(Op.WAIT_LOAD),
        _store(config, ahead=1),
    )
    fill = (*_copies(config, ahead=0, in_registers=True), Instruction(Op.WAIT_LOAD), _store(config, ahead=0))
    return (_worker(config, b_access, fill=fill, step=step),)


def _worker(config: TileConfig, b_access: str, *, fill: Code, step: Code) -> WarpProgram:
    """Return the program of warps that both copy and multiply; `fill` is for the first pipeline stages."""
    return WarpProgram(
        role="worker",
        warps=config.consumer_warps,
        start=(Instruction(Op.ISSUE, issue=20),),
        begin=(Instruction(Op.ISSUE, issue=10), *_first_indices(config, b_access)),
        fill=fill,
        step=step,
        # C is transposed in the memory of the stages, so the next item's copies must wait for it
        end=(
            Instruction(Op.WAIT_MMA, 0),
            Instruction(Op.SYNC),
            *fix_up(sums_of_warp(config)),
            *write_c(config),
            Instruction(Op.SYNC),
        ),
    )


def _first_indices(config: TileConfig, b_access: str) -> Code:
    """Return the loads of column indices for all steps that are copied before the first prefetched indices
    arrive.
    """
    if b_access != "gather":
        return ()
    size = config.resources.stages * config.shape.block_k * INDEX_BYTES // config.consumer_warps
    return (Instruction(Op.LOAD_INDEX, size), Instruction(Op.WAIT_LOAD))


def _next_indices(config: TileConfig, b_access: str, *, ahead: int) -> Code:
    """Return the prefetch of the column indices `ahead` steps later, early enough to hide its latency."""
    if b_access != "gather":
        return ()
    return (Instruction(Op.LOAD_INDEX, 16 * INDEX_BYTES // config.consumer_warps, per_k16=True, ahead=ahead),)


def _copies(config: TileConfig, *, ahead: int, in_registers: bool = False) -> Code:
    """Return the copies of the weights and rows of B of a k-step, into shared memory or into registers.

    Rows of B are loaded into registers before weights. If they queued after the weights of all blocks, the
    blocks, which share rows of B, would run in lockstep.
    """
    weights, rows = _weights_per_warp(config), _row_copies(config)
    row_bytes = config.shape.block_n * config.element_bytes
    of_a, of_b = (Op.LOAD_A, Op.LOAD_B) if in_registers else (Op.COPY_A, Op.GATHER_B)
    found = (
        Instruction(of_a, weights, copies(weights), per_k16=True, ahead=ahead),
        Instruction(of_b, row_bytes, rows, per_k16=True, ahead=ahead),
    )
    addresses = Instruction(Op.ISSUE, issue=2 + rows, per_k16=True, ahead=ahead)
    return (addresses, *(reversed(found) if in_registers else found))


def _store(config: TileConfig, *, ahead: int) -> Instruction:
    size = (
        _weights_per_warp(config) + 16 * config.shape.block_n * config.element_bytes // config.consumer_warps
    )
    return Instruction(Op.SHARED, size, copies(size), per_k16=True, ahead=ahead)


def _multiply(config: TileConfig) -> Code:
    """Return the reads of operand fragments and their multiplication.

    mma.sync does not block the warp: the next fragments are read into a second set of registers while the
    tensor pipe multiplies the current ones. Therefore the instruction is MMA and not BLOCKING_MMA.
    """
    operands = config.operand_bytes_per_warp_per_k16
    fma, instructions = config.fma_per_warp_per_k16, config.instructions_per_k16
    if config.tensor == "none":
        # FMA instructions on CUDA cores need additional issue slots (fitted)
        besides = (Charge("fma_issue_share", instructions, "issue"),)
        products = Instruction(Op.FMA, issue=instructions, per_k16=True, charges=besides)
        return (*_column_reads(config), products)
    return (
        Instruction(Op.WAIT_MMA, 1),
        Instruction(Op.SHARED, operands, copies(operands), per_k16=True),
        Instruction(Op.MMA, fma, instructions, per_k16=True),
    )


def _column_reads(config: TileConfig) -> Code:
    """Return the reads of the operands of each column, for which a warp waits before it multiplies them.

    Lanes with many accumulators have no registers to prefetch the next column.
    """
    operands = config.operand_bytes_per_warp_per_k16
    reads = Instruction(Op.SHARED, operands, copies(operands), per_k16=True)
    if config.part_m * config.part_n < 32 * MANY_SUMS:
        return (reads,)
    waits = Charge("shared_latency_cycles", 16.0 - 1.0)
    return (reads, Instruction(Op.ISSUE, issue=0, per_k16=True, charges=(waits,)))


def _weights_per_warp(config: TileConfig) -> int:
    return config.weight_bytes_per_k16 // config.consumer_warps


def _row_copies(config: TileConfig) -> int:
    return copies(16 * config.shape.block_n * config.element_bytes // config.consumer_warps)
