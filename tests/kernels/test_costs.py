"""Numbers of an architecture stand in the files of costs; every entry is read, and binding is exact."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

import prunecast
from prunecast.hardware import load_gpu
from prunecast.hardware.costs import Costs, load_costs, read_costs
from prunecast.plan.program import Charge, Instruction, Op, WarpProgram, bind

GPU = load_gpu("h200-sxm")
PACKAGE = Path(prunecast.__file__).parent
READ_TOO = {
    "launch": ("models", "simulator"),
    "cublas": ("kernels/tile/programs",),
    "experts": ("kernels/libraries",),
    "scaled": ("kernels/libraries",),
}
"""Rooms that read a folder's costs too: engines those of launches, and cuBLAS's programs are made of the tile
kernels' parts.
"""
FOLDERS = sorted({path.parent.parent for path in PACKAGE.rglob("costs/sm_*.toml")})


@pytest.mark.parametrize("folder", FOLDERS, ids=[folder.name for folder in FOLDERS])
def test_every_entry_is_read_by_its_kernel(folder: Path) -> None:
    rooms = [folder, *(PACKAGE / room for room in READ_TOO.get(folder.name, ()))]
    sources = "".join(path.read_text(encoding="utf-8") for room in rooms for path in room.rglob("*.py"))
    named = set(re.findall(r'"([a-z0-9_]+(?:{[^}"]+})?[a-z0-9_]*)"', sources))
    patterns = [re.compile(re.sub("{[^}]+}", "[a-z0-9_]+", name)) for name in named]
    # Names like f"{kind}_dense_issue", whose beginning depends on the dtype or on the form of a kernel
    suffixes = re.findall(r'"{[^}"]+}_([a-z0-9_]+)"', sources)
    if folder.name in ("experts", "scaled", "collectives"):
        # Library calls read the fields of a record, each with the name of the kernel form before it
        suffixes += re.findall(r"^    ([a-z0-9_]+): (?:float|int)$", sources, re.MULTILINE)
    patterns += [re.compile(f"[a-z0-9_]+_{name}") for name in suffixes]
    for capability in (75, 80, 90):
        entries = read_costs(folder / "costs", folder.name, capability).entries
        unread = [entry for entry in entries if not any(p.fullmatch(entry) for p in patterns)]
        assert unread == []


def test_the_h200_has_nothing_carried_over() -> None:
    for folder in FOLDERS:
        package = ".".join(folder.relative_to(PACKAGE.parent).parts)
        assert not load_costs(package, 90).inherited
        assert load_costs(package, 80).guessed_share > 0.0


def _costs(**values: float) -> Costs:
    entry = next(iter(load_costs("prunecast.kernels.tile", 90).entries.values()))
    entries = {name: replace(entry, value=value) for name, value in values.items()}
    return Costs("toy", "sm_90", entries, {}, "")


def _program(*instructions: Instruction) -> tuple[WarpProgram, ...]:
    return (WarpProgram(role="worker", warps=4, step=instructions),)


def test_binding_adds_what_charges_name_to_their_fields() -> None:
    charges = (Charge("wait", 2.0), Charge("more"), Charge("issued", field="issue"))
    program = _program(Instruction(Op.ISSUE, 10, 1, charges=charges))
    bound = bind(program, _costs(wait=100.0, more=0.4, issued=7), GPU)
    assert bound == _program(Instruction(Op.ISSUE, 210, 8))


def test_binding_ends_at_zero() -> None:
    program = _program(Instruction(Op.ISSUE, 10, charges=(Charge("wait", -1.0),)))
    assert bind(program, _costs(wait=100.0), GPU) == _program(Instruction(Op.ISSUE))


def test_programs_without_charges_stay_the_same_objects() -> None:
    program = _program(Instruction(Op.ISSUE, 10))
    assert bind(program, None, GPU)[0] is program[0]


def test_an_entry_that_is_not_there_is_an_error() -> None:
    with pytest.raises(AttributeError, match="wait"):
        bind(_program(Instruction(Op.ISSUE, charges=(Charge("wait"),))), _costs(), GPU)


def test_quantities_of_the_gpu_are_charges_too() -> None:
    program = _program(Instruction(Op.ISSUE, charges=(Charge("dram_latency_cycles", 2.0),)))
    assert bind(program, None, GPU) == _program(Instruction(Op.ISSUE, 2 * GPU.dram_latency_cycles))
