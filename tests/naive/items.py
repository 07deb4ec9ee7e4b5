"""How blocks come by their work items."""

import math

from prunecast.plan.kernel_plan import Schedule
from tests.naive.parts import Block
from tests.naive.records import Kernel, Work
from tests.naive.walk import Run

__all__ = ["Items"]


class Items:
    """Deals the items of the work list to blocks."""

    def __init__(self, kernel: Kernel, work: Work) -> None:
        self.kernel, self.work = kernel, work

    def run_of(self, block: Block, place: int) -> Run | None:
        """The block's item of that place in its list."""
        if place < len(block.runs):
            return block.runs[place]
        number = self.item_number(block, place)
        if number is None:
            return None
        item = self.work.items[number]
        base = block.runs[-1].base + block.runs[-1].steps if block.runs else 0
        steps = math.ceil(self.kernel.multiplied(item) / self.kernel.block_k)
        early = block.sm.number < self.work.early_sms
        block.runs.append(Run(number, item, base, steps, early))
        block.sm.items += 1
        return block.runs[-1]

    def item_number(self, block: Block, place: int) -> int | None:
        if self.work.schedule is Schedule.HARDWARE:
            return block.number if place == 0 else None
        number = self.work.block_start[block.number] + place
        return number if number < self.work.block_start[block.number + 1] else None
