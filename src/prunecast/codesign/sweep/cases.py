"""`SweepCase`: one case of a sweep, and the key under which its result is stored.

`SweepStore`: an SQLite file with the results, so that a rerun computes only the missing ones.
"""

import hashlib
import itertools
import json
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from prunecast.arguments import checked
from prunecast.errors import BadInput, check_choice
from prunecast.files import aside, check_writable, put_unless_filled
from prunecast.hardware import load_gpu
from prunecast.kernels import KERNELS
from prunecast.launch import Conditions
from prunecast.patterns import parse_pattern
from prunecast.patterns.pattern import check_sparsity
from prunecast.version import tool_version
from prunecast.workload.candidates import kernels_of, takes
from prunecast.workload.engines import ENGINES, check_dtype_of_plans
from prunecast.workload.graph.shapes import MOST_TOKENS
from prunecast.workload.pruned_maps import no_taller_than, sparsity_for


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepCase:
    """One product to predict: C (M, N) = A (M, K) @ B (K, N), by one kernel on one GPU.

    A has random weights that are pruned to a pattern.

    Parameters
    ----------
    gpu : name of the GPU, or path of a spec file
    m, k, n : sizes of the product
    dtype : number format of A, B and C
    pattern, sparsity : pattern to which A is pruned; sparsity is None for patterns with a fixed sparsity
    kernel : name of the kernel
    engine, state, launch : as in `predict`
    seed : seed of the random weights
    """

    gpu: str
    m: int
    k: int
    n: int
    dtype: str
    pattern: str
    sparsity: float | None
    kernel: str
    engine: str
    state: str
    launch: str
    seed: int

    def key(self, fingerprint: str | None = None) -> str:
        """Return the key of the result, a hash of the case, the GPU's spec and the version of this package.

        The key is the first 32 hex digits of a SHA-256.

        Parameters
        ----------
        fingerprint : fingerprint of the GPU spec. None reads the spec file, which needs longer than most
            predictions
        """
        numbers = {
            **asdict(self),
            "gpu": fingerprint or load_gpu(self.gpu).fingerprint,
            "version": tool_version(),
        }
        return hashlib.sha256(json.dumps(numbers, sort_keys=True).encode()).hexdigest()[:32]


class GroupKey(NamedTuple):
    """Key of a group of cases that share one pruned matrix, so that the matrix is pruned only once."""

    m: int
    k: int
    pattern: str
    sparsity: float | None
    seed: int


MOST_ELEMENTS = 2**36
"""Largest number of elements of A, B or C: a plan of more tiles does not fit into memory. No GPU has as much.
Kind: choice."""


@checked
def expand(
    *,
    gpus: Sequence[str],
    shapes: Iterable[Sequence[int]],
    patterns: Sequence[str],
    sparsities: Sequence[float],
    kernels: Sequence[str] = (),
    dtype: str = "fp16",
    engine: str = "model",
    state: str = "burst",
    launch: str = "graph",
    seed: int = 0,
) -> list[SweepCase]:
    """Return a case for each combination that a kernel can run, and one dense case per GPU and shape.

    Parameters
    ----------
    gpus : names or spec files of GPUs
    shapes : sizes (M, K, N) of the products
    patterns, sparsities : patterns to prune to, each at every sparsity unless its sparsity is fixed. Tiles
        taller than M get its height, as in `predict`
    kernels : kernels to predict. If it is empty, all kernels that can run a pattern are used, with two
        exceptions. CSR is used only if no other kernel can run the pattern, since on tiles it is tens of
        times slower and its prediction needs longest. Kernels for few tokens are used only with few tokens
    dtype : number format of A, B and C
    engine, state, launch : as in `predict`
    seed : seed of the random weights

    Raises
    ------
    BadInput : a name is unknown, a number is out of range, or a kernel of `kernels` runs none of the patterns
    """
    if not gpus:
        raise BadInput("gpus must name at least one GPU, got none")
    for name, given in (("patterns", patterns), ("sparsities", sparsities)):
        if kernels and not given:
            raise BadInput(f"{name} must have at least one, got none")
    for gpu in gpus:
        load_gpu(gpu)
    check_choice("engine", engine, ENGINES)
    Conditions(state, launch)  # raises BadInput for unknown ones
    check_dtype_of_plans(dtype, "a sweep")
    if not 0 <= seed < 2**32:  # as in `search_model`: Optuna's sampler accepts these
        raise BadInput(f"seed must be from 0 to 2^32 - 1, got {seed}")
    for kernel in kernels:
        check_choice("kernel", kernel, [name for name, known in KERNELS.items() if not known.parts])
    sizes = list(shapes)
    if not sizes:
        raise BadInput("shapes: wanted an M x K x N (--shape 4096x4096x2048) or a --workload, got neither")
    for each in sizes:
        text = " x ".join(map(str, each))
        if len(each) != 3 or min(each) < 1:
            raise BadInput(f"a shape must be M x K x N, each from 1, got {text}")
        m, k, n = each
        if max(each) > MOST_TOKENS or max(m * k, k * n, m * n) > MOST_ELEMENTS:
            raise BadInput(f"shape {text}: wanted sides up to {MOST_TOKENS}, matrices up to {MOST_ELEMENTS}")
    kinds = list(dict.fromkeys(_kinds(patterns, sparsities, kernels)))
    idle = [name for name in kernels if name not in {kernel for _, _, kernel in kinds}]
    if idle:
        raise BadInput(f"kernel {idle[0]} runs none of the patterns {', '.join(patterns)}")
    common = {"dtype": dtype, "engine": engine, "state": state, "launch": launch}
    cases = (
        SweepCase(
            gpu=gpu,
            m=m,
            k=k,
            n=n,
            pattern=no_taller_than(pattern, m).canonical,
            sparsity=sparsity,
            kernel=kernel,
            seed=seed,
            **common,
        )
        for (m, k, n), (pattern, sparsity, kernel), gpu in itertools.product(sizes, kinds, gpus)
        if kernels or takes(kernel, n)
    )
    return list(dict.fromkeys(cases))


