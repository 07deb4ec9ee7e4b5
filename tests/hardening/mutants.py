"""Changes of single lines that tests must notice: python -m tests.hardening.mutants --count 80 --seed 1

Lines of the sources that contain an operator, a comparison, a number or a truth value are drawn at random,
and one of these is changed (`SWAPS`, `_other_value`). Then the tests that enter the line's block run, the
narrowest first (`tests/hardening/reached.py`), in a copy of the repository.

A mutant is killed if a test fails that passes with the unchanged source, or does not end. It survives if all
these tests pass. If they need more time than `--limit`, it is not decided. A line that no test enters, such
as one that needs a GPU, is not reached.

`--show SEED/NUMBER` prints a mutant without running a test.
"""

import argparse
import ast
import compileall
import difflib
import json
import os
import queue
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

from tests.hardening.reached import (
    JIT,
    ROOT,
    Blocks,
    Place,
    Reached,
    Run,
    Sources,
    copy_tree,
    make_map,
    run_tests,
)

__all__ = ["Judge", "Mutant", "Verdict", "drawn", "judge_all", "mutations"]

SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.USub: ast.UAdd,
}
"""Operator or comparison -> what replaces it."""
UNCHANGED_FIELDS = ("annotation", "returns", "decorator_list", "format_spec", "type_params")
"""Parts of a syntax tree that no computed value depends on."""
UNCHANGED_KEYWORDS = ("strict", "stacklevel", "repr")
"""Arguments that change no result: `zip(strict=True)`, the line that a warning names, what `repr` shows."""
MOST_TIMES_AS_LONG, MORE_SECONDS = 3.0, 10.0
"""A test that runs longer than this times its time with the unchanged source, and this more, does not end."""
COMPILE_SECONDS = 60.0
"""Time allowed for compiling changed jitted functions, in addition to `--limit`."""


class Mutant(NamedTuple):
    """One changed line, named SEED/NUMBER, and the whole sources before and after."""

    name: str
    file: str
    line: int
    before: str
    after: str
    place: Place

    @property
    def change(self) -> list[str]:
        """Lines before and after, with - and + before them."""
        lines = difflib.unified_diff(self.before.splitlines(), self.after.splitlines(), n=0)
        return [line for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---")]


class Verdict(NamedTuple):
    """`verdict` is "killed", "survived", "not reached" or "not decided"."""

    mutant: Mutant
    verdict: str
    why: str
    seconds: float
    tests: list[str]

    def json(self) -> str:
        """One line of `--findings`."""
        mutant = {"mutant": self.mutant.name, "file": self.mutant.file, "line": self.mutant.line}
        found = {"verdict": self.verdict, "why": self.why, "seconds": round(self.seconds, 1)}
        return json.dumps({**mutant, "change": self.mutant.change, **found, "tests": len(self.tests)})


class Mutation(NamedTuple):
    """A field of a syntax node that can be changed; `index` is its place if the field is a list."""

    node: ast.AST
    field: str
    index: int | None
    part: Any
    new: Any

    @property
    def place(self) -> ast.AST:
        """The expression that changes, or the one whose operator does."""
        return self.part if hasattr(self.part, "lineno") else self.node

    @property
    def line(self) -> int:
        return int(getattr(self.place, "lineno", 0))

    def apply(self) -> None:
        """Change the tree."""
        if self.index is None:
            setattr(self.node, self.field, self.new)
        else:
            getattr(self.node, self.field)[self.index] = self.new


def mutations(tree: ast.AST) -> Iterator[Mutation]:
    """Everything below a node that can be changed."""
    for field, value in ast.iter_fields(tree):
        if field in UNCHANGED_FIELDS:
            continue
        for index, part in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(part, ast.Raise) or (
                isinstance(part, ast.keyword) and part.arg in UNCHANGED_KEYWORDS
            ):
                continue
            new = _other_value(tree, part)
            if new is not None:
                yield Mutation(tree, field, index, part, new)
            if isinstance(part, ast.AST):
                yield from mutations(part)


def _other_value(parent: ast.AST, part: Any) -> Any:
    """What replaces an operator or a constant, or None if nothing does."""
    operands = [getattr(parent, name, None) for name in ("left", "right")]
    if any(isinstance(operand, ast.JoinedStr) or _is_text_or_type(operand) for operand in operands):
        return None
    if type(part) in SWAPS:
        return SWAPS[type(part)]()
    if isinstance(part, ast.Constant) and isinstance(part.value, bool):
        return ast.Constant(not part.value)
    if isinstance(part, ast.Constant) and isinstance(part.value, int):
        return ast.Constant(part.value + 1)
    if isinstance(part, ast.Constant) and isinstance(part.value, float):
        return ast.Constant(part.value * 1.1 if part.value else 1.0)
    return _negated(parent, part)


def _negated(parent: ast.AST, part: Any) -> ast.expr | None:
    """The opposite of a condition that contains no comparison, or of an operand of `not`."""
    if isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not) and part is parent.operand:
        return ast.UnaryOp(ast.Not(), part)
    is_condition = isinstance(parent, ast.If | ast.IfExp) and part is parent.test
    if isinstance(part, ast.Name) and part.id == "TYPE_CHECKING":
        return None
    if is_condition and isinstance(part, ast.Name | ast.Attribute | ast.Call):
        return ast.UnaryOp(ast.Not(), part)
    return None


