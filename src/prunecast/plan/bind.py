"""The costs of an architecture put into warp programs that name them; `launch.context` does so for plans."""

from dataclasses import replace
from functools import lru_cache
from typing import Any

from prunecast.hardware.costs import Costs
from prunecast.plan.program import Charge, Code, Instruction, WarpProgram

__all__ = ["bind", "total"]


@lru_cache(maxsize=4096)
def bind(programs: tuple[WarpProgram, ...], costs: Costs) -> tuple[WarpProgram, ...]:
    """Programs whose instructions have the costs that they name, in whole units and at least 0.

    Programs without charges come back as they are. KeyError: the costs lack an entry.
    """
    return tuple(_bound_program(program, costs) for program in programs)


def total(charges: tuple[Charge, ...], costs: Costs) -> float:
    """What charges add up to."""
    return sum(charge.times * costs[charge.name] for charge in charges)


def _bound_program(program: WarpProgram, costs: Costs) -> WarpProgram:
    changed: dict[str, Any] = {}
    for part in ("start", "begin", "fill", "step", "end", "finish"):
        code: Code = getattr(program, part)
        if any(instruction.charges for instruction in code):
            changed[part] = tuple(_bound(instruction, costs) for instruction in code)
    return replace(program, **changed) if changed else program


def _bound(instruction: Instruction, costs: Costs) -> Instruction:
    fields: dict[str, Any] = {"charges": ()}
    for name in {charge.field for charge in instruction.charges}:
        charges = tuple(charge for charge in instruction.charges if charge.field == name)
        fields[name] = max(round(getattr(instruction, name) + total(charges, costs)), 0)
    return instruction._replace(**fields)
