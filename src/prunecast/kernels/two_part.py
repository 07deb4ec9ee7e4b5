"""Two launches for one layer: tiles on tensor cores, and what is left over added by CUDA cores.

The mixes that keep whole segments of tiles and single elements besides (TEW of Guo et al., SC'20; dense
blocks and leftovers of Rumi et al., PACT'20) need both. The tiles write C, all of it; the remainder reads the
rows of C that it has something for, adds, and writes them back. One follows the other on a stream.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.kernel import Kernel
from prunecast.kernels.libraries.cusparse.kernel import plan_csr
from prunecast.patterns.element_map import ElementMap
from prunecast.patterns.tile_element import TwoParts
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
