"""`prunecast prune`: prune weights to a sparsity or to a latency budget, and write them with their recipe."""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from prunecast.cli import options as opt
from prunecast.cli.budget import Budget
from prunecast.cli.guard import Given, Writes
from prunecast.cli.model_page import memory_facts, misfit, say_facts
from prunecast.cli.output import Report, deliver
from prunecast.errors import BadInput
from prunecast.files import Output
from prunecast.text import microseconds, percent

if TYPE_CHECKING:
    from prunecast.cli.tables import Page
    from prunecast.codesign import Recipe
    from prunecast.codesign.search import PrunedModel


def _folders(what: str, value: str | Path, given: Given) -> list[Output]:
    from prunecast.codesign.search.solutions import numbered_folders
    from prunecast.codesign.write_pruned import pruned_folder

    return [
        pruned_folder(folder, what, given["weights"])
        for folder in numbered_folders(Path(value), given["solutions"])
    ]


def prune(
    weights: opt.Weights,
    *,
    output: Annotated[
        str | None,
        opt.option(
            "FOLDER", "Folder to write.", "--output", "-o", default="with a time none: nothing is written"
        ),
        Writes(_folders),
    ] = None,
    pattern: Annotated[
        str,
        opt.option(
            "TEXT",
            "See `prunecast patterns`; not with a latency.",
            default="tile-wise:128; dense with --remove",
        ),
    ] = "",
    sparsity: opt.Sparsity = None,
    budget: Budget,
    solutions: Annotated[
        int, opt.option("N", "With a time: look for N solutions that differ; more are in FOLDER-2 and so on.")
    ] = 1,
    even: Annotated[
        bool | None,
        opt.flag(
            "With a time: one pattern family and nearly one share in every layer, which lost less "
            "accuracy in our study than shares by importance.",
            "--even/--uneven",
            default="even without --calibrate, where that removes about as much",
        ),
    ] = None,
    scope: opt.Scope = "layer",
    printed: opt.PrintForm,
) -> None:
    """Write pruned weights and their recipe. FOLDER/weights.safetensors is dense with zeros.

    A Hugging Face folder gives another one, with its tokenizer and a model card: from_pretrained
    loads it dense, and sparse after `import prunecast.torch.huggingface`.
    Weights of least magnitude go first; --calibrate counts their inputs too. --remove writes a smaller
    model of the most important parts, dense or pruned as well. With --latency or --speedup,
    WEIGHTS may also name a standard model, as resnet50 or llama-3-8b: an unknown
    name lists them. It gets random weights, its time counts every operator, and FOLDER gets the recipe alone.
    The time of an .onnx file counts every operator too. Of a model whose launches in torch are known, the
    time is torch's, with patterns that prunecast.torch.sparsify runs; --runtime engine is that of a fused
    engine. --remove widths (without a share) then lets the search decide how many
    are removed.
    """
    if budget.latency is not None or budget.speedup is not None:
        if pattern:
            raise BadInput(f"--pattern {pattern} and a time exclude each other: the search chooses patterns")
        if scope != "layer":
            raise BadInput(f"--scope {scope} and a time exclude each other: all layers compete for the time")
        _prune_to_target(weights, output, budget, sparsity, printed, solutions, even=even)
        return
    if even is not None:
        option = "--even" if even else "--uneven"
        raise BadInput(f"{option} needs a latency budget: give --latency or --speedup too")
    if output is None:
        raise BadInput("wanted -o FOLDER for the pruned weights, or a time: --latency or --speedup")
    from prunecast.codesign import prune as prune_layers
    from prunecast.codesign.recipe_maps import recipe_of

    if not pattern:
        known = recipe_of(weights)
        if known is not None:
            raise BadInput(f"{weights} is pruned already, {known.pattern}: give --pattern to prune it again")
        pattern = "dense" if budget.remove and sparsity is None else "tile-wise:128"
    _check_no_budget(pattern, budget, solutions)
    recipe = prune_layers(
        budget.source(weights),
        pattern=pattern,
        sparsity=sparsity,
        scope=scope,
        out=output,
        gpu=budget.gpu,
        tokens=4096 if budget.tokens is None else budget.tokens,
        calibrate=budget.calibrate,
        target=budget.target or (),
        ignore=budget.ignore or (),
    )
    rows = [layer.row() for layer in recipe.layers]
    deliver(printed, Report(recipe.document(), rows, lambda page: _show(recipe, page)))


