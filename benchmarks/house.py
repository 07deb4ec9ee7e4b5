"""Numbers that say how large and how connected the sources are: `python -m benchmarks.house [ROOT]`.

Everything is read from text and syntax trees: nothing is imported, and ROOT can be any checkout.
"""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SOURCES = Path("src/prunecast")
NUMBER_ROOMS = ("kernels", "launch")
"""Rooms whose constants belong into files with value, unit, kind and source."""
PUBLIC_ROOMS = ("kernels", "models")
CODE_KINDS = ("CUDA source", "as-compiled", "datasheet", "definition", "choice")
"""What a number in the code may be: defined by a `.cu` or `.cuh` file, counted in machine code, printed by
the vendor, part of an interface (CUDA, PTX, a binary layout), or an option that is offered or tried."""


WANTED = {
    "lines of Python in src": 35_000,
    "files of Python in src": 320,
    "lines of Python in benchmarks": 5_000,
    "public functions and classes of kernels and models": 240,
    "modules with one importer": 60,
    "numeric constants without kind and source": 0,
    "words in docs": 40_000,
    "lines of ARCHITECTURE.md": 150,
    "commands in benchmarks": 30,
    "docstrings that begin with Of": 0,
}
"""At most, by title."""


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[1]
    print("| | now | at most |\n| --- | --- | --- |")
    for title, number in rows(root):
        wanted = f"{WANTED[title]:,}" if title in WANTED else ""
        print(f"| {title} | {number:,} | {wanted} |")
    return 0


def rows(root: Path) -> Iterator[tuple[str, int]]:
    """Title and number of each line of the table."""
    source = root / SOURCES
    files = sorted(source.rglob("*.py"))
    yield "lines of Python in src", sum(map(lines, files))
    yield "files of Python in src", len(files)
    yield "lines of Python in benchmarks", sum(map(lines, (root / "benchmarks").rglob("*.py")))
    public = sum(len(public_names(source / room)) for room in PUBLIC_ROOMS)
    yield "public functions and classes of kernels and models", public
    yield "modules with one importer", len(single_importers(source))
    yield "of them below 60 lines", sum(lines(path) < 60 for path in single_importers(source))
    found = [constant for room in NUMBER_ROOMS for constant in constants(source / room)]
    yield "numeric constants of kernels and launch", len(found)
    yield "numbers in them", sum(constant.numbers for constant in found)
    yield "numeric constants without kind and source", sum(not has_source(constant) for constant in found)
    yield "of them without any docstring", sum(not constant.text for constant in found)
    yield "numbers in files of costs", sum(map(entries, source.rglob("costs/sm_*.toml")))
    yield (
        "words in docs",
        sum(words(path) for path in (root / "docs").rglob("*.md") if path.name != "files.md"),
    )
    for name in ("README.md", "ARCHITECTURE.md", "CHANGELOG.md"):
        yield f"lines of {name}", lines(root / name)
    yield "commands in benchmarks", sum(map(is_command, (root / "benchmarks").rglob("*.py")))
    yield "docstrings that begin with Of", sum(begins_with_of(path) for path in files)


def lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def words(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").split())


def is_command(path: Path) -> bool:
    return '__name__ == "__main__"' in path.read_text(encoding="utf-8")


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def public_names(room: Path) -> list[str]:
    """Functions and classes at the top of modules whose name has no leading underscore."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    nodes = [node for path in sorted(room.rglob("*.py")) for node in tree(path).body]
    return [node.name for node in nodes if isinstance(node, kinds) and not node.name.startswith("_")]


def single_importers(source: Path) -> list[Path]:
    """Modules that exactly one other module of the package imports; `__init__` files are no modules here."""
    files = {module_name(path, source): path for path in source.rglob("*.py")}
    importers = Counter(
        target for name, path in files.items() for target in imported(path, files) if target != name
    )
    return [path for name, path in files.items() if importers[name] == 1 and path.name != "__init__.py"]


def module_name(path: Path, source: Path) -> str:
    parts = [source.name, *path.relative_to(source).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path: Path, known: dict[str, Path]) -> set[str]:
    """Modules of the package that one file imports; `from room import module` names the module."""
    found = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (inner & known.keys()) or {node.module}
    return found & known.keys()


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
        body = tree(path).body
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


def entries(path: Path) -> int:
    return len(re.findall(r"^value =", path.read_text(encoding="utf-8"), re.MULTILINE))


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
    """The text of a statement that is a string alone."""
    if (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ):
        return node.value.value
    return ""


def begins_with_of(path: Path) -> int:
    """How many docstrings of a file, of constants too, begin with the word."""
    texts = (docstring(node) for node in ast.walk(tree(path)) if isinstance(node, ast.Expr))
    return sum(bool(re.match(r"\s*Of\b", text)) for text in texts)


if __name__ == "__main__":
    sys.exit(main())
