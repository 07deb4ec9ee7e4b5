"""The barriers of blocks and reduction groups, and how many arrivals each of them expects."""

from prunecast.plan.program import Op
from tests.naive.parts import Barrier, Block
from tests.naive.records import Item, Kernel, Work
from tests.naive.walk import COPIES, applicable, passes

__all__ = ["Barriers"]


class Barriers:
    """Makes each barrier when it is first asked for."""

    def __init__(self, kernel: Kernel, work: Work) -> None:
        self.kernel, self.work = kernel, work
        self.groups: dict[int, Barrier] = {}

    def full(self, block: Block, step: int) -> Barrier:
        """The full barrier of a global step, which expects every copy instruction that applies to it."""
        if step not in block.full:
            run = next(run for run in block.runs if run.base <= step < run.base + run.steps)
            copies = [
                todo
                for program in self.kernel.programs
                for rank in range(program.warps)
                for todo in applicable(self.kernel, program, self.work, rank, run)
                if todo.code.op in COPIES and todo.global_step == step
            ]
            block.full[step] = Barrier(len(copies))
        return block.full[step]

    def empty(self, block: Block, step: int) -> Barrier:
        """The empty barrier of a global step, which expects one arrival per warp that runs RELEASE."""
        if step not in block.empty:
            block.empty[step] = Barrier(self.warps_that_run(Op.RELEASE))
        return block.empty[step]

    def group(self, item: Item) -> Barrier:
        """The reduction group's signals."""
        if item.group not in self.groups:
            signals = (item.parts - 1) * self.executions_at_the_end(Op.STORE_PARTIAL)
            self.groups[item.group] = Barrier(signals)
        return self.groups[item.group]

    def executions_at_the_end(self, op: Op) -> int:
        return sum(
            1 if code.leader else program.warps
            for program in self.kernel.programs
            for code in program.end
            if code.op == op
        )

    def warps_that_run(self, op: Op) -> int:
        return sum(
            any(code.op == op and not (code.leader and rank > 0) for code, _ in passes(program, 1, 2))
            for program in self.kernel.programs
            for rank in range(program.warps)
        )
