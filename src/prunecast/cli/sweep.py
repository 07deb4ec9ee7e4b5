"""`prunecast sweep`: predict many cases and store the results in one file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prunecast.cli import options as opt
from prunecast.cli.guard import Reads, file_written, folder_written, gpu_files
from prunecast.cli.output import Report, deliver
from prunecast.cli.progress import tell
from prunecast.errors import BadInput, check_choice
from prunecast.files import JOURNALS

if TYPE_CHECKING:
    from prunecast.cli.tables import Page
    from prunecast.codesign.sweep import SweepCase, SweepSummary, SweepTable

MOST_SHOWN = 40
"""Rows in the table; JSON and CSV have all."""
OTHER_FORMS = (".csv", ".tsv", ".json", ".parquet", ".xlsx", ".txt")
"""Suffixes of file formats that are not a database."""


def sweep(
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            show_default=False,
            help="SQLite file of results, which new ones extend.",
        ),
        file_written(companions=JOURNALS),
    ],
    gpu: Annotated[
        list[str], typer.Option(metavar="NAME", help="GPU; can be repeated."), Reads(gpu_files)
    ] = [  # noqa: B006
        "h200-sxm"
    ],
    shape: Annotated[
        list[str] | None,
        typer.Option(metavar="MxKxN", show_default=False, help="A (M, K), N tokens; can be repeated."),
    ] = None,
    workload: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", show_default=False, help="All shapes of a standard model; repeatable."),
    ] = None,
    pattern: Annotated[
        list[str], typer.Option(metavar="TEXT", help="Pattern, see `prunecast patterns`; can be repeated.")
    ] = ["tile-wise:128"],  # noqa: B006
    sparsity: Annotated[
        list[float], typer.Option(metavar="SHARE", help="Share of weights removed; can be repeated.")
    ] = [0.5, 0.75, 0.9],  # noqa: B006
    as_important_as: Annotated[
        str | None,
        typer.Option(
            metavar="PATTERN",
            show_default=False,
            help="Compare at equal importance: --sparsity is that of PATTERN, all others get the sparsity at"
            " which they retain as much.",
        ),
    ] = None,
    kernel: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            show_default="all that run the pattern; csr where no other does",
            help="Kernel to predict; can be repeated.",
        ),
    ] = None,
    engine: opt.Engine = "model",
    state: opt.State = "burst",
    launch: opt.Launch = "graph",
    dtype: Annotated[str, typer.Option(metavar="TEXT", help="fp16, bf16, fp32 or tf32.")] = "fp16",
    executor: Annotated[
        str,
        typer.Option(
            metavar="WHERE",
            help="processes, or dask://host:port of a scheduler that you trust: Dask sends pickles.",
        ),
    ] = "processes",
    workers: Annotated[
        int | None, typer.Option(metavar="N", show_default="one per processor", help="Processes.")
    ] = None,
    parquet: Annotated[
        str | None,
        typer.Option(metavar="FILE", show_default=False, help="Also write all results there."),
        file_written(".parquet"),
    ] = None,
    pictures: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", show_default=False, help="Also draw heat maps with crossovers."),
        folder_written("*.svg"),
    ] = None,
    *,
    form: opt.PrintForm,
) -> None:
    """Predict GPUs x patterns x sparsities x shapes. What FILE already holds is not computed again."""
    to = form.destination()
    from prunecast.cli.progress import ProgressLines
    from prunecast.codesign.sweep import (
        SweepStore,
        SweepTable,
        at_equal_importance,
        expand,
        open_executor,
        run_sweep,
        write_parquet,
        write_pictures,
    )

    cases = expand(
        gpus=gpu,
        shapes=[*map(_sizes, shape or ()), *_shapes_of(workload or ())],
        patterns=pattern,
        sparsities=sparsity,
        kernels=kernel or (),
        dtype=dtype,
        engine=engine,
        state=state,
        launch=launch,
    )
    asked = len(cases)
    if as_important_as is not None:
        cases = at_equal_importance(cases, as_important_as)
    if asked > len(cases):
        left_out = f"{asked - len(cases)} cases are left out"
        tell(f"{left_out}: they cannot retain as much as {as_important_as}.", err=True)
    if Path(output).suffix.lower() in OTHER_FORMS:
        raise BadInput(f"-o is an SQLite file, results.sqlite or so, got {output}; --parquet writes a table")
    with open_executor(executor, workers) as where, SweepStore(output) as store, ProgressLines() as progress:
        summary = run_sweep(cases, store, where, progress)
        rows = store.rows()
    if parquet:
        write_parquet(rows, Path(parquet))
    if pictures:
        drawn = write_pictures(rows, Path(pictures))
        tell(f"Drew {len(drawn)} pictures in {pictures}.", err=True)
    table = SweepTable(rows=tuple(rows))

    def shown(page: "Page") -> None:
        _show(table, page)
        page.say(_told(cases, summary, output))

    deliver(to, Report(table.document(), table.frame_rows(), shown))


def _show(table: "SweepTable", page: "Page") -> None:
    """Print the first rows and the notes."""
    from prunecast.codesign.sweep.table import WORDS

    cells = table.cells()
    page.table(cells[:MOST_SHOWN], words=WORDS)
    page.say()
    if len(cells) > MOST_SHOWN:
        page.say(f"... {len(cells) - MOST_SHOWN} more rows: --csv or --json prints all.")
    page.say(*table.notes)


def _sizes(text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(part) for part in text.split("x"))
    except ValueError:
        sizes = ()
    if len(sizes) != 3:
        raise BadInput(f"--shape must be like 4096x4096x2048, got {text!r}")
    return sizes


def _shapes_of(workloads: list[str] | tuple[str, ...]) -> list[tuple[int, ...]]:
    if not workloads:
        return []
    from prunecast.workload.graph import WORKLOADS, Pass
    from prunecast.workload.graph.names import known_name
    from prunecast.workload.load import load_workload
    from prunecast.workload.passes import BATCH

    names = [known_name(name) or check_choice("workload", name, WORKLOADS) for name in workloads]
    found = {
        (*layer.shape, layer.n): None
        for name in names
        for layer in load_workload(name, [Pass(BATCH)], target=["re:.*"]).layers.values()
    }
    return list(found)


def _told(cases: "list[SweepCase]", summary: "SweepSummary", output: str) -> str:
    refused = f", {summary.refused} of them cannot be run (the file says why)" if summary.refused else ""
    return f"{len(cases)} cases: {summary.known} known, {summary.computed} computed{refused}; {output}"