GUIDES = ("gpu", "tokens")
"""Options that have an effect also without a latency budget if the pattern needs predicted times."""


def _check_no_budget(pattern: str, budget: Budget, solutions: int) -> None:
    """Raise BadInput for options that have no effect without a latency budget."""
    from prunecast.patterns import parse_pattern

    guides = GUIDES if parse_pattern(pattern).needs_times else ()
    for name in ("cap", "gpu", "tokens", "batch", "workload", "runtime", "engine"):
        given, usual = getattr(budget, name), getattr(Budget, name)
        if given != usual and name not in guides:
            value = given[0] if name == "cap" else given
            raise BadInput(f"--{name} {value} needs a latency budget: give --latency or --speedup too")
    if solutions != 1:
        raise BadInput(f"--solutions {solutions} needs a latency budget: give --latency or --speedup too")


def _show(recipe: "Recipe", page: "Page") -> None:
    page.table(
        [
            {
                "layer": layer.layer,
                "M x K": f"{layer.m} x {layer.k}",
                "sparsity %": percent(layer.sparsity or 0.0),
                "importance kept %": percent(layer.retained_importance),
            }
            for layer in recipe.layers
        ],
        words=("layer",),
    )
    page.say()
    for line in _removed_lines(recipe.removed):
        page.say(line)
    for skipped in recipe.skipped:
        page.say(f"unchanged: {skipped.layer}: {skipped.reason}")
    is_model = recipe.folder is not None and (recipe.folder / "config.json").is_file()
    files = "all files of the model" if is_model else "weights.safetensors"
    page.say(f"Wrote {files} ({recipe.pattern}) and recipe.json in {recipe.folder}.")


