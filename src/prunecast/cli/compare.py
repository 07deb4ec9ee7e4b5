"""`prunecast compare`: two prediction files, or one model on several GPUs."""

from typing import TYPE_CHECKING, Annotated

import typer

from prunecast.cli import options as opt
from prunecast.cli.output import Report, Row, deliver
from prunecast.cli.progress import ProgressLines
from prunecast.errors import BadInput

if TYPE_CHECKING:
    from rich.console import Console

    from prunecast.codesign import Comparison

MOST_UNMATCHED = 6


def compare(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="A.json B.json | WEIGHTS", show_default=False, help="Two files, or one model."
        ),
    ],
    *,
    gpu: Annotated[
        list[str] | None, typer.Option(metavar="NAME", show_default="none", help="Two or more, with WEIGHTS.")
    ] = None,
    options: opt.Layers,
    printed: opt.Printed,
) -> None:
    """Two predictions, or several GPUs, side by side. Files are those of `predict --json`."""
    to = printed.destination()
    gpus = gpu or []
    if len(paths) == 2 and not gpus:
        from prunecast.codesign import compare as compare_files

        comparison = compare_files(*paths)
    elif len(paths) == 1 and len(gpus) >= 2:
        from prunecast.codesign import compare_gpus

        with ProgressLines() as progress:
            comparison = compare_gpus(
                options.source(paths[0]), gpus=gpus, **options.arguments(), progress=progress
            )
    else:
        raise BadInput(
            "compare takes two files of `predict --json`, or one file of weights and two or more --gpu, "
            f"got {len(paths)} files and {len(gpus)} GPUs"
        )
    deliver(to, Report(comparison.document(), _rows(comparison), lambda console: _show(comparison, console)))


def _rows(comparison: "Comparison") -> list[Row]:
    return [
        {
            "layer": row.layer,
            "kernel": row.kernel,
            "n": row.n,
            "pattern": row.pattern,
            **{f"seconds {name}": time for name, time in zip(comparison.columns, row.seconds, strict=True)},
            **{f"ratio {name}": ratio for name, ratio in zip(comparison.columns, row.ratio, strict=True)},
        }
        for row in comparison.rows
    ]


def _show(comparison: "Comparison", console: "Console") -> None:
    from prunecast.cli.tables import Column, grid, microseconds, safe
    from prunecast.codesign import INTERVAL_KIND

    columns = [Column("layer"), Column("kernel")]
    columns += [Column(f"{name} us", number=True) for name in comparison.columns]
    columns += [Column(f"{name} ratio", number=True) for name in comparison.columns[1:]]
    cells = [
        [
            row.layer,
            row.kernel,
            *("" if time is None else microseconds(time) for time in row.seconds),
            *("" if ratio is None else f"{ratio:.2f}" for ratio in row.ratio[1:]),
        ]
        for row in comparison.rows
    ]
    console.print(grid(columns, cells, to=console))
    console.print()
    for name in comparison.unmatched[:MOST_UNMATCHED]:
        console.print(safe(f"in one column alone: {name}"), soft_wrap=True)
    if len(comparison.unmatched) > MOST_UNMATCHED:
        console.print(f"... and {len(comparison.unmatched) - MOST_UNMATCHED} more, see --json", markup=False)
    console.print(
        safe(f"Ratio: time over that of {comparison.columns[0]}. Interval of predictions: {INTERVAL_KIND}."),
        soft_wrap=True,
    )
