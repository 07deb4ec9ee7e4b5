"""Write the page of the validation report."""

from collections.abc import Sequence
from pathlib import Path

from prunecast.files import Output, OutputFile, OutputFolder, aside, check_outputs, folder_aside
from prunecast.kernels import KERNELS
from prunecast.launch import USUAL
from prunecast.patterns import TileMap
from prunecast.text import percent, table_markdown
from prunecast.validation.case import GROUP_COLUMNS
from prunecast.validation.intervals import coverages
from prunecast.validation.judged import ErrorSummary, Judged
from prunecast.validation.records import Run, read_runs
from prunecast.validation.report.groupings import GROUPINGS, grouped
from prunecast.validation.report.sections import (
    Crossing,
    board_spreads,
    cause_of,
    choices,
    crossings,
    suite_errors,
)
from prunecast.validation.scatter import draw_scatter
from prunecast.validation.validate import Validation

OWN = tuple(k.name for k in KERNELS.values() if k.takes is TileMap and k.most_tokens is None)
DENSE = tuple(k.name for k in KERNELS.values() if k.is_baseline)
WORST = 10
NEAR_POINTS = 3
"""Largest error of a predicted crossover density, in percentage points, that still counts as correct."""


def report_outputs(path: Path, what: str = "the report") -> list[Output]:
    """Return the outputs of a report for `check_outputs`: the page, and the folder of its figures.

    Messages about them begin with `what`.
    """
    return [
        OutputFile(what=what, path=path, suffixes=(".md",)),
        OutputFolder(what=what, path=path.parent / path.stem, names=("*.png",)),
    ]


def write_report(validation: Validation, path: Path) -> None:
    """Write the page to `path`, and its figures into the folder of the same name without `.md`.

    Raises
    ------
    BadInput : `path` does not end in `.md`, an output cannot be written, or an output would overwrite a
        record. In these cases nothing is written.
    """
    check_outputs(report_outputs(path), validation.records)
    with folder_aside(path.with_suffix("")) as figures, aside(path) as page:
        page.write_text(_page(validation, figures), encoding="utf-8", errors="backslashreplace")