def _is_text_or_type(operand: Any) -> bool:
    """Whether it is text, or part of a union of types such as `int | None`."""
    if isinstance(operand, ast.Constant):
        return operand.value is None or isinstance(operand.value, str)
    return isinstance(operand, ast.Name) and operand.id in (
        "str",
        "int",
        "float",
        "bool",
        "list",
        "dict",
        "tuple",
    )


def drawn(sources: Sources, seed: int, count: int) -> list[Mutant]:
    """Mutants of `count` lines; a larger count of one seed begins with the same ones."""
    lines: list[tuple[str, int]] = []
    for file, text in sources.texts.items():
        lines += [(file, line) for line in sorted({found.line for found in mutations(ast.parse(text))} - {0})]
    random.Random(seed).shuffle(lines)
    return [_mutant(f"{seed}/{number}", sources, *lines[number]) for number in range(min(count, len(lines)))]


def _mutant(name: str, sources: Sources, file: str, line: int) -> Mutant:
    """Change one of the operators or constants of a line."""
    tree = ast.parse(sources.texts[file])
    before = ast.unparse(tree)
    mutation = random.Random(name).choice([found for found in mutations(tree) if found.line == line])
    place = Blocks(file, tree).place_of[mutation.place]
    mutation.apply()
    return Mutant(name, file, line, before, ast.unparse(ast.fix_missing_locations(tree)), place)


class Judge:
    """Runs tests of mutants in a copy of the repository, until the clock shows `end`."""

    def __init__(self, tree: Path, clean: Path, end: float, limit_seconds: float, broken: set[str]) -> None:
        self.tree, self.clean, self.end, self.limit_seconds = tree, clean, end, limit_seconds
        self.broken = broken
        """Tests that do not pass with the unchanged source. All judges share the set."""

    def verdict(self, mutant: Mutant, tests: list[str]) -> Verdict:
        """Run the tests of a mutant. A test that also fails with the unchanged source does not count."""
        begun = time.monotonic()
        found = ("not reached", "no test enters it") if not tests else None
        while found is None:
            left = [test for test in tests if test not in self.broken]
            if not left:
                found = "not decided", "none of its tests passes with the unchanged source"
                break
            run = self._run(mutant, left)
            suspect = run.failed or (run.last_started if run.code is None else left[0])
            if run.code in (0, 5):
                found = "survived", f"{len(left)} tests pass"
            elif suspect is None or time.monotonic() >= self.end:
                found = "not decided", "no time"
            else:
                unchanged = self._run(None, [suspect])
                if unchanged.code == 0:
                    found = self._killed(mutant, run, unchanged, suspect)
                elif unchanged.code is None or run.code is None:
                    found = "not decided", "no time"
                else:
                    self.broken |= {test for test in left if test.startswith(suspect.split("[")[0])} or set(
                        left
                    )
        return Verdict(mutant, *found, time.monotonic() - begun, tests)

    def _killed(self, mutant: Mutant, run: Run, unchanged: Run, test: str) -> tuple[str, str]:
        """The verdict about a test that passes with the unchanged source."""
        if run.code is not None or run.failed:
            return "killed", test
        most = MOST_TIMES_AS_LONG * unchanged.seconds + MORE_SECONDS + self._compile_seconds(mutant)
        if run.seconds_of_last > most:
            return "killed", f"{test} does not end"
        passed = sum("started" in line for line in run.log) - 1
        return "not decided", f"{passed} cases pass, then there is no time"

    def _run(self, mutant: Mutant | None, tests: list[str]) -> Run:
        """Run tests with a mutant or without, from the compiled code of the unchanged source."""
        shutil.rmtree(self.tree / "src")
        copy_tree(self.clean, self.tree / "src")
        limit_seconds = self.limit_seconds
        if mutant is not None:
            (self.tree / mutant.file).write_text(mutant.after)
            for file in self._jitted_with(mutant):
                os.utime(file)
            limit_seconds += self._compile_seconds(mutant)
        return run_tests(self.tree, tests, max(0.0, min(limit_seconds, self.end - time.monotonic())), "-x")

    def _compile_seconds(self, mutant: Mutant) -> float:
        return COMPILE_SECONDS if self._jitted_with(mutant) else 0.0

    def _jitted_with(self, mutant: Mutant) -> list[Path]:
        """Jitted files that are the mutant or import it; Numba's caches know only their own source."""
        module = mutant.file.removeprefix("src/").removesuffix(".py").replace("/", ".")
        files = {file: file.read_text() for file in (self.tree / "src").rglob("*.py")}
        jitted = {file: text for file, text in files.items() if f"from {JIT} import" in text}
        changed = self.tree / mutant.file
        return [file for file, text in jitted.items() if file == changed or f"from {module} import" in text]


