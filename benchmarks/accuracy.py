"""How far predictions lie from recorded runs, for work on the physics: errors by kernel, then row by row.

python -m benchmarks.accuracy fit [--families stspmm 2:4] [--engines simulator] [--state burst]
    [--suite second] [--rows 40]

`validate --replay` makes the page that is quoted. Constants are decided with this: it adds the runs of
`benchmarks/measured`, which are all marked fit, and parts the error of a row into cycles and clock.
"""

import argparse
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from prunecast.hardware import load_gpu
from prunecast.validation.judged import Judged, judge_rows, summarise
from prunecast.validation.records import Run, read_runs
from prunecast.validation.validate import bundled_records, merge_rows
from prunecast.workload.engines import ENGINES

FIT_RUNS = Path(__file__).parent / "measured" / "h200-sxm-fit-runs-2026-11-21.csv"


def all_runs() -> list[Run]:
    """The bundled runs and those that were measured for fitting only, oldest first."""
    runs = [run for path in [FIT_RUNS, *bundled_records()] for run in read_runs(path)]
    return sorted(runs, key=lambda run: run.header.date)


def judged_rows(arguments: argparse.Namespace) -> list[Judged]:
    """Rows that were asked for, predicted; those that count."""
    rows = [
        row
        for row in merge_rows([run for run in all_runs() if arguments.suite in ("", run.header.suite)])
        if row.usable
        and (row.case.use, row.case.conditions.state) == (arguments.use, arguments.state)
        and (not arguments.families or row.kernel in arguments.families)
    ]
    judged = judge_rows(rows, load_gpu("h200-sxm"), engines=arguments.engines)
    return [row for row in judged if row.counts]


def percent(ratio: float) -> float:
    """A ratio as percent above 1."""
    return 100.0 * (ratio - 1.0)


def print_errors(rows: list[Judged], engines: Sequence[str]) -> None:
    """One line for each kernel and engine, all of them last."""
    print(
        f"{'kernel':>14} {'engine':>10} {'rows':>5} {'MAPE':>6} {'p90':>6} {'bias':>6} {'worst':>6}  Spearman"
    )
    for engine in engines:
        for family in [*sorted({row.family for row in rows}), "all"]:
            own = [row for row in rows if family in (row.family, "all")]
            print(f"{family:>14} {engine:>10} {error_cells(own, engine)}")


def error_cells(rows: list[Judged], engine: str) -> str:
    """Count, errors in percent and rank correlation."""
    found = summarise(rows, engine)
    if found is None:
        return "    0"
    errors = (found.mape, found.p90, found.bias, found.worst)
    rank = "-" if found.spearman is None else f"{found.spearman:.3f}"
    return f"{found.cases:5d} {' '.join(f'{100 * value:6.1f}' for value in errors)}    {rank}"


def row_lines(rows: list[Judged], engine: str) -> Iterator[str]:
    """The largest errors first, in percent: all of it, what lies in cycles and in the clock, boards."""
    yield f"{'error':>6} {'cycles':>6} {'clock':>6} {'us':>8} {'boards':>6}  {engine}: bound, case, form"
    for row in sorted(rows, key=lambda row: -abs(math.log1p(row.error(engine)))):
        measured, predicted = row.measured, row.predicted[engine]
        clock = percent(measured.clock_mhz / predicted.clock_mhz) if measured.clock_mhz else 0.0
        cycles = percent((1.0 + row.error(engine)) / (1.0 + clock / 100.0))
        yield (
            f"{100 * row.error(engine):+6.1f} {cycles:+6.1f} {clock:+6.1f}"
            f" {1e6 * float(measured.seconds or 0):8.2f} {100 * (measured.board_spread or 0.0):6.1f}"
            f"  {predicted.bound}, {row.case.name}, {row.family}, {measured.config}"
        )


def main() -> None:
    """Predict the rows of one use and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("use", choices=("fit", "judge"))
    parser.add_argument("--families", nargs="*", default=[])
    parser.add_argument("--engines", nargs="*", default=list(ENGINES), choices=ENGINES)
    parser.add_argument("--state", default="burst")
    parser.add_argument("--suite", default="", help="cases of one suite only, by its name")
    parser.add_argument(
        "--rows", type=int, default=0, help="how many of the worst rows to show for each engine"
    )
    arguments = parser.parse_args()
    rows = judged_rows(arguments)
    for engine in arguments.engines if arguments.rows else ():
        print("\n".join(list(row_lines(rows, engine))[: arguments.rows + 1]), end="\n\n")
    print_errors(rows, arguments.engines)


if __name__ == "__main__":
    main()