def _page(validation: Validation, figures: Path) -> str:
    parts = [
        _head(validation),
        _families(validation),
        _suites(validation),
        _intervals(validation),
        _boards(validation),
        _figures(validation, figures),
        *(_grouping(validation, name) for name in GROUPINGS),
        _worst(validation),
        _crossings(validation),
        _choices(validation),
        _left_out(validation),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(validation: Validation) -> str:
    runs = [run for record in validation.records for run in read_runs(record)]
    return "\n".join(
        [
            f"# Predicted against measured: {validation.gpu.title}",
            "",
            "Look up here how far predictions for this GPU are off, by kernel, size and sparsity.",
            "",
            "Made by `prunecast validate --replay RECORDS --report docs/validation.md` from the records named"
            " here; repeating it needs no GPU. Error is predicted over measured, less 1: below 0 the"
            " prediction was too fast. MAPE is the mean of its size, p90 bounds nine cases of ten, bias is"
            " the mean of its logarithm. A case was marked *fit* or *judge* by a hash of it before anything"
            " was fitted; unless said otherwise, tables are of *judge* cases only. Right results only, and"
            " only where this version makes the very plan that was measured.",
            "",
            *(_suite_line(suite, runs) for suite in dict.fromkeys(run.header.suite for run in runs)),
        ]
    )


def _suite_line(suite: str, runs: Sequence[Run]) -> str:
    """Return a line about the runs of a suite: rows, runs, dates, devices and library versions."""
    own = [run for run in runs if run.header.suite == suite]
    dates = sorted(run.header.date[:10] for run in own)
    versions = {
        f"CUDA {run.header.versions.get('cuda')}, cuBLAS {run.header.versions.get('cublas')}" for run in own
    }
    devices = {f"{run.header.device.get('name')} (driver {run.header.device.get('driver')})" for run in own}
    rows = sum(len(run.rows) for run in own)
    when = " to ".join(dict.fromkeys((dates[0], dates[-1])))
    return (
        f"* suite `{suite}`: {rows} rows of {len(own)} runs, {when}, {', '.join(sorted(devices))},"
        f" {'; '.join(sorted(versions))}"
    )


def _percent(value: float) -> str:
    return f"{percent(value)} %"


_ERROR_HEAD = ("cases", "MAPE", "p90", "bias", "worst", "Spearman")
_FEW = ("cases", "MAPE", "bias")


def _errors(summary: ErrorSummary, columns: Sequence[str] = _ERROR_HEAD) -> list[str]:
    cells = summary.cells()
    return [cells[column] for column in columns]


def _section(title: str, text: str, head: Sequence[str], rows: Sequence[Sequence[str]], *after: str) -> str:
    """Return a section: heading, text, table and the lines `after` it; an empty text if `rows` is empty."""
    parts = [f"## {title}", text, table_markdown(head, rows), "\n".join(after)]
    return "\n\n".join(part for part in parts if part) if rows else ""


def _families(validation: Validation) -> str:
    rows = [[*key, *_errors(summary)] for key, summary in validation.families("judge").items()]
    fit = [[*key, *_errors(summary, _FEW)] for key, summary in validation.families("fit").items()]
    head = (*GROUP_COLUMNS, "engine")
    judged, fitted = table_markdown((*head, *_ERROR_HEAD), rows), table_markdown((*head, *_FEW), fit)
    return f"## By kernel\n\n{judged}\n\nThe *fit* cases, for comparison:\n\n{fitted}"


def _suites(validation: Validation) -> str:
    own = [row for row in _judging(validation) if row.case.conditions == USUAL]
    rows = [
        [*key, engine, *_errors(summary, _FEW)]
        for engine in validation.engines
        for key, summary in suite_errors(own, validation.records, engine).items()
    ]
    return _section("By suite", "*Judge* cases in bursts.", ("suite", "kernel", "engine", *_FEW), rows)


def _intervals(validation: Validation) -> str:
    rows = [
        [
            *row.group.cells().values(),
            row.engine,
            f"{row.low:.2f} to {row.high:.2f}",
            str(row.fit_cases),
            str(row.judge_cases),
            "-" if row.judge_cases == 0 else _percent(row.coverage),
        ]
        for row in coverages(validation)
    ]
    text = (
        "Bounds from the *fit* cases that 90 % of the cases of a new layer on a new GPU"
        " should keep, and how many *judge* cases did, each on every GPU that ran it."
    )
    head = (*GROUP_COLUMNS, "engine", "measured over predicted", "fit cases", "judge cases", "inside")
    return _section("Intervals", text, head, rows)


def _boards(validation: Validation) -> str:
    rows = [
        [
            *row.group.cells().values(),
            str(row.rows),
            f"{row.runs:.1f}",
            _percent(row.middle),
            _percent(row.p90),
        ]
        for row in board_spreads(validation.rows)
    ]
    text = (
        "A plan that several runs measured with the same sources of its kernel, or"
        " version of its library, counts with the geometric mean of its times. Slowest run over the fastest,"
        " less 1, of such rows:"
    )
    return _section("GPUs of one model", text, (*GROUP_COLUMNS, "rows", "runs", "median", "p90"), rows)


def _figures(validation: Validation, folder: Path) -> str:
    from prunecast.axes import write_figure  # matplotlib is slow to import

    links = []
    for family in sorted({row.family for row in validation.rows}):
        own = [row for row in validation.rows if row.family == family and row.case.conditions == USUAL]
        file = folder / f"{family.replace(':', '-')}.png"
        scatter = draw_scatter(own, f"{family}, burst", validation.engines)
        if scatter is not None:
            write_figure(scatter.axes[0], file)
            links.append(f"![{family}]({folder.name}/{file.name})")
    return "## Scatter\n\n" + " ".join(links) if links else ""


def _judging(validation: Validation, families: Sequence[str] | None = None) -> list[Judged]:
    return [
        row
        for row in validation.rows
        if row.case.use == "judge" and (families is None or row.family in families)
    ]


def _grouping(validation: Validation, name: str) -> str:
    kinds = [(OWN, "own tile kernels")]
    if name.startswith(("measured", "tokens")):
        kinds.append((DENSE, "dense"))
    rows = [
        [title, engine, label, *_errors(summary, _FEW)]
        for families, title in kinds
        for engine in validation.engines
        for label, summary in grouped(_judging(validation, families), name, engine).items()
    ]
    return _section(f"By {name}", "", ("", "engine", name, *_FEW), rows)


def _worst(validation: Validation) -> str:
    """Return the section of the rows with the largest errors of the first engine, largest first."""
    engine = validation.engines[0]
    rows = [row for row in _judging(validation) if row.counts]
    rows.sort(key=lambda row: -abs(row.error(engine)))
    cells = [
        [
            row.case.name,
            *row.group.cells().values(),
            f"{1e6 * (row.measured.seconds or 0):.1f}",
            f"{100 * row.error(engine):+.0f} %",
            cause_of(row, engine),
        ]
        for row in rows[:WORST]
    ]
    head = ("case", *GROUP_COLUMNS, "measured us", "error", "where it lies")
    return _section(f"The worst ten ({engine})", "", head, cells)


def _crossings(validation: Validation) -> str:
    rows, means = [], []
    for engine in validation.engines:
        found = crossings(validation.rows, engine)
        rows += [
            [of.layer, engine, str(of.measured), str(of.predicted), f"{of.points:+.1f}" + " (1)" * of.beyond]
            for of in found
        ]
        if found:
            means.append(_distance_line(engine, found))
    text = (
        "Density below which STSpMM on equal tiles of 128 rows beats dense, by"
        " straight lines between measured densities (all cases, fit and judge). Points marked (1) are the"
        " least that a layer is off: one of both curves does not meet dense where it was measured."
    )
    head = ("layer", "engine", "measured", "predicted", "points")
    return _section("Crossover densities", text, head, rows, *means)


def _distance_line(engine: str, found: Sequence[Crossing]) -> str:
    """Return a line with the mean error of the crossover densities that an engine predicts.

    If a crossover is outside the measured densities, its error is replaced by a lower bound of the error.
    """
    distances = [abs(of.points) for of in found]
    near = sum(
        distance <= NEAR_POINTS and not of.beyond for distance, of in zip(distances, found, strict=True)
    )
    mean = sum(distances) / len(distances)
    return f"{engine}: {mean:.1f} points off in the mean, {near} of {len(found)} within {NEAR_POINTS} points."


def _choices(validation: Validation) -> str:
    rows, worst = [], []
    for engine in validation.engines:
        found = choices(_judging(validation), engine)
        if not found:
            continue
        mean = sum(choice.regret for choice in found) / len(found)
        right = sum(choice.regret == 0.0 for choice in found)
        rows.append([engine, str(len(found)), str(right), _percent(mean)])
        bad = max(found, key=lambda choice: choice.regret)
        worst.append(
            f"Worst with the {engine}: {bad.what}: took {bad.chosen}, {bad.fastest} was faster,"
            f" {_percent(bad.regret)}."
        )
    text = (
        "Among kernels and tile heights measured on the same product at the same"
        " sparsity and skew, dense included."
    )
    head = ("engine", "decisions", "right", "mean regret")
    return _section("Choosing by prediction", text, head, rows, *worst)


def _left_out(validation: Validation) -> str:
    reasons: dict[str, int] = {}
    for row in validation.rows:
        if row.counts:
            continue
        mark = "; ".join(row.measured.marks) or row.note or "measured with another plan than this version's"
        mark = mark if row.measured.seconds is None or "wrong" in mark else f"not counted: {mark}"
        reasons[mark] = reasons.get(mark, 0) + 1
    rows = sorted(([reason, str(count)] for reason, count in reasons.items()), key=lambda r: -int(r[1]))
    return _section("Left out", "", ("why", "rows"), rows)