def _removed_lines(removed: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for row in removed:
        left = f"{row['after']} of {row['before']} {row['part']} are left"
        if isinstance(row["after"], list):
            least, most = min(row["after"]), max(row["after"])
            left = f"{least} to {most} of {row['before']} {row['part']} are left in each layer"
        how = "" if row["criterion"] == "none" else f", chosen by {row['criterion']}"  # random weights
        yield f"removed: {left}{how}."


def _prune_to_target(
    weights: str,
    folder: str | None,
    budget: Budget,
    sparsity: float | None,
    printed: opt.PrintForm,
    solutions: int,
    *,
    even: bool | None,
) -> None:
    """Prune to a latency budget, write the result, and print it."""
    from prunecast.cli.progress import ProgressLines, tell
    from prunecast.codesign.search import prune_model

    targets = budget.targets(sparsity)
    with ProgressLines() as progress:
        pruned = prune_model(
            weights if budget.remove and not budget.transpose else budget.source(weights),
            targets,
            out=folder,
            solutions=solutions,
            even=even,
            remove=budget.remove or (),
            **budget.arguments(),
            progress=progress,
        )
    for remark in pruned.remarks:
        tell(f"prunecast: {remark}", err=True)
    shown = partial(_show_target, pruned)
    deliver(printed, Report(pruned.document(), pruned.frame_rows(), shown))


def _show_target(pruned: "PrunedModel", page: "Page") -> None:
    result = pruned.result
    how = f"{pruned.engine}, {pruned.dtype}, {pruned.conditions.words}"
    memory = list(zip(result.dense_memory, result.memory, strict=True))
    lines = dict.fromkeys(line for one in memory for line in misfit(*one, result.gpu_bytes))
    page.say(f"{pruned.gpu}, {_tokens(pruned)}, {how}: {pruned.source}", *lines, "")
    page.table(
        [
            {
                "layer": layer.layer if layer.copies == 1 else f"{layer.layer}, {layer.copies} alike",
                "M x K": f"{layer.m} x {layer.k}",
                "pattern": layer.pattern,
                "kernel": layer.kernel,
                "sparsity %": percent(layer.removed),
                "kept %": percent(layer.retained_importance),
                "time us": microseconds(layer.seconds),
                "speedup": f"{layer.speedup:.2f}x",
            }
            for layer in result.layers
        ],
        words=("layer", "M x K", "pattern", "kernel"),
    )
    page.say()
    for line in _remarks(pruned):
        page.say(line)
    _show_front(pruned, page)
    page.say(
        f"{microseconds(result.seconds)} us, {result.seconds / result.dense_seconds:.1%} of dense "
        f"({result.speedup:.2f}x), keeps {result.retained_importance:.1%} of the importance "
        f"at {result.sparsity:.1%} sparsity."
    )
    for one in memory:
        say_facts(memory_facts(*one, result.gpu_bytes), page)
    page.say(*_yardsticks(pruned))
    page.say("Nothing is written: give -o FOLDER." if pruned.folder is None else f"Wrote {pruned.folder}.")
    for other in pruned.others:
        own = other.result
        page.say(
            f"Or {other.offered}: {microseconds(own.seconds)} us, keeps {own.retained_importance:.1%} "
            f"at {own.sparsity:.1%} sparsity: {other.folder or 'not written'}."
        )


def _remarks(pruned: "PrunedModel") -> Iterator[str]:
    """Yield lines on removed parts, random weights, dense layers, and operators without a time model."""
    result = pruned.result
    yield from _removed_lines(pruned.removed)
    if not pruned.has_weights:
        yield "The weights are random with heavy tails: what is kept of their importance says little."
    if result.time is None:
        yield "The time is that of these products: attention, norms and embeddings are not included."
    dense = sum(layer.pattern == "dense" for layer in result.layers)
    if dense:
        why = (
            "the dense time is within the budget" if result.sparsity == 0.0 else "nothing gains enough there"
        )
        yield f"{dense} of {len(result.layers)} layers stay dense: {why}."
    slower = sum(layer.pattern != "dense" and layer.speedup < 1.0 for layer in result.layers)
    if slower:
        yield (
            f"{slower} pruned layers are slower than dense ones, but save the pass more: fewer transposes, "
            "fused epilogues."
        )
    if result.time is not None:
        outside = result.seconds - result.time.product_seconds
        yield f"{microseconds(outside)} us of the pass are not products with weights."
        unknown = [name for name, kind in result.time.kind_of.items() if kind == "unknown"]
        if unknown:
            listed = ", ".join(unknown[:5]) + (", ..." if len(unknown) > 5 else "")
            yield f"{len(unknown)} unknown operators count as the memory they move: {listed}."


def _yardsticks(pruned: "PrunedModel") -> Iterator[str]:
    """Yield lines that compare the result with other kernels without pruning, and with uniform pruning."""
    from prunecast.codesign.search.targets import ONE_SHARE
    from prunecast.codesign.search.yardsticks import OTHER_KERNEL

    result, unpruned_s = pruned.result, pruned.unpruned_seconds
    if unpruned_s is not None and result.dense_seconds > OTHER_KERNEL * unpruned_s:
        other, own = result.dense_seconds / unpruned_s, unpruned_s / result.seconds
        yield f"{other:.2f}x by another kernel without pruning, {own:.2f}x by pruning."
    if pruned.uniform:
        points = "; ".join(
            f"{one.pattern} of {one.removed:.0%} {microseconds(one.seconds)} us, "
            f"keeps {one.retained_importance:.1%}"
            for one in pruned.uniform
        )
        yield f"Uniform (closed form): {points}."
    if pruned.offered == ONE_SHARE:
        yield "Layers lose nearly one share each; with --uneven they compete by importance."
    else:
        study = "layers of one share (--even) lost less in docs/studies/language.md"
        yield f"Importance is not accuracy: {study}."


def _tokens(pruned: "PrunedModel") -> str:
    """Return the workload as text, or the range of the numbers of tokens over all layers."""
    if pruned.workload is not None:
        return pruned.workload
    counts = sorted({layer.n for layer in pruned.result.layers})
    return f"{counts[0]} tokens" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} tokens"


def _show_front(pruned: "PrunedModel", page: "Page") -> None:
    """Print time and retained importance of the Pareto front; equal rows are printed once."""
    dense_s = pruned.result.dense_seconds
    rows = [
        {
            "time us": microseconds(point.seconds),
            "of dense %": percent(point.seconds / dense_s),
            "importance kept %": percent(point.retained_importance),
            "sparsity %": percent(point.sparsity),
        }
        for point in pruned.result.front
    ]
    page.table(list({tuple(row.values()): row for row in rows}.values()))
    page.say()
