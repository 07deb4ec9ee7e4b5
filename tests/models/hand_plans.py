"""Small plans built by hand, whose time can be reckoned on paper."""

import numpy as np

from prunecast.hardware.occupancy import BlockResources
from prunecast.patterns.tile_map import TileMap
from prunecast.plan.kernel_plan import BlockShape, KernelPlan, Schedule, WorkList
from prunecast.plan.program import Instruction, Op, WarpProgram, When

__all__ = ["SHAPE", "hand_plan", "one_role_programs", "tile_map", "two_role_programs"]

SHAPE = BlockShape(64, 64, 64)
"""64 rows x 64 tokens: 64 * 64 * 64 = 262,144 FMA and 8 KiB of A and of B (fp16) per k-step."""


def tile_map(kept: list[int], k: int, rows: int = 64) -> TileMap:
    """Tiles of `rows` rows; tile t keeps the first kept[t] columns."""
    columns = [np.arange(count) for count in kept]
    return TileMap(
        m=rows * len(kept),
        k=k,
        row_start=np.arange(len(kept) + 1) * rows,
        row_index=np.arange(rows * len(kept)),
        column_start=np.concatenate(([0], np.cumsum(kept))),
        column_index=np.concatenate(columns),
        pattern="by hand",
    )


def two_role_programs() -> tuple[WarpProgram, ...]:
    """One warp that copies, four that multiply; one instruction of each kind, so that sums stay short."""
    producer = WarpProgram(
        role="producer",
        warps=1,
        step=(
            Instruction(Op.WAIT_EMPTY),
            Instruction(Op.COPY_A, 2048, per_k16=True),
            Instruction(Op.GATHER_B, 128),
        ),
    )
    consumer = WarpProgram(
        role="consumer",
        warps=4,
        step=(
            Instruction(Op.WAIT_FULL),
            Instruction(Op.MMA, 16384, per_k16=True, operand_bytes=1024),
            Instruction(Op.WAIT_MMA, 1),
            Instruction(Op.RELEASE, 1),
        ),
        end=(
            Instruction(Op.WAIT_MMA, 0),
            Instruction(Op.RELEASE, 0),
            *_fix_up(),
            Instruction(Op.STORE_C, 2048, when=When.FINAL),
        ),
    )
    return (producer, consumer)


def _fix_up() -> tuple[Instruction, ...]:
    return (
        Instruction(Op.STORE_PARTIAL, 4096, when=When.PARTIAL),
        Instruction(Op.WAIT_PARTS, when=When.OWNER),
        Instruction(Op.LOAD_PARTIALS, 4096, when=When.OWNER),
        Instruction(Op.WAIT_LOAD, when=When.OWNER),
    )


def one_role_programs(stages: int) -> tuple[WarpProgram, ...]:
    """Four warps that copy `stages` - 1 steps ahead and multiply."""

    def copies(ahead: int) -> tuple[Instruction, ...]:
        return (
            Instruction(Op.COPY_A, 512, per_k16=True, ahead=ahead),
            Instruction(Op.GATHER_B, 128, ahead=ahead),
        )

    worker = WarpProgram(
        role="worker",
        warps=4,
        fill=copies(0),
        step=(
            Instruction(Op.WAIT_FULL),
            Instruction(Op.SYNC),
            *copies(stages - 1),
            Instruction(Op.BLOCKING_MMA, 16384, per_k16=True),
        ),
        end=(*_fix_up(), Instruction(Op.STORE_C, 2048, when=When.FINAL)),
    )
    return (worker,)


def hand_plan(
    kept: list[int],
    tokens: int,
    *,
    k: int | None = None,
    schedule: Schedule = Schedule.HARDWARE,
    block_start: list[int] | None = None,
    stages: int = 4,
    programs: tuple[WarpProgram, ...] | None = None,
    shared_bytes: int = 70_000,
    rows: int = 64,
) -> KernelPlan:
    """One item for each tile and 64 tokens, all tiles of the first token range first.

    block_start : items of each block, for Schedule.STATIC; one block per item unless told
    """
    tiles = tile_map(kept, k or max(kept), rows)
    ranges = -(-tokens // 64)
    tile = np.tile(np.arange(len(kept)), ranges)
    start = np.repeat(np.arange(ranges) * 64, len(kept))
    items, zeros, ones = tile.size, np.zeros(tile.size), np.ones(tile.size)
    starts = np.arange(items + 1) if block_start is None else np.array(block_start)
    work = WorkList(
        block_start=starts,
        tile=tile,
        token_start=start,
        token_stop=np.minimum(start + 64, tokens),
        k_start=zeros,
        k_stop=np.array(kept)[tile],
        group=zeros - 1,
        part=zeros,
        parts=ones,
        owner=ones,
    )
    programs = programs or two_role_programs()
    threads = 32 * sum(program.warps for program in programs)
    return KernelPlan(
        kernel="stspmm",
        n=tokens,
        dtype="fp16",
        tiles=tiles,
        work=work,
        schedule=schedule,
        blocks=starts.size - 1,
        shape=SHAPE,
        resources=BlockResources(threads, 64, shared_bytes, stages),
        programs=programs,
        tensor="wgmma",
    )
