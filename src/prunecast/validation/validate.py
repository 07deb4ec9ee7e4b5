"""Measure a suite or read recorded runs, and compare the times with predictions.

A prediction applies to all GPUs of one model, whereas a run measures one board on one day, and boards differ
by 2 to 5 %. If several runs measured a plan with the same build of its kernel (`builds`), predictions are
compared with the geometric mean of their times. The times of the boards are kept too.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prunecast.arguments import checked
from prunecast.codesign.result import Result
from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec, load_gpu
from prunecast.text import Cells, table_text
from prunecast.validation.builds import build_of
from prunecast.validation.case import GROUP_COLUMNS, RowKey, recorded
from prunecast.validation.derive_spec import is_of_device
from prunecast.validation.judged import ErrorSummary, Judged, errors_of_groups, judge_rows
from prunecast.validation.records import Measurement, Run, RunWriter, read_runs
from prunecast.validation.suite import Suite, layers_of_part, load_suite
from prunecast.version import headed
from prunecast.workload.engines import ENGINES, Progress, silent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WORDS = (*GROUP_COLUMNS, "engine", "use")
"""Columns of the printed table that contain text; all others contain numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation(Result):
    """Measurements with their predictions.

    Parameters
    ----------
    gpu : GPU spec of the predictions
    engines : names of the engines that predicted
    rows : all rows of the records with their predictions, also rows without a measured time
    records : paths of the record files
    """

    gpu: GpuSpec
    engines: tuple[str, ...]
    rows: tuple[Judged, ...] = field(repr=False)
    records: tuple[str, ...]

    def families(self, use: str = "judge") -> dict[tuple[str, ...], ErrorSummary]:
        """Return a dict (kernel, state, engine) -> errors, of cases with the given use (`fit` or `judge`).

        Kernel and state are the texts of `case.GROUP_COLUMNS`.
        """
        own = [row for row in self.rows if row.case.use == use]
        found = {
            (*group.cells().values(), engine): summary
            for engine in self.engines
            for group, summary in errors_of_groups(own, lambda row: row.group, engine).items()
        }
        return dict(sorted(found.items(), key=lambda item: item[0][:-1]))

    def frame_rows(self) -> list[dict[str, Any]]:
        """Return one flat row for each measurement and engine."""
        return [_row_document(row, engine) for row in self.rows for engine in self.engines]

    def document(self) -> dict[str, Any]:
        """Return the JSON object of `--json`."""
        content = {
            "gpu": self.gpu.name,
            "spec_hash": self.gpu.fingerprint,
            "records": list(self.records),
            "rows": self.frame_rows(),
            "families": [{**names, **asdict(summary)} for names, summary in self._errors()],
        }
        return headed(content)

    def cells(self) -> list[Cells]:
        """Return the rows of the printed table, as texts: errors by kernel, state, engine and use."""
        return [
            {**names, **{name: text for name, text in summary.cells().items() if name != "worst"}}
            for names, summary in self._errors()
        ]

    def _errors(self) -> Iterator[tuple[dict[str, str], ErrorSummary]]:
        """Yield kernel, state, engine and use of the rows of a table of errors, and the errors."""
        for use in ("judge", "fit"):
            for names, summary in self.families(use).items():
                yield dict(zip(WORDS, (*names, use), strict=True)), summary

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines about rows for which no error is computed: number of rows and an example for each reason."""
        usable = [row for row in self.rows if row.measured.usable]
        left_out = {
            "not measured": [row for row in self.rows if row.measured.seconds is None],
            "not predicted": [row for row in usable if row.note],
            "measured with another plan than this version makes: not counted": [
                row for row in usable if not (row.same_plan or row.note)
            ],
            "wrong results: not counted": [row for row in self.rows if "wrong" in row.measured.marks],
        }
        return tuple(
            f"{len(rows)} row{'s' * (len(rows) != 1)} {what}, the first: "
            f"{'; '.join(rows[0].measured.marks) or rows[0].note or rows[0].case.name}"
            for what, rows in left_out.items()
            if rows
        )

    def plot(self) -> "Figure":
        """Draw predicted against measured times of the valid rows (`Judged.counts`) in a new figure."""
        from prunecast.validation.scatter import draw_scatter

        figure = draw_scatter(self.rows, self.gpu.title, self.engines)
        if figure is None:
            raise BadInput("no row of the records counts")
        return figure

    def __str__(self) -> str:
        return table_text(self.cells(), words=WORDS)


def bundled_records(gpu: str | None = None) -> list[str]:
    """Return the path of the bundled record of a GPU, as a list of one.

    Parameters
    ----------
    gpu : name of a GPU or path of its spec; None for the H200

    Raises
    ------
    BadInput : the GPU is unknown, or has no bundled record
    """
    name = "h200-sxm" if gpu is None else load_gpu(gpu).name
    recorded = {path.stem: str(path) for path in (Path(__file__).parent / "recorded").glob("*.csv")}
    if name not in recorded:
        raise BadInput(f"bundled records are of {', '.join(sorted(recorded))}, not of {name}")
    return [recorded[name]]


@checked
def replay(
    paths: Sequence[str],
    *,
    gpu: str | GpuSpec | None = None,
    engines: Sequence[str] = ENGINES,
    part: tuple[int, int] = (1, 1),
    progress: Progress = silent,
) -> Validation:
    """Predict the cases of recorded runs and return measured and predicted times. This needs no GPU.

    Parameters
    ----------
    paths : record files, oldest first; `merge_rows` combines several records of a case to one row
    gpu : name or spec to predict with; None for the one that the records name
    engines : names of the engines that predict
    part : (number of the part from 1, number of parts); layers are assigned to parts in turn

    Raises
    ------
    BadInput : a record cannot be read, or was measured on another GPU
    """
    if not engines:
        raise BadInput(f"engines must be some of {', '.join(ENGINES)}, got none")
    runs = [run for path in paths for run in read_runs(path)]
    if not runs:
        raise BadInput("replay needs at least one record: paths names none")
    names = sorted({run.header.gpu for run in runs})
    spec = load_gpu(names[0]) if gpu is None else load_gpu(gpu) if isinstance(gpu, str) else gpu
    is_device = all(
        run.header.device.get("name") == spec.title and is_of_device(spec, run.header.device) for run in runs
    )
    if names != [spec.name] and not is_device:
        raise BadInput(f"records are of {', '.join(names)}, the spec is of {spec.name}")
    merged = merge_rows(runs)
    layers = layers_of_part((row.case for row in merged), *part)
    wanted = [row for row in merged if row.case.layer in layers]
    rows = judge_rows(wanted, spec, engines=engines, progress=progress)
    return Validation(gpu=spec, engines=tuple(engines), rows=tuple(rows), records=tuple(map(str, paths)))


@checked
def record_suite(
    suite: str | Suite,
    *,
    gpu: str = "h200-sxm",
    out: Path,
    part: tuple[int, int] = (1, 1),
    resume: Sequence[str] = (),
    seconds: float = 480.0,
    commit: str = "unknown",
    log: Callable[[str], None] = print,
) -> Path:
    """Measure a suite on the local GPU, write the times to the new record `out`, and return its path.

    Parameters
    ----------
    gpu : name or path of the spec of the local GPU
    part : (number of the part from 1, number of parts); layers are assigned to parts in turn
    resume : paths of records; rows with a measured time in them are not measured again
    seconds : time limit after which no further layer is started; `rows_left` returns the number of remaining
        rows
    commit : commit of the source tree, for the record
    log : called with a line of text after each layer

    Raises
    ------
    BadInput : there is no GPU or no CuPy, the GPU is not that of the spec or is busy, `seconds` is not
        positive, or `out` already exists
    """
    if not seconds > 0.0:
        raise BadInput(f"seconds must be above 0, got {seconds:g}")
    chosen = (load_suite(suite) if isinstance(suite, str) else suite).part(*part)
    known = [row for path in resume for run in read_runs(path) for row in run.rows]
    skip = {row.key for row in known if row.seconds is not None}
    spec = load_gpu(gpu)
    try:
        from prunecast.validation.measure.contestants import refuse_other_devices
        from prunecast.validation.measure.header import run_header
        from prunecast.validation.measure.suite_run import measure_suite
    except ImportError as missing:
        raise BadInput(f"measuring needs CuPy (extra cuda13): {missing}; --replay needs none") from None
    refuse_other_devices()
    writer = RunWriter(out, run_header(chosen, spec, commit=commit))
    for row in measure_suite(chosen, spec, skip=skip, seconds=seconds, log=log):
        writer.add(row)
    writer.close()
    return out


def rows_left(suite: str | Suite, *, part: tuple[int, int] = (1, 1), paths: Sequence[str]) -> int:
    """Return the number of rows of a suite that have not been measured yet: none of the records has them.

    A row is a case with one kernel (`RowKey`). Rows that a run skipped count as measured.

    Parameters
    ----------
    part : (number of the part from 1, number of parts); only rows of this part are counted
    paths : record files
    """
    chosen = (load_suite(suite) if isinstance(suite, str) else suite).part(*part)
    runs = [run for path in paths for run in read_runs(path)]
    known = {row.key for run in runs for row in run.rows}
    return len({case.key(kernel) for case in chosen.cases for kernel in case.kernels} - known)


_PRODUCT = ("m", "k", "n", "dtype", "pattern", "sparsity", "distribution")
"""Fields of a case that a row of the JSON document contains."""


def _row_document(row: Judged, engine: str) -> dict[str, Any]:
    measured, case = row.measured, row.case
    predicted = row.predicted.get(engine)
    return {
        "case": case.name,
        **{name: getattr(case, name) for name in _PRODUCT},
        "kernel": measured.kernel,
        "engine": engine,
        **recorded(case.conditions),
        "use": case.use,
        "measured_seconds": measured.seconds,
        "predicted_seconds": predicted.seconds if predicted else None,
        "error": row.error(engine) if predicted and measured.seconds else None,
        "spread": measured.spread,
        "boards": len(measured.board_seconds) or int(measured.seconds is not None),
        "board_spread": measured.board_spread,
        "clock_mhz": measured.clock_mhz,
        "predicted_clock_mhz": predicted.clock_mhz if predicted else None,
        "predicted_cycles": predicted.cycles if predicted else None,
        "power_w": measured.power_w,
        "throttle": measured.throttle,
        "bound": predicted.bound if predicted else None,
        "counts": row.counts,
        "marks": "; ".join((*measured.marks, *(() if row.same_plan or row.note else ("another plan",)))),
        "note": row.note,
    }


def merge_rows(runs: Sequence[Run]) -> tuple[Measurement, ...]:
    """Merge runs, which are given oldest first, to one row for each `RowKey`: case, kernel and conditions.

    The newest row with a time determines the plan and the build. Older usable rows with the same plan and
    build are averaged with it. If the newest row is not usable, it is returned unchanged.
    """
    found: dict[RowKey, list[tuple[Measurement, str]]] = {}
    for run in runs:
        for row in run.rows:
            read = found.setdefault(row.key, [])
            if row.seconds is not None or not read:
                read.append((row, build_of(run.header, row.kernel, row.case)))
    return tuple(_merged(read) for read in found.values())


def _merged(read: Sequence[tuple[Measurement, str]]) -> Measurement:
    """Return the row of one key, from its rows and their builds.

    The page `explanation/measuring.md` says what each field then means.
    """
    newest, build = read[-1]
    same = [row for row, other in read if other == build and row.plan == newest.plan and row.usable]
    if not newest.usable or len(same) < 2:
        return newest
    boards = tuple(row.seconds for row in same if row.seconds is not None)
    return replace(
        newest,
        seconds=math.exp(_mean(map(math.log, boards))),
        low_s=min((row.low_s for row in same if row.low_s is not None), default=None),
        high_s=max((row.high_s for row in same if row.high_s is not None), default=None),
        samples=sum(row.samples for row in same),
        clock_mhz=_mean_of_known(row.clock_mhz for row in same),
        power_w=_mean_of_known(row.power_w for row in same),
        board_seconds=boards,
    )


def _mean(values: Iterable[float]) -> float:
    known = list(values)
    return sum(known) / len(known)


def _mean_of_known(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return _mean(known) if known else None
