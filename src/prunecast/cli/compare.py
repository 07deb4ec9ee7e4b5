"""`prunecast compare`: compare two files of predictions, or one model on several GPUs."""

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from prunecast.cli import options as opt
from prunecast.cli.guard import Reads, gpu_files, weight_files
from prunecast.cli.output import Report, Row, deliver
from prunecast.cli.progress import ProgressLines
from prunecast.errors import BadInput
from prunecast.text import microseconds

if TYPE_CHECKING:
    from prunecast.cli.tables import Page
    from prunecast.codesign import Comparison

MOST_UNMATCHED = 6
GPU_WORDS = (
    "Times in ms, with the interval of pruned. Source: kernels measured by this",
    "project (own), dense times published by others, or a guess from the GPU's",
    "specification.",
)
MODEL_WORDS = (
    "Of the pruned model: tokens or images per second, J (energy) of each, GB of",
    "weights, cache and activations (`no`: the GPU has too little memory).",
)


def compare(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="A.json B.json | WEIGHTS", show_default=False, help="Two files, or one model."
        ),
        Reads(weight_files),
    ],
    *,
    gpu: Annotated[
        list[str] | None, opt.option("NAME", "Two or more, with WEIGHTS.", default="none"), Reads(gpu_files)
    ] = None,
    price: Annotated[
        list[str] | None,
        opt.option(
            "NAME=X",
            "Price of an hour of a GPU, for the cost of a million tokens; can be repeated.",
            default="none",
        ),
    ] = None,
    details: Annotated[
        bool, opt.flag("With several GPUs, also print every kernel of every layer.", "--details")
    ] = False,
    options: opt.Layers,
    printed: opt.Printed,
) -> None:
    """Two predictions, or several GPUs, side by side. Files are those of `predict --json`."""
    gpus = gpu or []
    if len(paths) == 2 and not gpus:
        from prunecast.codesign import compare as compare_files

        comparison = compare_files(*paths)
    elif len(paths) == 1 and len(gpus) >= 2:
        from prunecast.codesign import compare_gpus

        with ProgressLines() as progress:
            comparison = compare_gpus(
                options.source(paths[0]),
                gpus=gpus,
                prices=opt.named_numbers("--price", price or (), like="h200-sxm=3.5"),
                **options.arguments(),
                progress=progress,
            )
    else:
        raise BadInput(
            "compare takes two files of `predict --json`, or one file of weights and two or more --gpu, "
            f"got {len(paths)} files and {len(gpus)} GPUs"
        )
    shown = partial(_show, comparison, details=details)
    deliver(printed, Report(comparison.document(), _rows(comparison), shown))


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


def _show(comparison: "Comparison", page: "Page", *, details: bool) -> None:
    """Print a row for each compared GPU. Print the layers if files are compared or `details` is set."""
    named = zip(comparison.columns, comparison.conditions, strict=False)
    said = [each.words if comparison.gpus else f"{name}: {each.words}" for name, each in named]
    page.say(*dict.fromkeys(said))
    if comparison.gpus:
        from prunecast.codesign.compare import GPU_COLUMNS

        page.table(comparison.cells(), words=GPU_COLUMNS)
        page.say("", *GPU_WORDS, *(() if comparison.gpus[0].fits is None else MODEL_WORDS))
        if any(row.cost_per_million is not None for row in comparison.gpus):
            page.say("Cost: price of a million tokens or images.")
        if not details:
            page.say("Every kernel of every layer: --details")
            return
        page.say()
    _show_layers(comparison, page)


def _show_layers(comparison: "Comparison", page: "Page") -> None:
    from prunecast.codesign import INTERVAL_KIND

    columns = comparison.columns
    page.table(
        [
            {
                "layer": row.layer,
                "kernel": row.kernel,
                **{
                    f"{name} us": "" if time is None else microseconds(time)
                    for name, time in zip(columns, row.seconds, strict=True)
                },
                **{
                    f"{name} ratio": "" if ratio is None else f"{ratio:.2f}"
                    for name, ratio in zip(columns[1:], row.ratio[1:], strict=True)
                },
            }
            for row in comparison.rows
        ],
        words=("layer", "kernel"),
    )
    page.say("", *comparison.notes[:MOST_UNMATCHED])
    if len(comparison.unmatched) > MOST_UNMATCHED:
        page.say(f"... and {len(comparison.unmatched) - MOST_UNMATCHED} more, see --json")
    page.say(f"Ratio: time over that of {columns[0]}. Interval of predictions: {INTERVAL_KIND}.")
