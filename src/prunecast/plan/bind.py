"""The costs of an architecture put into warp programs that name them; `launch.context` does so for plans."""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

from prunecast.hardware.costs import Costs
from prunecast.hardware.spec import GpuSpec
from prunecast.plan.program import Charge, Code, Instruction, WarpProgram


@lru_cache(maxsize=4096)
def bind(programs: tuple[WarpProgram, ...], costs: Costs | None, gpu: GpuSpec) -> tuple[WarpProgram, ...]:
    """Programs whose instructions have what they name, in whole units and at least 0.

    A name is an entry of the costs, or else a quantity of the GPU. Programs without charges come back as they
    are. AttributeError: there is no such number.
    """
    return tuple(_bound_program(program, partial(_number, costs=costs, gpu=gpu)) for program in programs)


def _number(name: str, costs: Costs | None, gpu: GpuSpec) -> float:
    if costs is not None and name in costs.entries:
        return costs[name]
    return float(getattr(gpu, name))


def total(charges: tuple[Charge, ...], costs: Costs) -> float:
    """What charges add up to."""
    return sum(charge.times * costs[charge.name] for charge in charges)


def _bound_program(program: WarpProgram, number: Callable[[str], float]) -> WarpProgram:
    changed: dict[str, Any] = {}
    for part in ("start", "begin", "fill", "step", "end", "finish"):
        code: Code = getattr(program, part)
        if any(instruction.charges for instruction in code):
            changed[part] = tuple(_bound(instruction, number) for instruction in code)
    return replace(program, **changed) if changed else program


def _bound(instruction: Instruction, number: Callable[[str], float]) -> Instruction:
    fields: dict[str, Any] = {}
    for name, times, field in instruction.charges:
        fields[field] = fields.get(field, getattr(instruction, field)) + times * number(name)
    whole = {field: max(round(value), 0) for field, value in fields.items()}
    return instruction._replace(**whole, charges=()) if fields else instruction
