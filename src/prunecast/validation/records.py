"""Recorded runs: one JSON-lines file per run, a header and one line per case, kernel and state.

A line holds the whole case, so that a record outlives the suite that it came from; maps and plans are made
again from the case's seed. Files are never overwritten.
"""

import json
import os
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from prunecast.errors import BadInput
from prunecast.files import MIB, parse_json, read_text
from prunecast.validation.case import Case, check_case

__all__ = ["RECORD_SCHEMA", "Measurement", "Run", "RunHeader", "RunWriter", "read_run"]

RECORD_SCHEMA = 1
LARGEST_RECORD = 64 * MIB
LARGEST = 2**63
"""Above every number of a record; refuses infinity and NaN too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHeader:
    """What a run was made with.

    Parameters
    ----------
    gpu : name of the spec, `h200-sxm`
    suite, suite_fingerprint : as in `Suite`
    date : ISO date and time, UTC
    device : what the driver says about the GPU
    versions : driver, CUDA, CuPy, Python, prunecast and commit
    protocol : rests, graph lengths, repeats
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
    """One case run by one kernel.

    Parameters
    ----------
    case : the case, its `kernels` narrowed to this one
    kernel : what ran
    seconds : median time of one launch; None if it was not measured
    low_s, high_s : 10 % and 90 % quantiles
    spread : (high - low) / median
    samples : number of samples
    clock_mhz : SM clock while it ran: cycles over nanoseconds, read on all SMs
    power_w : mean over the run, None in bursts, which are too short for it
    temperature_c : after the samples
    throttle : reasons that the driver gave, `none` if none
    excess : largest error of C over its bound, at most 1 is right; None if it was not checked
    variant : which of several ways was the fastest (layout of cuBLAS), or the shape of the block
    plan : fingerprint of the plan that ran, or empty
    marks : what a reader must know: `spread`, `throttled`, `wrong`, `skipped: ...`
    board_seconds : `seconds` of every run whose mean the row is (`merged`), oldest first; empty in a file
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
    variant: str = ""
    plan: str = ""
    marks: tuple[str, ...] = ()
    board_seconds: tuple[float, ...] = ()

    @property
    def board_spread(self) -> float | None:
        """Slowest run over the fastest, less 1; None where one run says it all."""
        return max(self.board_seconds) / min(self.board_seconds) - 1.0 if self.board_seconds else None

    @property
    def usable(self) -> bool:
        """Measured, right and not throttled for heat: errors may be quoted from it."""
        return self.seconds is not None and not any(mark in ("wrong", "throttled") for mark in self.marks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One file."""

    header: RunHeader
    rows: tuple[Measurement, ...] = field(repr=False)


class RunWriter:
    """A new record file, written line by line so that an interrupted run keeps what it has.

    Raises
    ------
    BadInput : the file is there already, or cannot be written
    """

    def __init__(self, path: Path, header: RunHeader) -> None:
        try:
            self._file = path.open("x", encoding="utf-8")
        except FileExistsError:
            raise BadInput(f"{path}: records are never overwritten, and this file is there already") from None
        except OSError as error:
            reason = os.strerror(error.errno or 0)
            raise BadInput(f"{path}: cannot write records: {reason}") from None
        self._write({"schema": RECORD_SCHEMA, "kind": "prunecast validation"} | asdict(header))

    def add(self, row: Measurement) -> None:
        """Append one row."""
        self._write(_compact(row))

    def close(self) -> None:
        """Finish the file."""
        self._file.close()

    def _write(self, document: dict[str, Any]) -> None:
        self._file.write(json.dumps(document, separators=(",", ":")) + "\n")
        self._file.flush()


def read_run(path: str | Path) -> Run:
    """Read one file.

    Raises
    ------
    BadInput : unreadable, of another schema, or a line without sense
    """
    where = str(path)
    documents = _documents(Path(path), f"{where}: wanted a record of a validation")
    if not all(isinstance(document, dict) for document in documents):
        raise BadInput(f"{where}: wanted a record of a validation, one JSON object per line")
    if not documents or documents[0].get("kind") != "prunecast validation":
        raise BadInput(f"{where}: wanted a record of a validation, its first line is no header")
    if documents[0].get("schema") != RECORD_SCHEMA:
        raise BadInput(
            f"{where}: records must be of schema {RECORD_SCHEMA}, got {documents[0].get('schema')!r:.80}"
        )
    try:
        header = RunHeader(**{f.name: documents[0][f.name] for f in fields(RunHeader)})
        _check_types(header, where)
        return Run(header=header, rows=tuple(_row(document, where) for document in documents[1:]))
    except (KeyError, TypeError) as error:
        raise BadInput(f"{where}: a line of the record lacks or has too much of: {error}") from None


def _documents(path: Path, wanted: str) -> list[Any]:
    """One for each line that is not empty; `wanted` is what the refusal begins with."""
    lines = read_text(path, "a record of a validation", most=LARGEST_RECORD).splitlines()
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found += [parse_json(line)] if line.strip() else []
        except (ValueError, RecursionError):
            raise BadInput(f"{wanted}, one JSON object per line, but line {number} is none") from None
    return found


_DEFAULT = {"throttle": "none", "samples": 0, "variant": "", "plan": "", "marks": (), "board_seconds": ()}


def _compact(row: Measurement) -> dict[str, Any]:
    """The line of a row without what is at its default, numbers cut to what was measured."""
    found: dict[str, Any] = {}
    case = row.case.document()
    del case["kernels"]
    found["case"] = case
    for f in fields(Measurement)[1:]:
        value = getattr(row, f.name)
        if value is None or value == _DEFAULT.get(f.name):
            continue
        found[f.name] = float(f"{value:.5g}") if isinstance(value, float) else value
    return found


def _row(document: dict[str, Any], where: str) -> Measurement:
    case = Case(**document["case"], kernels=(document["kernel"],))
    _check_types(case, where)
    rest = {name: value for name, value in document.items() if name != "case"}
    rest["marks"] = tuple(rest.get("marks", ()))
    row = Measurement(case=check_case(case, where), **rest)
    _check_types(row, where)
    return row


def _check_types(record: RunHeader | Case | Measurement, where: str) -> None:
    """Refuse values of another type than their field's, infinite numbers and times of 0 or less."""
    for name, wanted in get_type_hints(type(record)).items():
        value = getattr(record, name)
        kinds = tuple(get_origin(kind) or kind for kind in get_args(wanted) or (wanted,))
        kinds = (get_origin(wanted),) if get_origin(wanted) in (tuple, dict) else kinds
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (isinstance(value, kinds) or (number and float in kinds)) or isinstance(value, bool):
            raise BadInput(f"{where}: {name} of a line must be {wanted}, got {value!r:.80}")
        if (number and not abs(value) < LARGEST) or (
            name.endswith(("seconds", "_s")) and number and value <= 0
        ):
            raise BadInput(f"{where}: {name} of a line must be a sensible number, got {value!r:.80}")
        if isinstance(value, tuple) and not all(isinstance(text, str) for text in value):
            raise BadInput(f"{where}: {name} of a line must be texts, got {value!r:.80}")
