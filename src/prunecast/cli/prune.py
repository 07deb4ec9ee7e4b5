"""`prunecast prune`: write weights with zeros, and the recipe beside them."""

from typing import TYPE_CHECKING, Annotated

import typer

from prunecast.cli import options as opt
from prunecast.cli.output import Report, deliver, destination

if TYPE_CHECKING:
    from rich.console import Console

    from prunecast.codesign import Recipe

__all__ = ["prune"]


def prune(
    weights: opt.Weights,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FOLDER", show_default=False, help="Folder to write.")
    ],
    pattern: Annotated[str, typer.Option(metavar="TEXT", help="See `prunecast patterns`.")] = "tile-wise:128",
    sparsity: opt.Sparsity = None,
    scope: opt.Scope = "layer",
    target: opt.Target = None,
    ignore: opt.Ignore = None,
    as_json: opt.Json = False,
    as_csv: opt.Csv = False,
) -> None:
    """Write pruned weights and their recipe. By magnitude; FOLDER/weights.safetensors is dense with zeros."""
    to = destination(as_json, as_csv, None)
    from prunecast.codesign import prune as prune_layers

    recipe = prune_layers(
        weights,
        pattern=pattern,
        sparsity=sparsity,
        scope=scope,
        out=output,
        target=target or (),
        ignore=ignore or (),
    )
    rows = [layer.row() for layer in recipe.layers]
    deliver(to, Report(recipe.document(), rows, lambda console: _show(recipe, console)))


def _show(recipe: "Recipe", console: "Console") -> None:
    from prunecast.cli.tables import Column, grid, percent, safe

    columns = [
        Column("layer"),
        Column("M x K", number=True),
        Column("sparsity %", number=True),
        Column("importance kept %", number=True),
    ]
    cells = [
        [layer.layer, f"{layer.m} x {layer.k}", percent(layer.sparsity), percent(layer.retained_importance)]
        for layer in recipe.layers
    ]
    console.print(grid(columns, cells, to=console))
    console.print()
    for skipped in recipe.skipped:
        console.print(safe(f"unchanged: {skipped.layer}: {skipped.reason}"), soft_wrap=True)
    console.print(safe(f"Wrote {recipe.folder} ({recipe.pattern})."), soft_wrap=True)
