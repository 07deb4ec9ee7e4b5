"""Map from blocks of the sources to the tests that enter them: python -m tests.hardening.reached map.json

Tests run in a copy of the repository in which every block of every function first records that it was
entered. A block is a list of statements: the body of a function, of a loop, of one branch. The map lists the
tests that enter each block, in their own code or in that of a fixture that they share with others. Those that
enter the fewest other blocks come first, since they examine it most closely.

Two cases of each parametrised test run, without tests marked slow, gpu or compile. Functions compiled by
Numba cannot record. `Sources.tests_of` finds their tests, and those of constants, through the functions that
mention their names.
"""

import argparse
import ast
import builtins
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

__all__ = ["ROOT", "Blocks", "Place", "Reached", "Run", "Sources", "copy_tree", "make_map", "run_tests"]

ROOT = Path(__file__).parents[2]
ENTERED = "entered_blocks"
"""Name of the set of entered blocks among Python's builtins."""
LOG, CASES = "PRUNECAST_TEST_LOG", "PRUNECAST_TEST_CASES"
"""Environment variables: the file to which the hooks below write, and how many cases of each test run."""
NOT_COPIED = shutil.ignore_patterns(".git", ".venv", ".*_cache", ".hypothesis", "shared")
QUICK = ("-m", "not slow and not gpu and not compile")
JIT = "prunecast.jit"
"""Functions of files that import it are taken to be compiled."""
FIRST, FIRST_OF_A_FILE, CASES_OF_MAP = 20, 4, 2
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Place(NamedTuple):
    """A block of a function. Outside of functions, `names` are those that the statement defines."""

    file: str
    scope: tuple[str, ...] = ()
    number: int = 0
    in_function: bool = False
    jitted: bool = False
    names: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return f"{self.file}:{'.'.join(self.scope)}#{self.number}"

    @property
    def records(self) -> bool:
        """Whether its code runs in Python, within a function."""
        return self.in_function and not self.jitted


class Blocks:
    """Place of every node of a module, and its lists of statements with their places."""

    def __init__(self, file: str, tree: ast.Module) -> None:
        self.place_of: dict[ast.AST, Place] = {}
        self.bodies: list[tuple[list[ast.stmt], Place]] = []
        self._numbers: defaultdict[tuple[str, ...], Iterator[int]] = defaultdict(lambda: itertools.count(1))
        imports = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
        self._jitted = any(node.module == JIT for node in imports)
        self._visit(tree, Place(file))

    def _visit(self, node: ast.AST, place: Place) -> None:
        if isinstance(node, Function):
            place = Place(place.file, (*place.scope, node.name), 0, True, self._jitted, (node.name,))
        elif isinstance(node, ast.ClassDef):
            place = Place(place.file, (*place.scope, node.name), names=(node.name,))
        elif not place.in_function and isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]
            place = place._replace(names=(*names, *place.scope))
        self.place_of[node] = place
        for _, value in ast.iter_fields(node):
            block = place
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt) and place.in_function:
                if not isinstance(node, Function):
                    block = place._replace(number=next(self._numbers[place.scope]))
                self.bodies.append((value, block))
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    self._visit(child, block)


def recording(file: str, source: str) -> str:
    """The source with a statement at the begin of every block that records its key."""
    tree = ast.parse(source)
    for body, place in Blocks(file, tree).bodies:
        if place.records:
            first = body[0]
            is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
            body.insert(int(is_docstring), ast.parse(f"{ENTERED}.add({place.key!r})").body[0])
    return ast.unparse(ast.fix_missing_locations(tree))


