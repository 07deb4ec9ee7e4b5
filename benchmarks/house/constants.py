"""Numbers at the top of modules: those without kind and source belong into files of costs."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.house.sources import is_text

CODE_KINDS = ("CUDA source", "as-compiled", "datasheet", "definition", "choice")
"""What a number in the code may be: defined by a `.cu` or `.cuh` file, counted in machine code, printed by
the vendor, part of an interface (CUDA, PTX, a binary layout), or an option that is offered or tried."""


class Constant(NamedTuple):
    """One assignment of numbers at the top of a module."""

    where: str
    """File and line."""
    names: list[str]
    numbers: int
    """How many its value writes out."""
    text: str
    """The docstring below it, empty without one."""


def constants(room: Path) -> Iterator[Constant]:
    """The numeric constants of all modules of a room."""
    for path in sorted(room.rglob("*.py")):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        for node, after in zip(body, [*body[1:], None], strict=True):
            numbers = written_numbers(node)
            if numbers:
                where = f"{path.relative_to(room.parent)}:{node.lineno}"
                yield Constant(where, assigned(node), numbers, docstring(after))


def has_source(constant: Constant) -> bool:
    """Whether the docstring says `Kind: KIND, SOURCE` with a kind that may stand in code.

    What is measured, fitted or guessed belongs into a file of costs.
    """
    said = re.search(r"Kind:\s+([a-zA-Z\s-]+?),\s+\S", constant.text)
    return said is not None and " ".join(said[1].split()) in CODE_KINDS


def assigned(node: ast.stmt) -> list[str]:
    """Names that an assignment gives a value."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]


def written_numbers(node: ast.stmt) -> int:
    """How many numbers an assignment writes out; 0 for other statements, and for records of kernels, whose
    fields say what they mean.
    """
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        return 0
    if isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "Kernel":
        return 0
    return sum(
        isinstance(part, ast.Constant) and type(part.value) in (int, float) for part in ast.walk(node.value)
    )


def docstring(node: ast.stmt | None) -> str:
    """Return the text of a statement that is a string only."""
    return node.value.value if node is not None and is_text(node) else ""
