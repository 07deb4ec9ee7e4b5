"""Read and write recorded runs: CSV files with one row for each run, case, kernel and state.

A file begins with lines that start with `#`: the schema, then one line for each run, with the number and the
header (JSON) of the run. A row contains all fields of its case, so that a record can be read without the file
of its suite. Maps and plans are recreated from the case and its seed. Files are never overwritten.
"""

import csv
import itertools
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TextIO, get_args, get_origin, get_type_hints

from prunecast.errors import BadInput
from prunecast.files import MIB, parse_json, read_text
from prunecast.validation.case import (
    FIRST_SCHEMA,
    RECORD_SCHEMA,
    RECORDED,
    Case,
    RowKey,
    check_case,
    conditions_of,
    recorded,
)

KIND = "# prunecast validation, schema "
CASE_COLUMNS = (
    *("name", "m", "k", "n", "dtype", "pattern", "sparsity", "distribution", "seed", *RECORDED, "use"),
)
MARK_BORDER = " | "
LARGEST_RECORD = 64 * MIB
LARGEST = 2**63
"""Upper limit of the numbers of a record; it also excludes infinity and NaN."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHeader:
    """The conditions of a run.

    Parameters
    ----------
    gpu : name of the GPU spec, such as `h200-sxm`
    suite : name of the suite
    suite_fingerprint : `Suite.fingerprint` of the suite
    date : ISO date and time, UTC
    device : properties of the GPU, and version of the driver
    versions : versions of prunecast, CuPy, CUDA, cuBLAS, Python and NumPy, the commit, and digests of CUDA
        sources
    protocol : settings of the measurement, such as rests, graph lengths and repeats
    """

    gpu: str
    suite: str
    suite_fingerprint: str
    date: str
    device: dict[str, Any]
    versions: dict[str, str]
    protocol: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Measured time of one case with one kernel.

    Parameters
    ----------
    case : the case, with only this kernel in `kernels`
    kernel : name of the kernel that ran
    seconds : median time of one launch; None if it was not measured
    low_s, high_s : 10 % and 90 % quantiles of the samples, in seconds; in a row that `merge_rows` averaged,
        the least and the largest of these of any run
    spread : (high_s - low_s) / median of one run; in a merged row, of the newest one
    samples : number of samples, of all runs of a merged row together
    clock_mhz : median SM clock during the samples, from cycle and nanosecond counters on all SMs
    power_w : mean power of sustained samples; None in bursts, which are too short to measure it
    temperature_c : temperature of the GPU after the samples
    throttle : throttling reasons that the driver reports, `none` if there are none
    excess : largest ratio of an element's error in C to its bound, at most 1 if C is correct; None if
        unchecked
    config : short name of the kernel's config; for cuBLAS the faster layout of B (`KN` or `NK`)
    plan : fingerprint of the plan that ran; empty for libraries
    marks : remarks on the row: `spread`, `throttled`, `wrong`, `skipped: ...`
    board_seconds : `seconds` of each run that `merge_rows` averaged into this row, oldest first; empty for a
        row of a single run
    """

    case: Case
    kernel: str
    seconds: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    spread: float | None = None
    samples: int = 0
    clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    throttle: str = "none"
    excess: float | None = None
    config: str = ""
    plan: str = ""
    marks: tuple[str, ...] = ()
    board_seconds: tuple[float, ...] = ()

    @property
    def key(self) -> RowKey:
        """Key of the row: its case, kernel and conditions."""
        return self.case.key(self.kernel)

    @property
    def board_spread(self) -> float | None:
        """Time of the slowest run divided by that of the fastest, minus 1; None for a row of a single run."""
        return max(self.board_seconds) / min(self.board_seconds) - 1.0 if self.board_seconds else None

    @property
    def usable(self) -> bool:
        """True if the row has a time and a correct result, and was not thermally throttled."""
        return self.seconds is not None and not any(mark in ("wrong", "throttled") for mark in self.marks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One recorded run: its conditions and its measurements."""

    header: RunHeader
    rows: tuple[Measurement, ...] = field(repr=False)


ROW_COLUMNS = tuple(f.name for f in fields(Measurement) if f.name not in ("case", "board_seconds"))
COLUMNS = ("run", *CASE_COLUMNS, *ROW_COLUMNS)
COLUMNS_OF = {
    schema: tuple(name for name in COLUMNS if RECORDED.get(name, schema) <= schema)
    for schema in range(FIRST_SCHEMA, RECORD_SCHEMA + 1)
}
"""Schema -> its columns, of all schemas that are read."""


class RunWriter:
    """Writer of a new record file of one run. Rows are written at once, so an interrupted run keeps them.

    Raises
    ------
    BadInput : the file already exists, or cannot be written
    """

    def __init__(self, path: Path, header: RunHeader) -> None:
        self._file = _opened(path)
        self._file.write(_head(header))
        self._table = csv.writer(self._file, lineterminator="\n")

    def add(self, row: Measurement) -> None:
        """Append one row and flush the file."""
        self._table.writerow(_cells(1, row))
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _opened(path: Path) -> TextIO:
    try:
        return path.open("x", encoding="utf-8", newline="")
    except FileExistsError:
        raise BadInput(f"{path}: records are never overwritten, and this file is there already") from None
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise BadInput(f"{path}: cannot write records: {reason}") from None


def _head(header: RunHeader) -> str:
    run = f"# run 1: {json.dumps(asdict(header), separators=(',', ':'))}"
    return "\n".join([f"{KIND}{RECORD_SCHEMA}", run, ",".join(COLUMNS), ""])


def _cells(run: int, row: Measurement) -> list[str]:
    """Return the texts of a row, with numbers rounded to 5 digits and empty texts for unknown values."""
    case = ["" if row.case.name == row.case.usual_name else row.case.name]
    entries = row.case.document() | recorded(row.case.conditions)
    case += [_text(entries[name]) for name in CASE_COLUMNS[1:]]
    return [str(run), *case, *(_text(getattr(row, name)) for name in ROW_COLUMNS)]


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return MARK_BORDER.join(value)
    return "" if value is None else f"{value:.5g}" if isinstance(value, float) else str(value)


def read_runs(path: str | Path) -> tuple[Run, ...]:
    """Return the runs of one file, in the order of their numbers.

    Raises
    ------
    BadInput : the file is unreadable, or has another schema or an invalid line
    """
    where = str(path)
    lines = _lines(path)
    headers = _headers(lines, where)
    rows: dict[str, list[Measurement]] = {str(number): [] for number in headers}
    columns = COLUMNS_OF[int(lines[0].removeprefix(KIND))]
    for number, cells in _table(lines[len(headers) + 1 :], columns, where):
        run = cells.pop("run")
        if run not in rows:
            raise BadInput(f"{where}: row {number} is of run {run!r:.80}, which the head does not have")
        rows[run].append(_row(cells, f"{where}: row {number}"))
    return tuple(
        Run(header=header, rows=tuple(found))
        for header, found in zip(headers.values(), rows.values(), strict=True)
    )


def _lines(path: str | Path) -> list[str]:
    wanted = "a record of a validation"
    lines = read_text(path, wanted, most=LARGEST_RECORD).split("\n")
    if not lines[0].startswith(KIND):
        raise BadInput(f"{path}: wanted {wanted}, its first line is not `{KIND}{RECORD_SCHEMA}`")
    schema, known = lines[0].removeprefix(KIND), list(map(str, COLUMNS_OF))
    if schema not in known:
        raise BadInput(f"{path}: wanted {wanted} of schema {' or '.join(known)}, got {schema:.80}")
    return lines


def _headers(lines: list[str], where: str) -> dict[int, RunHeader]:
    """Return run number -> header, from the lines after the first that begin with `#`."""
    found: dict[int, RunHeader] = {}
    for line in itertools.takewhile(lambda line: line.startswith("#"), lines[1:]):
        number = len(found) + 1
        name, _, text = line.partition(": ")
        if name != f"# run {number}":
            raise BadInput(f"{where}: wanted the header of run {number}, got {line:.80}")
        found[number] = _header(text, f"{where}: run {number}")
    if not found:
        raise BadInput(f"{where}: the record has no run")
    return found


def _header(text: str, where: str) -> RunHeader:
    try:
        document = parse_json(text)
        header = RunHeader(**{f.name: document[f.name] for f in fields(RunHeader)})
    except (KeyError, TypeError) as error:
        raise BadInput(f"{where}: the header lacks {error}") from None
    except (ValueError, RecursionError):
        raise BadInput(f"{where}: the header is no JSON object") from None
    for name, kind in get_type_hints(RunHeader).items():
        value = getattr(header, name)
        if not isinstance(value, get_origin(kind) or kind):
            raise BadInput(f"{where}: {name} of a line must be {kind}, got {value!r:.80}")
    return header


def _table(lines: list[str], columns: tuple[str, ...], where: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the number and the cells by column of each row that is not empty."""
    if not lines or tuple(lines[0].split(",")) != columns:
        raise BadInput(f"{where}: wanted the columns {','.join(columns)}")
    rows = csv.reader(line + "\n" for line in lines[1:])
    try:
        for number, cells in enumerate(rows, 1):
            if cells and len(cells) != len(columns):
                raise BadInput(f"{where}: row {number} has {len(cells)} cells of {len(columns)}")
            if cells:
                yield number, dict(zip(columns, cells, strict=True))
    except csv.Error as error:
        raise BadInput(f"{where}: a row is no CSV: {error}") from None


def _row(cells: dict[str, str], where: str) -> Measurement:
    names = [name for name in CASE_COLUMNS if name not in RECORDED]
    case = {name: _value(_CASE_TYPES[name], name, cells[name], where) for name in names}
    made = Case(**case, kernels=(cells["kernel"],), conditions=conditions_of(cells, where))
    made = replace(made, name=made.name or made.usual_name)
    rest = {name: _value(_ROW_TYPES[name], name, cells[name], where) for name in ROW_COLUMNS}
    return Measurement(case=check_case(made, where), **rest)


_CASE_TYPES, _ROW_TYPES = get_type_hints(Case), get_type_hints(Measurement)


def _value(wanted: Any, name: str, text: str, where: str) -> Any:
    """Convert the text of a cell to `wanted`, the type of the field `name`.

    Raises BadInput for a text that is not a number where one is needed, for infinite or huge numbers, and for
    times of 0 or less.
    """
    kinds = get_args(wanted) or (wanted,)
    if get_origin(wanted) is tuple:
        return tuple(text.split(MARK_BORDER)) if text else ()
    if text == "" and type(None) in kinds:
        return None
    if str in kinds:
        return text
    try:
        number = int(text) if int in kinds else float(text)
    except ValueError:
        raise BadInput(f"{where}: {name} must be a number, got {text!r:.80}") from None
    if not abs(number) < LARGEST or (name.endswith(("seconds", "_s")) and number <= 0):
        raise BadInput(f"{where}: {name} of a line must be a sensible number, got {number!r:.80}")
    return number
