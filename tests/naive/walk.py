"""The way of a warp through its program: which instructions it meets, and which of them apply."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from prunecast.plan.program import COPIES, ON_STEP, Code, Instruction, Op, WarpProgram, When
from tests.naive.records import Item, Kernel, Work

__all__ = ["COPIES", "Run", "Todo", "applicable", "applicable_outside", "passes"]


@dataclass(frozen=True)
class Run:
    """A work item as one block runs it: its steps have the global numbers base .. base + steps - 1."""

    number: int
    item: Item
    base: int
    steps: int
    early: bool = False


@dataclass(frozen=True)
class Todo:
    """An instruction that a warp issues: its item, its current step, and what it acts on."""

    code: Instruction
    run: Run | None = None
    current: int = 0
    columns: tuple[int, ...] = ()
    """Kept columns of the step it acts on."""
    multiplied: int = 0
    """Columns that the step multiplies, kept or not."""

    @property
    def step(self) -> int:
        """Step of the item that it acts on."""
        return self.current + self.code.ahead

    @property
    def global_step(self) -> int:
        """The same, numbered over all items of the block."""
        return self.run.base + self.step

    @property
    def times(self) -> int:
        """What amounts are multiplied with."""
        return math.ceil(self.multiplied / 16) if self.code.per_k16 else 1

    @property
    def length(self) -> int:
        """Warp instructions it stands for."""
        return max(1, self.code.issue * self.times)

    @property
    def amount(self) -> int:
        """Its amount; bytes per column do not grow with k16."""
        per_column = self.code.op in (Op.COPY_B, Op.GATHER_B, Op.LOAD_B)
        return self.code.amount * (1 if per_column else self.times)


def passes(program: WarpProgram, steps: int, stages: int) -> Iterator[tuple[Instruction, int]]:
    """Every instruction of an item, applicable or not, with its current step."""
    for code in program.begin:
        yield code, 0
    for step in range(min(stages - 1, steps)):
        for code in program.fill:
            yield code, step
    for step in range(steps):
        for code in program.step:
            yield code, step
    for code in program.end:
        yield code, max(steps - 1, 0)


def applicable(kernel: Kernel, program: WarpProgram, work: Work, rank: int, run: Run) -> Iterator[Todo]:
    """What a warp of this rank in its role issues for an item."""
    for code, current in passes(program, run.steps, kernel.stages):
        if applies(kernel, code, rank, run, current):
            columns = step_columns(kernel, work, code, run, current)
            left = kernel.multiplied(run.item) - (current + code.ahead) * kernel.block_k
            yield Todo(code, run, current, columns, min(kernel.block_k, left))


def applicable_outside(codes: Code, rank: int) -> Iterator[Todo]:
    """What it issues in `start` or `finish`, where there is no item."""
    for code in codes:
        asks_for_item = code.when != When.ALWAYS or acts_on_a_step(code) or code.op == Op.RELEASE
        if not asks_for_item and not (code.leader and rank > 0):
            yield Todo(code)


def acts_on_a_step(code: Instruction) -> bool:
    return (code.op in ON_STEP and code.op != Op.RELEASE) or code.per_k16


def applies(kernel: Kernel, code: Instruction, rank: int, run: Run, current: int) -> bool:
    item = run.item
    fits = {
        When.ALWAYS: True,
        When.PARTIAL: not item.owner,
        When.OWNER: item.owner and item.parts > 1,
        When.FINAL: item.owner,
        When.EDGE: item.tokens < kernel.block_n,
        When.REFILL: run.base + current + code.ahead >= kernel.stages,
        When.AHEAD: not run.early and run.base == 0 and current + code.ahead < kernel.stages,
        When.IN_TURN: run.early or run.base > 0 or current + code.ahead >= kernel.stages,
    }
    if (code.leader and rank > 0) or not fits[code.when]:
        return False
    if code.op == Op.RELEASE and (run.steps == 0 or code.amount > current):
        return False
    return not acts_on_a_step(code) or current + code.ahead < run.steps


def step_columns(kernel: Kernel, work: Work, code: Instruction, run: Run, current: int) -> tuple[int, ...]:
    if not acts_on_a_step(code):
        return ()
    item = run.item
    kept = work.columns[item.tile][item.k_start : item.k_start + item.k_count]
    first = (current + code.ahead) * kernel.block_k
    return kept[first : first + kernel.block_k]
