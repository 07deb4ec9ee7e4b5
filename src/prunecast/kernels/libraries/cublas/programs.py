"""Warp programs of the vendor's dense kernel: the tile kernel that reads boxes, and what differs."""

from dataclasses import replace

from prunecast.kernels.libraries.cublas.forms import MOST_TILE_ALONE
from prunecast.kernels.tile.config import CONSUMER_WARPGROUPS, TileConfig, wgmma_use
from prunecast.kernels.tile.programs.warp_programs import warp_programs
from prunecast.plan.program import Code, Instruction, Op, WarpProgram, When

__all__ = ["GROUP_CYCLES", "dense_programs", "group_cycles", "operand_bytes"]

HIDDEN_WRITES = 2 / 3
"""Share of what bulk copies write into shared memory that costs the tensor cores' reads nothing: an own
measurement (H200, 2026-11-20), a step of 256 x 128 of the 2:4 kernel with 80 KB of reads and 34 KB of writes
takes 736 cycles, where all of it would take 912 at 128 bytes a cycle."""


SHARED_BYTES_PER_CLK, FMA_BYTES_PER_CLK = 128, 4096
"""Of sm_90, the only architecture whose kernels these are; FMA by the bytes of an element."""
GROUP_CYCLES = 100
"""Between the products of one step and of the next where two warpgroups share a tile, beside the latency of a
single instruction: a group of four takes 64 to 120 cycles longer beyond the pipe than one or two (own
measurement, H200, 2026-11-20). A warpgroup that has the tile to itself is no slower than that latency says:
steps of 64 x 64 take 174 cycles from 4 to 96 of them, of 64 x 32 160."""


def operand_bytes(config: TileConfig) -> int:
    """Shared memory that one multiplying warp reads for 16 columns, less the writes that cost nothing.

    Where one warpgroup multiplies all of a tile it reads each operand once; two that share it read one twice.
    """
    reads = config.operand_bytes_per_warp_per_k16
    if config.tensor_path != "wgmma":
        return reads
    alone = _alone_bytes(config)
    reads = reads if alone is None else min(reads, alone)
    hidden = int(HIDDEN_WRITES * config.share_bytes_per_k16 / config.consumer_warps)
    return max(reads - hidden, 0)


def _alone_bytes(config: TileConfig) -> int | None:
    """The same for one warpgroup with all of the tile, spread over all that multiply; None if none can."""
    block_m, block_n, _ = config.shape
    if block_m * block_n > MOST_TILE_ALONE:
        return None
    use = wgmma_use(block_m, block_n, config.element_bytes, sparse=False)
    return use.operand_bytes // config.consumer_warps if use else None


def dense_programs(
    config: TileConfig,
    *,
    weights_shared: int,
    tokens_shared: int,
    start_cycles: int = 0,
    line_cycles: int = 0,
) -> tuple[WarpProgram, ...]:
    """What the warps of a block do.

    Parameters
    ----------
    weights_shared, tokens_shared : so many blocks share one read of the weights, and of the tokens
    start_cycles : of the warp that copies before its first copy, see `dense_start`
    line_cycles : of a k-step of one token, while L2 serves its line to other clusters
    """
    programs = warp_programs(config, "dense_tile", multicast=tokens_shared)
    if config.warpgroups < CONSUMER_WARPGROUPS:
        programs = tuple(_with_idle(program, config) for program in programs)
    programs = tuple(replace(program, end=_alone(program.end)) for program in programs)
    if config.tensor_path != "wgmma":
        return programs
    programs = tuple(_as_measured(p, config, weights_shared, start_cycles) for p in programs)
    if line_cycles == 0:
        return programs
    wait = Instruction(Op.ISSUE, line_cycles, leader=True)
    return tuple(p if p.end else replace(p, step=(*p.step, wait)) for p in programs)


def group_cycles(config: TileConfig) -> int:
    """Cycles between a warpgroup's products of a step and the next one's that latency and pipe do not have.

    Instructions of fewer than 64 columns take longer to read their operands than to multiply them.
    """
    if config.warpgroups == CONSUMER_WARPGROUPS:
        return GROUP_CYCLES
    k16 = config.shape.block_k // 16
    reads = (_alone_bytes(config) or 0) * config.consumer_warps / SHARED_BYTES_PER_CLK
    rate = FMA_BYTES_PER_CLK / config.element_bytes
    products = config.fma_per_warp_per_k16 * config.consumer_warps / rate
    return max(round(k16 * (reads - products)), 0)


def _with_idle(program: WarpProgram, config: TileConfig) -> WarpProgram:
    """The other warpgroup waits for a tile of its own, which does not come: it stands by with the copier."""
    idle = 4 * (CONSUMER_WARPGROUPS - config.warpgroups)
    return program if program.end else replace(program, warps=program.warps + idle)


def _alone(end: Code) -> Code:
    """Parts along K write their sums and are done, without a signal: a second kernel adds them up. All layers
    share the library's workspace, which L2 keeps.
    """
    return tuple(
        i._replace(posted=True, whole=False) if i.op is Op.STORE_PARTIAL else i
        for i in end
        if i.when is not When.OWNER
    )


def _as_measured(program: WarpProgram, config: TileConfig, weights_shared: int, start: int) -> WarpProgram:
    """Both warpgroups write C through the same memory and so wait for one another before they do."""
    step = tuple(_changed(i, config, weights_shared) for i in program.step)
    if not program.end:
        return replace(program, step=step, start=(Instruction(Op.ISSUE, start, 20),))
    wait = next(i for i, instruction in enumerate(program.end) if instruction.op is Op.WAIT_MMA)
    together = (
        *program.end[: wait + 1],
        Instruction(Op.SYNC),
        *program.end[wait + 1 :],
        Instruction(Op.SYNC),
    )
    return replace(program, step=step, end=together)


def _changed(instruction: Instruction, config: TileConfig, weights_shared: int) -> Instruction:
    if instruction.op is Op.MMA:
        return instruction._replace(operand_bytes=operand_bytes(config))
    if instruction.op is Op.COPY_A:
        return instruction._replace(multicast=weights_shared)
    if instruction.op is Op.ISSUE and not instruction.leader:
        return instruction._replace(amount=group_cycles(config))
    return instruction
