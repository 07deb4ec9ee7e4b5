"""`prunecast sweep`: predict many cases and store the results in one file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from prunecast.cli import options as opt
from prunecast.cli.guard import Reads, file_written, folder_written, gpu_files
from prunecast.cli.output import Report, deliver
from prunecast.cli.progress import tell
from prunecast.errors import BadInput
from prunecast.files import JOURNALS

if TYPE_CHECKING:
    from prunecast.cli.tables import Page
    from prunecast.codesign.sweep import SweepTable

MOST_SHOWN = 40
"""Largest number of rows in the printed table; JSON and CSV contain all rows."""
OTHER_FORMS = (".csv", ".tsv", ".json", ".parquet", ".xlsx", ".txt")
"""Suffixes of file formats that are not a database."""


def sweep(
    output: Annotated[
        str,
        opt.option("FILE", "SQLite file of results, which new ones extend.", "--output", "-o", default=False),
        file_written(companions=JOURNALS),
    ],
    gpu: Annotated[list[str], opt.option("NAME", "GPU; can be repeated."), Reads(gpu_files)] = ["h200-sxm"],  # noqa: B006
    shape: Annotated[
        list[str] | None, opt.option("MxKxN", "A (M, K), N tokens; can be repeated.", default=False)
    ] = None,
    workload: Annotated[
        list[str] | None, opt.option("NAME", "All shapes of a standard model; repeatable.", default=False)
    ] = None,
    pattern: Annotated[
        list[str], opt.option("TEXT", "Pattern, see `prunecast patterns`; can be repeated.")
    ] = ["tile-wise:128"],  # noqa: B006
    sparsity: Annotated[list[float], opt.option("SHARE", "Share of weights removed; can be repeated.")] = [  # noqa: B006
        0.5,
        0.75,
        0.9,
    ],
    as_important_as: Annotated[
        str | None,
        opt.option(
            "PATTERN",
            "Compare at equal importance: --sparsity is that of PATTERN, all others get the sparsity at"
            " which they retain as much.",
            default=False,
        ),
    ] = None,
    kernel: Annotated[
        list[str] | None,
        opt.option(
            "NAME",
            "Kernel to predict; can be repeated.",
            default="all that run the pattern; csr where no other does",
        ),
    ] = None,
    engine: opt.Engine = "model",
    state: opt.State = "burst",
    launch: opt.Launch = "graph",
    dtype: Annotated[
        str, opt.option("TEXT", "fp16, bf16, fp32 or tf32; int8 for dense and cusparselt.")
    ] = "fp16",
    executor: Annotated[
        str,
        opt.option(
            "WHERE", "processes, or dask://host:port of a scheduler that you trust: Dask sends pickles."
        ),
    ] = "processes",
    workers: Annotated[int | None, opt.option("N", "Processes.", default="one per processor")] = None,
    parquet: Annotated[
        str | None,
        opt.option("FILE", "Also write all results there.", default=False),
        file_written(".parquet"),
    ] = None,
    pictures: Annotated[
        str | None,
        opt.option("FOLDER", "Also draw heat maps with crossovers.", default=False),
        folder_written("*.svg"),
    ] = None,
    *,
    printed: opt.PrintForm,
) -> None:
    """Predict GPUs x patterns x sparsities x shapes. What FILE already holds is not computed again."""
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
        refused = f", {summary.refused} of them cannot be run (the file says why)" if summary.refused else ""
        page.say(f"{len(cases)} cases: {summary.known} known, {summary.computed} computed{refused}; {output}")

    deliver(printed, Report(table.document(), table.frame_rows(), shown))


def _show(table: "SweepTable", page: "Page") -> None:
    """Print the first `MOST_SHOWN` rows of the table, and its notes."""
    from prunecast.codesign.sweep.table import WORDS
    from prunecast.launch import Conditions

    cells = table.cells()
    page.say(*dict.fromkeys(Conditions.of(row).words for row in table))
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
    from prunecast.workload.graph import Pass
    from prunecast.workload.graph.names import known_name, nearest_or_some
    from prunecast.workload.load import load_workload
    from prunecast.workload.timed_passes import BATCH

    found: dict[tuple[int, ...], None] = {}
    for text in workloads:
        name = known_name(text)
        if name is None:
            raise BadInput(f"workload {text!r:.80} is no standard model; {nearest_or_some(text)}")
        layers = load_workload(name, [Pass(BATCH)], target=["re:.*"]).layers.values()
        found |= {(*layer.shape, layer.n): None for layer in layers}
    return list(found)
