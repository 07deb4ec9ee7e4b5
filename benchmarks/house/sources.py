"""Sizes read from text and syntax trees.

Nothing of the sources is imported, so any checkout can be counted.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

PACKAGE = Path("src/prunecast")
SHORT_LINES = 3
"""Most lines of a private function that is not worth a name if only one place calls it."""
LEAST_OPS = 6
"""Members of `Op` that a file names at least if it interprets warp programs."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Source:
    """One Python file of the package."""

    def __init__(self, path: Path, root: Path) -> None:
        inner = path.relative_to(root)
        self.name = inner.as_posix()
        self.package = inner.parts[0] if len(inner.parts) > 1 else "top"
        self.text = path.read_text(encoding="utf-8")
        self.tree = ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of the syntax tree."""
        return list(ast.walk(self.tree))

    @cached_property
    def functions(self) -> list[Function]:
        """All functions and methods, inner ones too."""
        return [node for node in self.nodes if isinstance(node, Function)]

    @cached_property
    def classes(self) -> list[ast.ClassDef]:
        """All classes."""
        return [node for node in self.nodes if isinstance(node, ast.ClassDef)]

    def token_lines(self) -> int:
        """Count the lines that hold a token which is neither comment nor docstring."""
        texts, strings = set(), set()
        for node in self.nodes:
            if is_text(node):
                texts.update(_lines_of(node))
            elif isinstance(node, ast.Constant | ast.JoinedStr) and node.end_lineno > node.lineno:
                strings.update(_lines_of(node))
        return sum(
            number not in texts and (number in strings or line.strip()[:1] not in ("", "#"))
            for number, line in enumerate(self.text.splitlines(), 1)
        )

    def uses(self) -> Counter[str]:
        """Count how often each name is used, as a variable or an attribute."""
        return Counter(
            node.id if isinstance(node, ast.Name) else node.attr
            for node in self.nodes
            if isinstance(node, ast.Name | ast.Attribute)
        )


def read_sources(root: Path) -> list[Source]:
    """Read all files of the package of a checkout."""
    package = root / PACKAGE
    return [Source(path, package) for path in sorted(package.rglob("*.py"))]


def token_lines(sources: list[Source]) -> dict[str, int]:
    """Token-bearing lines by package; `top` are the modules beside the packages."""
    counted: Counter[str] = Counter()
    for source in sources:
        counted[source.package] += source.token_lines()
    return dict(sorted(counted.items()))


def granularity(sources: list[Source]) -> dict[str, int]:
    """Counters of functions and classes, by title.

    A name that two files give to private functions of theirs counts as used twice.
    """
    uses = sum((source.uses() for source in sources), Counter())
    private = [node for source in sources for node in source.functions if is_private(node.name)]
    single = [node for node in private if uses[node.name] == 1]
    classes = Counter(node.name for source in sources for node in source.classes)
    return {
        "functions": sum(len(source.functions) for source in sources),
        "classes": sum(classes.values()),
        "class names defined twice": sum(number > 1 for number in classes.values()),
        "private functions with one caller": len(single),
        "of at most three lines": sum(body_lines(node) <= SHORT_LINES for node in single),
        "interpreters of warp programs": len(list(interpreters(sources))),
    }


def interpreters(sources: list[Source]) -> Iterator[str]:
    """Files outside of `kernels` and `plan` that name enough members of `Op` to give programs a meaning.

    A loop over `Op` that gives jitted code its constants names all of them.
    """
    for source in sources:
        named = set(re.findall(r"\bOp\.([A-Z_0-9]+)\b", source.text))
        names_all = re.search(r"\bint\((\w+)\) for \1 in Op\b", source.text) is not None
        if source.package not in ("kernels", "plan") and (len(named) >= LEAST_OPS or names_all):
            yield source.name


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def is_text(node: ast.AST) -> bool:
    """Decide whether a statement is a string only, hence a docstring of something."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def body_lines(node: Function) -> int:
    """Count the lines of a body without its docstring."""
    body = node.body[1:] if is_text(node.body[0]) else node.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


def _lines_of(node: ast.stmt | ast.expr) -> range:
    return range(node.lineno, node.end_lineno + 1)
