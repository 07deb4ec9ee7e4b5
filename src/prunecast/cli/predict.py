"""`prunecast predict`: dense against sparse, layer by layer."""

from typing import TYPE_CHECKING, Annotated

import typer

from prunecast.cli import options as opt
from prunecast.cli.output import Report, deliver
from prunecast.cli.progress import ProgressLines
from prunecast.cli.words import MISSED, tell
from prunecast.errors import BadInput

if TYPE_CHECKING:
    from prunecast.cli.tables import Page
    from prunecast.codesign import PredictionTable


def predict(
    weights: opt.Weights,
    *,
    gpu: opt.Gpu = "h200-sxm",
    options: opt.Layers,
    crossovers: Annotated[
        bool, typer.Option(help="Also find the density below which each kernel wins.")
    ] = True,
    min_speedup: Annotated[
        float | None,
        typer.Option(metavar="X", show_default="none", help="Exit with 1 unless the best kernels reach it."),
    ] = None,
    printed: opt.Printed,
) -> None:
    """Time of each layer, dense and pruned. Runs every kernel that can run the pattern."""
    to = printed.destination()
    if min_speedup is not None and not 0 < min_speedup < float("inf"):
        raise BadInput(f"min-speedup must be above 0, got {min_speedup}")
    from prunecast.codesign import predict as predict_layers

    with ProgressLines() as progress:
        table = predict_layers(
            options.source(weights), gpu=gpu, **options.arguments(), crossovers=crossovers, progress=progress
        )
    deliver(to, Report(table.document(), [row.row() for row in table], lambda page: _show(table, page)))
    if min_speedup is not None and table.speedup < min_speedup:
        tell(f"prunecast: speedup {table.speedup:.3g} is below the {min_speedup:g} asked for", err=True)
        raise typer.Exit(MISSED)


def _show(table: "PredictionTable", page: "Page") -> None:
    from prunecast.cli.prediction_view import show_predictions

    show_predictions(table, page)