def groups_of(cases: Iterable[SweepCase]) -> dict[GroupKey, list[SweepCase]]:
    """Group the cases by their pruned matrix, which M, K, pattern, sparsity and seed determine."""
    groups: dict[GroupKey, list[SweepCase]] = {}
    for case in cases:
        key = GroupKey(case.m, case.k, case.pattern, case.sparsity, case.seed)
        groups.setdefault(key, []).append(case)
    return groups


def _kinds(
    patterns: Sequence[str], sparsities: Sequence[float], kernels: Sequence[str]
) -> Iterable[tuple[str, float | None, str]]:
    """Yield the pattern, sparsity and kernel of each case, dense first."""
    yield "dense", None, "dense"
    for sparsity in sparsities:
        check_sparsity(sparsity)
    for text in patterns:
        pattern = parse_pattern(text)
        if pattern.canonical == "dense":
            continue
        for sparsity in sparsities:
            # None for patterns with a fixed sparsity, so that equal cases become one
            own = sparsity_for(pattern, sparsity, natural=True)
            for kernel in _kernels(pattern.canonical, kernels):
                yield pattern.canonical, own, kernel


def _kernels(pattern: str, asked: Sequence[str]) -> list[str]:
    able = [kernel for kernel in kernels_of(pattern) if not KERNELS[kernel].parts]
    if asked:
        return [kernel for kernel in able if kernel in asked]
    return [kernel for kernel in able if not KERNELS[kernel].runs_any_mask] or able


SCHEMA = 1
"""Version of the file, in SQLite's `user_version`. A change of `COLUMNS` or of the meaning of a key needs a
new one: other files are refused."""
_CASE = tuple(field.name for field in fields(SweepCase))
_RESULT = ("seconds", "sparsity_reached", "bound", "error")
COLUMNS = ("key", *_CASE, *_RESULT)
_TYPES = {"m": "INTEGER", "k": "INTEGER", "n": "INTEGER", "seed": "INTEGER"} | dict.fromkeys(
    ("sparsity", "seconds", "sparsity_reached"), "REAL"
)
_KINDS: dict[str, type | tuple[type, ...]] = {"TEXT": str, "INTEGER": int, "REAL": (int, float)}
_MAY_LACK = ("sparsity", *_RESULT)
_OBJECTS = {("table", "results"), ("index", "sqlite_autoindex_results_1")}
"""All objects of a file (kind, name); the index is SQLite's own, of the key."""


