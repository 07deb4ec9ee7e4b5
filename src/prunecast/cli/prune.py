"""`prunecast prune`: write weights with zeros, and the recipe beside them."""

from typing import TYPE_CHECKING, Annotated

import typer

from prunecast.cli import options as opt
from prunecast.cli.output import Report, deliver
from prunecast.cli.prune_target import prune_to_target
from prunecast.errors import BadInput

if TYPE_CHECKING:
    from rich.console import Console

    from prunecast.codesign import Recipe


def prune(
    weights: opt.Weights,
    *,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FOLDER", show_default=False, help="Folder to write.")
    ],
    pattern: Annotated[
        str,
        typer.Option(
            metavar="TEXT", show_default="tile-wise:128", help="See `prunecast patterns`; not with a latency."
        ),
    ] = "",
    sparsity: opt.Sparsity = None,
    budget: opt.Budget,
    scope: opt.Scope = "layer",
    form: opt.Form,
) -> None:
    """Write pruned weights and their recipe. By magnitude; FOLDER/weights.safetensors is dense with zeros.

    With --latency or --speedup, WEIGHTS may also name a standard model: resnet18, resnet34, resnet50, vgg16,
    bert-small, bert-base, bert-large, gpt2, llama-2-7b or llama-3-8b. It gets random weights, its time counts
    every operator, and FOLDER gets the recipe alone. The time of an .onnx file counts every operator too.
    """
    to = form.destination()
    if budget.latency is not None or budget.speedup is not None:
        if pattern:
            raise BadInput(f"--pattern {pattern} and a time exclude each other: the search chooses patterns")
        prune_to_target(weights, output, budget, sparsity, to)
        return
    if budget.cap:
        raise BadInput(f"--cap {budget.cap[0]} needs a latency budget: give --latency or --speedup too")
    from prunecast.codesign import prune as prune_layers

    recipe = prune_layers(
        weights,
        pattern=pattern or "tile-wise:128",
        sparsity=sparsity,
        scope=scope,
        out=output,
        target=budget.target or (),
        ignore=budget.ignore or (),
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
    console.print(
        safe(f"Wrote weights.safetensors ({recipe.pattern}) and recipe.json in {recipe.folder}."),
        soft_wrap=True,
    )
