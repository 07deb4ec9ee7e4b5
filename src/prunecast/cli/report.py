"""`prunecast report`: one HTML file about a prediction."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prunecast.cli import options as opt
from prunecast.cli.progress import ProgressLines
from prunecast.cli.words import tell
from prunecast.errors import BadInput
from prunecast.files import check_writable

if TYPE_CHECKING:
    from prunecast.codesign.engines import Progress
    from prunecast.report import MeasuredPoint


def report(
    weights: opt.Weights,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="The HTML file.")
    ] = "report.html",
    gpu: opt.Gpu = "h200-sxm",
    tokens: opt.Tokens = 4096,
    sparsity: opt.Sparsity = None,
    pattern: opt.Pattern = None,
    kernel: opt.Kernels = None,
    engine: opt.Engine = "simulator",
    state: opt.State = "burst",
    launch: opt.Launch = "graph",
    dtype: opt.Dtype = None,
    scope: opt.Scope = "layer",
    target: opt.Target = None,
    ignore: opt.Ignore = None,
    input_size: opt.InputSize = None,
    stride: opt.Stride = None,
    padding: opt.Padding = None,
    batch: opt.Batch = 1,
    conv: opt.Conv = "best",
    experts_per_token: opt.ExpertsPerToken = 2,
    measured: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RECORD",
            show_default="none",
            help="Also show recorded runs of `prunecast validate`, or `bundled`; can be repeated.",
        ),
    ] = None,
) -> None:
    """Write one HTML file with pictures. Predicts as `predict` does; the file needs no network."""
    path = _html_path(output)
    from prunecast.codesign import predict
    from prunecast.report import render_page, write_page

    with ProgressLines() as progress:
        table = predict(
            weights,
            gpu=gpu,
            tokens=tokens,
            sparsity=sparsity,
            pattern=pattern,
            kernels=kernel or "all",
            engine=engine,
            state=state,
            launch=launch,
            dtype=dtype,
            scope=scope,
            target=target or (),
            ignore=ignore or (),
            convolutions=opt.conv_settings(input_size, stride, padding, batch, conv),
            experts_per_token=experts_per_token,
            progress=progress,
        )
        points = _measured(measured or [], gpu, engine, progress)
        page = render_page(table, weights, gpu=gpu, measured=points, progress=progress)
        write_page(path, page)
    tell(f"{path}: {table.speedup:.2f}x over dense, {len(page) / 1e3:.0f} kB")


def _html_path(output: str) -> Path:
    path = Path(output)
    if path.suffix not in (".html", ".htm"):
        raise BadInput(f"-o must name a .html file, got {output}")
    check_writable(path, "-o")
    return path


def _measured(records: list[str], gpu: str, engine: str, progress: "Progress") -> list["MeasuredPoint"]:
    """Rows of the records that count, with the intervals of their predictions."""
    if not records:
        return []
    from prunecast.codesign.interval import interval_s
    from prunecast.kernels import KERNELS
    from prunecast.report import MeasuredPoint
    from prunecast.validation.validate import bundled_records, replay

    paths = [path for one in records for path in (bundled_records() if one == "bundled" else [one])]
    found = replay(paths, gpu=gpu, engines=(engine,), progress=progress)
    points = []
    for row in found.rows:
        if row.counts and row.measured.seconds is not None:
            seconds = row.predicted[engine].seconds
            band = interval_s(
                row.family,
                seconds,
                gpu=found.gpu.name,
                engine=engine,
                state=row.case.state,
                tokens=row.case.n,
                guessed_costs=KERNELS[row.measured.kernel].guessed_costs(found.gpu),
            )
            points.append(
                MeasuredPoint(
                    row.case.name, row.family, row.measured.seconds, seconds, band.low_s, band.high_s
                )
            )
    return points