class Sources:
    """The sources below `src`, and which functions mention which names."""

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root
        files = sorted((root / "src").rglob("*.py"))
        self.texts = {str(file.relative_to(root)): file.read_text() for file in files}
        self.mentions: defaultdict[str, list[Place]] = defaultdict(list)
        for file, text in self.texts.items():
            for node, place in Blocks(file, ast.parse(text)).place_of.items():
                name = node.id if isinstance(node, ast.Name) else getattr(node, "attr", None)
                whole = place._replace(number=0)
                if name is not None and whole not in self.mentions[name]:
                    self.mentions[name].append(whole)

    def tests_of(self, place: Place, reached: "Reached") -> list[str]:
        """Tests that enter the block, or else its function; for a name, those of functions with it."""
        if place.records:
            found = reached.entering(place.key) or reached.entering(place._replace(number=0).key)
            return self.existing(found)
        seen, waiting, entering = {place}, [place], []
        while waiting:
            here = waiting.pop()
            for other in itertools.chain.from_iterable(self.mentions[name] for name in here.names):
                if other in seen:
                    continue
                seen.add(other)
                if other.records:
                    entering.append(other)
                else:
                    waiting.append(other)
        same = [other for other in entering if other.file == place.file]
        found = reached.entering(*(other.key for other in same)) or reached.entering(
            *(o.key for o in entering)
        )
        return self.existing(found)

    def existing(self, tests: list[str]) -> list[str]:
        """Tests of a map that still exist."""
        files = {test: (self.root / test.split("::")[0], test.split("::")[-1]) for test in tests}
        return [
            t for t, (file, name) in files.items() if file.exists() and f"def {name}(" in file.read_text()
        ]

    def functions_of(self, file: str) -> Place:
        """A place that stands for all functions of a file."""
        blocks = Blocks(file, ast.parse(self.texts[file])).bodies
        names = {name for _, place in blocks for name in place.names}
        return Place(file, names=tuple(sorted(names)))


class Reached(NamedTuple):
    """Tests, narrowest first, and for each block the places in that list of the tests that enter it."""

    tests: list[str]
    blocks: dict[str, list[int]]

    @classmethod
    def of_runs(cls, entered: dict[str, set[str]]) -> "Reached":
        """From the blocks that each test entered."""
        tests = sorted(entered, key=lambda test: (len(entered[test]), test))
        blocks: defaultdict[str, list[int]] = defaultdict(list)
        for place, test in enumerate(tests):
            for block in entered[test]:
                blocks[block].append(place)
        return cls(tests, blocks)

    def entering(self, *blocks: str) -> list[str]:
        """All tests that enter one of the blocks, in the order in which they run.

        First come the narrowest tests of several files, then those that compare predictions with written
        numbers, which most changes alter, then the others.
        """
        of_file: Counter[str] = Counter()
        first, written, others = [], [], []
        for place in sorted({place for block in blocks for place in self.blocks.get(block, ())}):
            test = self.tests[place]
            file = test.split("::")[0]
            of_file[file] += 1
            if file.endswith("_written.py"):
                written.append(test)
            elif of_file[file] <= FIRST_OF_A_FILE and len(first) < FIRST:
                first.append(test)
            else:
                others.append(test)
        return first + written + others


class Run(NamedTuple):
    """One run of pytest: how it ended, and what the hooks below wrote."""

    code: int | None
    seconds: float
    ended: float
    log: list[dict[str, Any]]

    @property
    def failed(self) -> str | None:
        """The first test, or file of tests, that failed."""
        return next((line["failed"] for line in self.log if "failed" in line), None)

    @property
    def last_started(self) -> str | None:
        """The last test that began."""
        return next((line["started"] for line in reversed(self.log) if "started" in line), None)

    @property
    def seconds_of_last(self) -> float:
        """Seconds from the begin of the last test to the end of the run."""
        return self.ended - next((line["at"] for line in reversed(self.log) if "started" in line), self.ended)


def copy_tree(root: Path, to: Path) -> Path:
    """Copy the repository with all times of change, by which caches of compiled code know their sources."""
    shutil.copytree(root, to, ignore=NOT_COPIED, symlinks=True)
    return to


