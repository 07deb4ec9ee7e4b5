"""`prunecast report`: write a prediction as one HTML file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from prunecast.cli import options as opt
from prunecast.cli.guard import Reads, file_written
from prunecast.cli.progress import ProgressLines, tell

if TYPE_CHECKING:
    from prunecast.report.pictures import MeasuredPoint
    from prunecast.workload.engines import Progress


def report(
    weights: opt.Weights,
    *,
    output: Annotated[
        str, opt.option("FILE", "The HTML file.", "--output", "-o"), file_written(".html", ".htm")
    ] = "report.html",
    gpu: opt.Gpu = "h200-sxm",
    options: opt.Layers,
    measured: Annotated[
        list[str] | None,
        opt.option(
            "RECORD",
            "Also show measured times beside predicted ones: a record of `prunecast validate`, or"
            " `bundled`, whose thousands of rows the simulator takes ten minutes for; can be repeated.",
            default="none",
        ),
        Reads(),
    ] = None,
) -> None:
    """Write one HTML file with pictures. Predicts as `predict` does; the file needs no network."""
    from prunecast.codesign import predict
    from prunecast.files import write_text_aside
    from prunecast.report.page import render_page

    with ProgressLines() as progress:
        table = predict(options.source(weights), gpu=gpu, **options.arguments(), progress=progress)
        points = _measured(measured or [], gpu, options.engine, progress)
        page = render_page(table, options.source(weights), gpu=gpu, measured=points, progress=progress)
        write_text_aside(Path(output), page)
    tell(f"{output}: {(table.whole or table).speedup:.2f}x over dense, {len(page) / 1e3:.0f} kB")


def _measured(records: list[str], gpu: str, engine: str, progress: "Progress") -> list["MeasuredPoint"]:
    """Return the valid rows of the records, with their predictions and intervals."""
    if not records:
        return []
    from prunecast.codesign.interval import interval_s
    from prunecast.kernels import KERNELS
    from prunecast.report.pictures import MeasuredPoint
    from prunecast.validation.validate import bundled_records, replay

    paths = [path for one in records for path in (bundled_records(gpu) if one == "bundled" else [one])]
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
                state=row.case.conditions.state,
                tokens=row.case.n,
                guessed_costs=KERNELS[row.measured.kernel].guessed_costs(found.gpu),
            )
            points.append(
                MeasuredPoint(
                    row.case.name, row.family, row.measured.seconds, seconds, band.low_s, band.high_s
                )
            )
    return points
