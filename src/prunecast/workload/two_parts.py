"""`two-part`: tiles on tensor cores, the remaining weights on CUDA cores, and the split between them.

Some patterns keep whole columns of tiles and in addition single elements, and need both parts (TEW of Guo et
al., SC'20; dense blocks and leftovers of Rumi et al., PACT'20). The tiles write all of C. The remainder then
reads the rows of C to which it contributes, adds, and writes them back. The two launches follow each other on
a stream.

All splits keep the same weights. They differ in which columns of a tile are multiplied densely. The
closed-form model ranks them: a remainder is slow per element, and a dense column with few kept elements
wastes tensor-core work. For dense blocks, the pruner compares predicted times of splits itself
(`patterns.dense_block_pattern.cheaper_parts`).
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from prunecast.choice import SEARCHED, PrunedMap, fastest_plan
from prunecast.hardware import GpuSpec
from prunecast.kernels import DTYPE_BYTES, KERNELS, KernelPlan, plan_csr
from prunecast.patterns import NestedMap, TileMap, parse_pattern
from prunecast.patterns.dense_block_pattern import cheaper_parts
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.tile_element import TwoParts, split_parts
from prunecast.plan.assignment import take_items
from prunecast.plan.program import Instruction, Op, WarpProgram
from prunecast.workload.engines import Engine

HEIGHT = 128
"""Rows of a tile if the pattern has no height."""

LEAST_SHARES = (1.0, 0.5, 0.25, 0.1, 0.03, 0.0)
"""Candidate thresholds: a column of a tile is multiplied densely if at least this fraction of the tile's rows
keeps its element in the column."""


def plan_in_two(
    parts: TwoParts, n: int, dtype: str, gpu: GpuSpec, *, most: int | None = None
) -> tuple[KernelPlan, ...]:
    """Return the launches of both parts, in order. A part that keeps nothing has no launch.

    The tiles have the config that is fastest in the closed-form model. Without tiles, the remainder writes C
    itself.

    Parameters
    ----------
    most : upper limit of the number of configs that are planned for the tiles; None for no limit

    Raises
    ------
    BadInput : n below 1, or a dtype that the GPU does not compute in; PlanDoesNotFit if no block fits
    """
    rest = [plan_csr(parts.rest, n, dtype, gpu)] if parts.rest.kept_count > 0 else []
    if rest and not parts.tiles.column_index.size:
        return tuple(rest)
    tiles = fastest_plan("stspmm", parts.tiles, n, dtype, gpu, most=most)
    return (tiles, *map(_adding, rest))


def _adding(plan: KernelPlan) -> KernelPlan:
    """Return the launch of the second part, which adds to C and contains only the rows with kept weights."""
    programs = tuple(_reading_c(program, DTYPE_BYTES[plan.dtype]) for program in plan.programs)
    busy = plan.work.k_stop > plan.work.k_start
    before = np.concatenate(([0], np.cumsum(busy))).astype(np.int32)
    work = take_items(plan.work, np.flatnonzero(busy))._replace(block_start=before[plan.work.block_start])
    return replace(plan, programs=programs, work=work)


def _reading_c(program: WarpProgram, element_bytes: int) -> WarpProgram:
    """Return the program with a load of C before each store of C.

    L2 holds C, since the tiles just wrote it.
    """
    end: list[Instruction] = []
    for instruction in program.end:
        if instruction.op is Op.STORE_C:
            sums = -(-instruction.amount // (32 * element_bytes))
            end += [
                Instruction(Op.LOAD_INDEX, instruction.amount, instruction.issue, when=instruction.when),
                Instruction(Op.WAIT_LOAD, when=instruction.when),
                Instruction(Op.ISSUE, issue=sums, when=instruction.when),
            ]
        end.append(instruction)
    return replace(program, end=tuple(end))


def launches_in_two(kept: PrunedMap | TwoParts, n: int, dtype: str, engine: Engine) -> tuple[KernelPlan, ...]:
    """Return the launches of the fastest split of the kept weights; parts that are already split stay.

    Parameters
    ----------
    kept : pruned map, or parts that are already split. Tiles have the height of the map's pattern, or
        `HEIGHT` if the pattern has no height
    n, dtype : tokens and format
    engine : ranks the splits by closed-form estimates

    Raises
    ------
    BadInput : in the same cases as `plan_in_two`
    """
    if isinstance(kept, TwoParts):
        return plan_in_two(kept, n, dtype, engine.gpu)
    if isinstance(kept, TileMap):
        return (fastest_plan("stspmm", kept, n, dtype, engine.gpu),)
    # Single elements can go to either part: compare several thresholds with the closed-form model.
    elements = kept.inner if isinstance(kept, NestedMap) else kept
    height = min(parse_pattern(elements.pattern).parameters.get("height", HEIGHT), elements.m)
    splits = [split_parts(elements, height=height, least_share=share) for share in LEAST_SHARES]
    plans = [plan_in_two(parts, n, dtype, engine.gpu, most=SEARCHED) for parts in splits]
    return min(plans, key=engine.estimated_seconds)


def blocks_in_two(
    importance: ImportanceArray, sparsity: float, counts: Sequence[int], n: int, dtype: str, engine: Engine
) -> TwoParts:
    """Return the dense blocks and the sparse remainder that retain the most importance per predicted time.

    Parameters
    ----------
    importance : (M, K)
    sparsity : fraction of elements that both parts together prune
    counts : numbers of dense blocks to try
    n, dtype : tokens and format
    engine : predicts the time of the launches of both parts with the closed form
    """

    def seconds(parts: TwoParts) -> float:
        launches = plan_in_two(parts, n, dtype, engine.gpu, most=SEARCHED)
        return engine.estimated_seconds(launches)

    return cheaper_parts(importance, sparsity, seconds, counts=counts)


def remainder_note(launches: tuple[KernelPlan, ...], kept: PrunedMap | TwoParts) -> str:
    """Return a note with the fraction of the kept weights that the sparse kernel runs."""
    rest = sum(plan.density for plan in launches if KERNELS[plan.kernel].runs_any_mask)
    return f"two-part: {rest / kept.density:.1%} of the kept weights in the sparse remainder"