def run_tests(tree: Path, tests: Sequence[str], limit_seconds: float, *options: str, cases: int = 0) -> Run:
    """Run tests in a process with the sources of `tree`; `code` is None if the time did not suffice.

    `cases` limits how many cases of each parametrised test run; 0 means all.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.jsonl"
        log.touch()
        paths = (tree / "src", tree, ROOT, *filter(None, [os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, LOG: str(log), CASES: str(cases)}
        # Graphs that `torch.compile` cached would not run the passes again, which may have changed
        environment["TORCHINDUCTOR_CACHE_DIR"] = f"{folder}/inductor"
        environment["PYTHONPATH"] = os.pathsep.join(map(str, paths))
        words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.hardening.reached", *QUICK]
        arguments = Path(folder) / "arguments"
        arguments.write_text("\n".join(tests))
        process = subprocess.Popen(
            [sys.executable, *words, f"--basetemp={folder}/tests", *options, f"@{arguments}"],
            cwd=tree,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        begun = time.monotonic()
        code: int | None = None
        with suppress(subprocess.TimeoutExpired):
            code = process.wait(limit_seconds)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        lines = [json.loads(line) for line in log.read_text().splitlines() if line.endswith("}")]
        ended = time.monotonic()
        return Run(code, ended - begun, ended, lines)


def make_map(root: Path, processes: int, limit_seconds: float) -> Reached:
    """Run two cases of each test in a recording copy of the repository; keep the code that Numba compiles."""
    begin = f"import builtins\nbuiltins.__dict__.setdefault({ENTERED!r}, set())\n"
    with tempfile.TemporaryDirectory() as folder:
        tree = copy_tree(root, Path(folder) / "tree")
        for file, text in Sources(root).texts.items():
            recorded = recording(file, text)
            if file.count("/") == 2 and file.endswith("__init__.py"):
                recorded = begin + recorded
            if ENTERED in recorded:
                (tree / file).write_text(recorded)
        files = sorted(str(file.relative_to(tree)) for file in (tree / "tests").rglob("test_*.py"))
        parts = [files[part::processes] for part in range(processes)]
        with ThreadPoolExecutor(processes) as pool:
            # A file that cannot be imported would otherwise end the run of all files of its part
            further = "--continue-on-collection-errors"
            runs = list(
                pool.map(
                    lambda part: run_tests(tree, part, limit_seconds, further, cases=CASES_OF_MAP), parts
                )
            )
        for compiled in (tree / "src").rglob("*.nb[ci]"):
            kept = root / compiled.relative_to(tree)
            kept.parent.mkdir(exist_ok=True)
            shutil.copy2(compiled, kept)
    for part, run in zip(parts, runs, strict=True):
        if run.code not in (0, 1, 5):
            last = run.last_started or "no test"
            print(f"map: a run of {len(part)} files ended early, after {last}", file=sys.stderr)
    entered: defaultdict[str, set[str]] = defaultdict(set)
    for line in itertools.chain.from_iterable(run.log for run in runs):
        if "entered" in line:
            entered[line["test"].split("[")[0]] |= set(line["entered"])
    return Reached.of_runs(entered)


# Hooks of pytest for the processes that `run_tests` starts

OF_FIXTURE: dict[Any, set[str]] = {}
"""Blocks that each fixture entered."""


def _write(**line: Any) -> None:
    with Path(os.environ[LOG]).open("a") as log:
        log.write(json.dumps(line) + "\n")


def _entered() -> set[str]:
    entered: set[str] = builtins.__dict__.setdefault(ENTERED, set())
    return entered


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Keep the first cases of each test."""
    most, cases = int(os.environ[CASES]), Counter[str]()
    for item in list(items):
        test = item.nodeid.split("[")[0]
        cases[test] += 1
        if 0 < most < cases[test]:
            items.remove(item)


def pytest_runtest_logstart(nodeid: str) -> None:
    """Forget what earlier tests entered."""
    _entered().clear()
    _write(started=nodeid, at=time.monotonic())


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any) -> Generator[None, Any, Any]:
    """Record the blocks that a fixture enters, apart from those of the test that asks for it first."""
    before = {*_entered()}
    _entered().clear()
    try:
        return (yield)
    finally:
        OF_FIXTURE.setdefault(fixturedef, set()).update(_entered())
        _entered().update(before)


def pytest_runtest_teardown(item: Any) -> None:
    """Add the blocks of the test's fixtures: one that several tests share is set up for the first of them."""
    for fixturedef in itertools.chain.from_iterable(item._fixtureinfo.name2fixturedefs.values()):
        _entered().update(OF_FIXTURE.get(fixturedef, ()))


def pytest_runtest_logreport(report: Any) -> None:
    """Write the name of a test that failed."""
    if report.failed:
        _write(failed=report.nodeid)


def pytest_collectreport(report: Any) -> None:
    """Write the name of a file that could not be imported."""
    if report.failed:
        _write(failed=report.nodeid)


def pytest_runtest_logfinish(nodeid: str) -> None:
    """Write the blocks that a test entered."""
    if _entered():
        _write(test=nodeid, entered=sorted(_entered()))


def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("map", type=Path, help="JSON file to write")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3600, help="end the tests after so many")
    asked = parser.parse_args()
    made = make_map(ROOT, asked.processes, asked.seconds)
    asked.map.write_text(json.dumps(made._asdict()))
    print(f"{len(made.tests)} tests enter {len(made.blocks)} blocks")
    return 0


if __name__ == "__main__":
    raise SystemExit(_main())
