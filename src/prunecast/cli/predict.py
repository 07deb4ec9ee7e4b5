"""`prunecast predict`: dense against sparse, layer by layer."""

from typing import TYPE_CHECKING, Annotated

import typer

from prunecast.cli import options as opt
from prunecast.cli.exits import MISSED
from prunecast.cli.output import Report, deliver, destination
from prunecast.cli.progress import ProgressLines
from prunecast.cli.words import tell
from prunecast.errors import BadInput

if TYPE_CHECKING:
    from rich.console import Console

    from prunecast.codesign import PredictionTable

__all__ = ["predict"]


def predict(
    weights: opt.Weights,
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
    crossovers: Annotated[
        bool, typer.Option(help="Also find the density below which each kernel wins.")
    ] = True,
    min_speedup: Annotated[
        float | None,
        typer.Option(metavar="X", show_default="none", help="Exit with 1 unless the best kernels reach it."),
    ] = None,
    as_json: opt.Json = False,
    as_csv: opt.Csv = False,
    output: opt.Output = None,
) -> None:
    """Time of each layer, dense and pruned. Runs every kernel that can run the pattern."""
    to = destination(as_json, as_csv, output)
    if min_speedup is not None and not 0 < min_speedup < float("inf"):
        raise BadInput(f"min-speedup must be above 0, got {min_speedup}")
    from prunecast.codesign import predict as predict_layers

    with ProgressLines() as progress:
        table = predict_layers(
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
            crossovers=crossovers,
            progress=progress,
        )
    deliver(to, Report(table.document(), [row.row() for row in table], lambda console: _show(table, console)))
    if min_speedup is not None and table.speedup < min_speedup:
        tell(f"prunecast: speedup {table.speedup:.3g} is below the {min_speedup:g} asked for", err=True)
        raise typer.Exit(MISSED)


def _show(table: "PredictionTable", console: "Console") -> None:
    from prunecast.cli.prediction_view import show_predictions

    show_predictions(table, console)