def judge_all(
    mutants: list[Mutant],
    sources: Sources,
    reached: Reached,
    processes: int,
    end: float,
    limit_seconds: float,
) -> Iterator[Verdict]:
    """Verdicts as they come; each process has its own copy of the repository."""
    with tempfile.TemporaryDirectory() as folder:
        clean = copy_tree(sources.root / "src", Path(folder) / "clean")
        judges: queue.SimpleQueue[Judge] = queue.SimpleQueue()
        broken: set[str] = set()
        for number in range(processes):
            tree = copy_tree(sources.root, Path(folder) / str(number))
            judges.put(Judge(tree, clean, end, limit_seconds, broken))

        def judge_one(mutant: Mutant) -> Verdict:
            judge = judges.get()
            try:
                return judge.verdict(mutant, sources.tests_of(mutant.place, reached))
            finally:
                judges.put(judge)

        with ThreadPoolExecutor(processes) as pool:
            for done in as_completed([pool.submit(judge_one, mutant) for mutant in mutants]):
                yield done.result()


def compile_once(sources: Sources, reached: Reached, processes: int) -> None:
    """Compile the sources and run a test of each jitted file, so that the copies begin with compiled code."""
    compileall.compile_dir(sources.root / "src", quiet=2, workers=processes)
    jitted = [file for file, text in sources.texts.items() if f"from {JIT} import" in text]
    tests = {test for file in jitted for test in sources.tests_of(sources.functions_of(file), reached)[:1]}
    with ThreadPoolExecutor(processes) as pool:
        list(pool.map(lambda test: run_tests(sources.root, [test], 300), sorted(tests)))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=20, help="mutants to draw")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end everything after so many")
    parser.add_argument("--limit", type=float, default=120, help="seconds for the tests of one mutant")
    parser.add_argument("--findings", type=Path, help="file that gets one line of JSON for each mutant")
    parser.add_argument(
        "--map", type=Path, help="map of tests; it is made and written if there is no such file"
    )
    parser.add_argument("--show", metavar="SEED/NUMBER", help="print a mutant without running a test")
    return parser.parse_args()


def _map(asked: argparse.Namespace) -> Reached:
    """Read the map, or make it in at most a third of the time."""
    if asked.map is not None and asked.map.exists():
        return Reached(**json.loads(asked.map.read_text()))
    made = make_map(ROOT, asked.processes, asked.seconds / 3)
    if asked.map is not None:
        asked.map.write_text(json.dumps(made._asdict()))
    return made


def _main() -> int:
    asked = _arguments()
    end = time.monotonic() + asked.seconds
    sources = Sources()
    if asked.show:
        seed, number = map(int, asked.show.split("/"))
        mutant = drawn(sources, seed, number + 1)[number]
        print(f"{mutant.file}:{mutant.line}", *mutant.change, sep="\n")
        return 0
    reached = _map(asked)
    compile_once(sources, reached, asked.processes)
    counts: Counter[str] = Counter()
    mutants = drawn(sources, asked.seed, asked.count)
    for verdict in judge_all(mutants, sources, reached, asked.processes, end, asked.limit):
        counts[verdict.verdict] += 1
        mutant = verdict.mutant
        print(f"{mutant.name:9} {verdict.verdict:11} {mutant.file}:{mutant.line}  {verdict.why}", flush=True)
        if verdict.verdict != "killed":
            print(*(f"{'':10}{line}" for line in mutant.change), sep="\n", flush=True)
        if asked.findings is not None:
            with asked.findings.open("a") as findings:
                findings.write(verdict.json() + "\n")
    decided = counts["killed"] + counts["survived"]
    print(f"{len(mutants)} mutants, {dict(counts)}: {counts['killed']} of {decided} decided were killed")
    return int(counts["survived"] > 0)


if __name__ == "__main__":
    raise SystemExit(_main())