class SweepStore:
    """SQLite file with a table `results`, which has one row per case. Use it as a context manager.

    Parameters
    ----------
    path : the file, which is created if it does not exist

    Raises
    ------
    BadInput : the file is not a database with this schema (it is left unchanged), or cannot be written
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        check_writable(path, "results")
        if not self._path.exists() or self._path.stat().st_size == 0:
            self._make_file()
        try:
            self._connection = sqlite3.connect(self._path)
            self._connection.execute("PRAGMA trusted_schema = OFF")
            # query SQLite, not the file size: a run killed here leaves a journal to roll back
            if not self._objects():
                _create_table(self._connection)
            found = self._connection.execute("PRAGMA user_version").fetchone()[0]
            columns = [row[1] for row in self._connection.execute("PRAGMA table_info(results)")]
            # refuse views and triggers, which would run foreign SQL
            foreign = [name for kind, name in self._objects() if (kind, name) not in _OBJECTS]
        except (sqlite3.Error, ValueError) as error:
            raise BadInput(f"{path} must be an SQLite file of results: {error}") from None
        if found != SCHEMA or tuple(columns) != COLUMNS or foreign:
            self._connection.close()
            raise BadInput(f"{path} must be a file of sweep results of schema {SCHEMA}, got schema {found}")

    def __enter__(self) -> "SweepStore":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def missing(self, cases: Iterable[SweepCase]) -> list[SweepCase]:
        """Return the cases that have no row in the table, in the given order."""
        known = {row[0] for row in self._read("SELECT key FROM results")}
        wanted = list(cases)
        prints = {name: load_gpu(name).fingerprint for name in {case.gpu for case in wanted}}
        return [case for case in wanted if case.key(prints[case.gpu]) not in known]

    def add(self, cases: Sequence[SweepCase], rows: Sequence[dict[str, Any]]) -> None:
        """Store the results of cases in one transaction, so that they survive if the process is killed.

        Parameters
        ----------
        rows : result of each case, as `predict_group` returns it

        Raises
        ------
        BadInput : the file cannot be written
        """
        marks = ", ".join("?" for _ in COLUMNS)
        values = [
            [{**asdict(case), **row}[column] for column in COLUMNS]
            for case, row in zip(cases, rows, strict=True)
        ]
        try:
            with self._connection:
                self._connection.executemany(f"INSERT OR REPLACE INTO results VALUES ({marks})", values)
        except sqlite3.Error as error:
            raise BadInput(f"cannot write {self._path}: {error}") from None

    def rows(self) -> list[dict[str, Any]]:
        """Return all rows of the table as dictionaries, sorted by the fields of `SweepCase`.

        Raises
        ------
        BadInput : the file cannot be read, or a value has the wrong type
        """
        order = ", ".join(_CASE)
        found = self._read(f"SELECT {', '.join(COLUMNS)} FROM results ORDER BY {order}")
        rows = [dict(zip(COLUMNS, row, strict=True)) for row in found]
        for row in rows:
            self._check(row)
        return rows

    def _read(self, query: str) -> list[Any]:
        try:
            return self._connection.execute(query).fetchall()
        except sqlite3.Error as error:
            raise BadInput(f"cannot read {self._path}: {error}") from None

    def _check(self, row: dict[str, Any]) -> None:
        """Raise BadInput for values of another type than their column's, which SQLite would accept."""
        for name, value in row.items():
            kinds = _KINDS[_TYPES.get(name, "TEXT")]
            if not isinstance(value, kinds) and not (value is None and name in _MAY_LACK):
                raise BadInput(f"{self._path}: {name} of a result must be of {kinds}, got {value!r:.80}")

    def _objects(self) -> list[tuple[str, str]]:
        return self._connection.execute("SELECT type, name FROM sqlite_master").fetchall()

    def _make_file(self) -> None:
        """Create the file atomically, so that a full disk leaves no file without its table."""
        with suppress(FileExistsError), aside(self._path, put=put_unless_filled) as unfinished:
            try:
                with closing(sqlite3.connect(unfinished)) as connection:
                    _create_table(connection)
            except sqlite3.Error as error:
                raise BadInput(f"cannot write {self._path}: {error}") from None


def _create_table(connection: sqlite3.Connection) -> None:
    columns = ", ".join(f"{name} {_TYPES.get(name, 'TEXT')}" for name in COLUMNS[1:])
    with connection:
        connection.execute("BEGIN IMMEDIATE")  # Python opens a transaction only for INSERT, UPDATE, DELETE
        connection.execute(f"CREATE TABLE results (key TEXT PRIMARY KEY, {columns})")
        connection.execute(f"PRAGMA user_version = {SCHEMA}")
