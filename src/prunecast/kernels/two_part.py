"""Two launches for one layer: tiles on tensor cores, and what is left over added by CUDA cores.

The mixes that keep whole segments of tiles and single elements besides (TEW of Guo et al., SC'20; dense
blocks and leftovers of Rumi et al., PACT'20) need both. The tiles write C, all of it; the remainder reads the
rows of C that it has something for, adds, and writes them back. One follows the other on a stream.

Where an element map is all that is known, a line has to be drawn: a segment (column of a tile) of which
enough rows keep something is multiplied as a whole, zeros included; of the others the elements are the
remainder.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from prunecast.errors import BadInput
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.kernel import Kernel
from prunecast.kernels.libraries.cusparse.kernel import plan_csr
from prunecast.patterns.cut import piece_sizes, piece_starts
from prunecast.patterns.element_map import ElementMap, element_map_from_mask
from prunecast.patterns.tile_map import MaskArray, TileMap
from prunecast.patterns.tiling import tile_map_from_mask
from prunecast.plan.kernel_plan import DTYPE_BYTES, KernelPlan
from prunecast.plan.program import Instruction, Op, WarpProgram
from prunecast.plan.work_items import take_items

TWO_PART = Kernel(
    name="two-part",
    meaning="tiles first, and the best of what they removed as single weights",
    takes=ElementMap,
    natural_pattern="tile-element:128",
    families=("dense-block", "tile-element"),
    on_request=True,
    parts=("stspmm", "csr"),
)


class TwoParts(NamedTuple):
    """What a layer keeps: every kept element lies in a tile or in the remainder, none in both."""

    tiles: TileMap
    """May hold elements that are not kept; their weights are zeros."""
    rest: ElementMap

    @property
    def m(self) -> int:
        """Rows of A."""
        return self.tiles.m

    @property
    def k(self) -> int:
        """Columns of A."""
        return self.tiles.k

    @property
    def pattern(self) -> str:
        """Canonical pattern string of what is kept."""
        return self.tiles.pattern

    @property
    def density(self) -> float:
        """Elements of both parts over M * K."""
        return self.tiles.density + self.rest.density


class TwoPartPlan(NamedTuple):
    """One or two launches, in order."""

    tiles: KernelPlan | None
    """None where no tile keeps anything and the remainder writes C itself."""
    rest: KernelPlan | None
    """None where nothing is left over."""

    @property
    def launches(self) -> tuple[KernelPlan, ...]:
        """The plans that there are; at least one."""
        return tuple(plan for plan in self if plan is not None)


def split_parts(kept: ElementMap, *, height: int, least_share: float) -> TwoParts:
    """Draw the line between tiles and remainder.

    Parameters
    ----------
    kept : elements of A (M, K)
    height : consecutive rows of a tile, the last one possibly fewer
    least_share : of the rows of a tile that must keep an element of a column for the column to be the tile's;
        1 for whole segments only, 0 for every column of which anything is kept

    Raises
    ------
    BadInput : a share outside 0 to 1

    """
    if not 0.0 <= least_share <= 1.0:
        raise BadInput(f"two parts: wanted a share of 0 to 1, got {least_share}")
    mask = kept.mask()
    sizes = piece_sizes(kept.m, height)
    keeping = np.add.reduceat(mask, piece_starts(kept.m, height), axis=0, dtype=np.int64)
    whole = (keeping > 0) & (keeping >= least_share * sizes[:, None])
    tiled: MaskArray = np.repeat(whole, sizes, axis=0)
    return TwoParts(
        tiles=tile_map_from_mask(tiled, height=height, pattern=kept.pattern),
        rest=element_map_from_mask(mask & ~tiled, kept.pattern),
    )


def plan_two_part(
    parts: TwoParts, n: int, dtype: str, gpu: GpuSpec, plan_tiles: Callable[[], KernelPlan]
) -> TwoPartPlan:
    """Plan the tiles as `stspmm` and the remainder as `csr` on what they left in C.

    Parameters
    ----------
    plan_tiles : gives the plan of `parts.tiles`, where one is needed

    Raises
    ------
    BadInput : n below 1, or a dtype that the GPU does not compute in; PlanDoesNotFit if no block fits

    """
    has_tiles, has_rest = parts.tiles.column_index.size > 0, parts.rest.column_index.size > 0
    tiles = plan_tiles() if has_tiles or not has_rest else None
    if not has_rest:
        return TwoPartPlan(tiles, None)
    rest = plan_csr(parts.rest, n, dtype, gpu)
    return TwoPartPlan(tiles, rest if tiles is None else _adding(rest))


def _adding(plan: KernelPlan) -> KernelPlan:
    """The launch of the second part, which adds to C and has only rows with something to add."""
    programs = tuple(_reading_c(program, DTYPE_BYTES[plan.dtype]) for program in plan.programs)
    busy = plan.work.k_stop > plan.work.k_start
    before = np.concatenate(([0], np.cumsum(busy))).astype(np.int32)
    work = take_items(plan.work, np.flatnonzero(busy))._replace(block_start=before[plan.work.block_start])
    return replace(plan, programs=programs, work=work)


def _reading_c(program: WarpProgram, element_bytes: int) -> WarpProgram:
    """Each store of C is preceded by a load of the same bytes, found in L2 where the tiles have left them."""
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
