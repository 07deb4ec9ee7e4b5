"""`prunecast predict`: predict dense and sparse times of each layer, with crossovers, notes and a verdict."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from prunecast.cli import options as opt
from prunecast.cli.model_page import show_model
from prunecast.cli.output import Report, deliver
from prunecast.cli.progress import MISSED, ProgressLines, tell
from prunecast.errors import BadInput
from prunecast.text import Cells, microseconds, percent, table_text

if TYPE_CHECKING:
    from prunecast.cli.tables import Page
    from prunecast.codesign import Prediction, PredictionTable
    from prunecast.workload.layers import Skipped


def predict(
    weights: opt.Weights,
    *,
    gpu: opt.Gpu = "h200-sxm",
    options: opt.Layers,
    details: Annotated[
        bool, opt.flag("Of a whole model, print every kernel of every layer.", "--details")
    ] = False,
    crossovers: Annotated[
        bool | None,
        opt.flag(
            "Also find the density below which each kernel wins.",
            default="unless a whole model is printed without --details",
        ),
    ] = None,
    price: Annotated[
        float | None,
        opt.option(
            "X",
            "Price of an hour of one GPU, for the cost of a million tokens of a whole model.",
            default="none",
        ),
    ] = None,
    min_speedup: Annotated[
        float | None,
        opt.option("X", "Exit with 1 unless the model, or its layers, reach it.", default="none"),
    ] = None,
    printed: opt.Printed,
) -> None:
    """Time of each layer, dense and pruned. A row for every kernel that can run the pattern; needs no GPU."""
    if min_speedup is not None and not 0 < min_speedup < float("inf"):
        raise BadInput(f"min-speedup must be above 0, got {min_speedup}")
    from prunecast.codesign import predict as predict_layers

    with ProgressLines() as progress:
        table = predict_layers(
            options.source(weights),
            gpu=gpu,
            **options.arguments(),
            crossovers=True if details and crossovers is None else crossovers,
            price=price,
            progress=progress,
        )
    shown = partial(_show_predictions, table, details=details)
    deliver(printed, Report(table.document(), table.frame_rows(), shown))
    speedup = table.speedup if table.whole is None else table.whole.speedup
    if min_speedup is not None and speedup < min_speedup:
        tell(f"prunecast: speedup {speedup:.3g} is below the {min_speedup:g} asked for", err=True)
        raise typer.Exit(MISSED)


MOST_NOTES = 12
HOPELESS = 0.5
"""Speedup over dense below which nobody would use a kernel: notes on its validated range are omitted."""
OUTSIDE = "outside the validated range"


def _show_predictions(table: "PredictionTable", page: "Page", *, details: bool) -> None:
    """Print a table of predictions; for a whole model its summary, and the table only with `details`."""
    if table.whole is not None:
        show_model(table, table.whole, page)
        for remark in table.whole.remarks:
            page.say(f"note: {remark}")
        if not details:
            page.say(*_notes(table.best(), [skipped for skipped in table.skipped if skipped.kernel is None]))
            page.say("Every kernel of every layer, with intervals and crossovers: --details")
            _show_crossovers(table, page)
            return
        page.say()
    _show_layers(table, page)


def _show_layers(table: "PredictionTable", page: "Page") -> None:
    """Print every kernel of every layer, the crossovers, the notes and a verdict on the layers."""
    from prunecast.codesign.interval import interval_words
    from prunecast.kernels.libraries.tiled import TCGEN05

    first, origin = table[0], table.provenance
    limit = "" if origin.power_limit_w is None else f", {origin.power_limit_w:g} W"
    page.say(f"{origin.gpu}, {table.run_words}, {first.engine}, {origin.conditions.words}{limit}")
    _show_rows(table, page)
    _show_crossovers(table, page)
    page.say()
    page.say(*_notes(table, table.skipped))
    page.say(f"Interval (low - high): {interval_words(origin.gpu)}.")
    if first.gpu.compute_capability in TCGEN05:  # no kernel of this project uses it
        page.say(
            "Sparse kernels are this project's: mma.sync reaches a part of this GPU's tensor rate, which a",
            "library with tcgen05 could have whole.",
        )
    page.say(*_verdict(table), style=None if table.whole else "bold")


def _show_rows(table: "PredictionTable", page: "Page") -> None:
    """Print the name of each layer on a line, since it may be long, and below it a line for each kernel."""
    heading, *lines = table_text([_cells(row) for row in table], words=WORDS).split("\n")
    page.say("", f"  {heading}")
    rest = iter(lines)
    for layer in table.layers():
        first = layer[0]
        pixels = f", N {first.n}" if first.n != table.provenance.tokens else ""
        runs = table.runs.get(first.layer, 1)
        often = "" if runs == 1 else f", {runs:.4g} times a pass"
        page.say(f"{first.layer} ({first.m} x {first.k}{pixels}{often})", style="bold")
        for _ in layer:
            page.say(f"  {next(rest)}")


WORDS = ("kernel", "pattern", "bound")


def _cells(row: "Prediction") -> Cells:
    return {
        "kernel": row.kernel,
        "pattern": row.pattern,
        "sparsity %": percent(row.sparsity),
        "time us": microseconds(row.seconds),
        "(low - high)": f"({microseconds(row.seconds_low)} - {microseconds(row.seconds_high)})",
        "speedup": f"{row.speedup_over_dense:.2f}x",
        "bound": row.bound,
    }


def _show_crossovers(table: "PredictionTable", page: "Page") -> None:
    """Print a row for each shape of layers, with the crossover of each kernel, if crossovers were found."""
    from prunecast.codesign.crossover import HIGHEST

    if table.crossovers:
        what = f"Density below which a kernel beats dense (closed-form model, down to {1 - HIGHEST:.0%}):"
        page.say("", what, "")
        page.table(_crossovers(table), words=("layer",))


def _crossovers(table: "PredictionTable") -> list[Cells]:
    kernels = list(dict.fromkeys(crossover.kernel for crossover in table.crossovers))
    density = {
        (c.layer, c.kernel): "never" if c.density is None else f"{c.density:.0%}" for c in table.crossovers
    }
    # The crossovers of layers of equal size may still differ where the time hardly depends on the density
    sizes = {row.layer: (row.m, row.k, row.n) for row in table}
    alike: dict[tuple[int, int, int], list[str]] = {}
    for layer in dict.fromkeys(crossover.layer for crossover in table.crossovers):
        alike.setdefault(sizes[layer], []).append(layer)
    return [
        {
            "layer": _named(names),
            **{k: _range([density.get((layer, k), "-") for layer in names]) for k in kernels},
        }
        for names in alike.values()
    ]


def _named(layers: Sequence[str]) -> str:
    return layers[0] if len(layers) == 1 else f"{layers[0]} and {len(layers) - 1} of its shape"


def _range(densities: Sequence[str]) -> str:
    """Return one density, or the lowest and the highest of several; `never` counts as the lowest."""
    known = sorted(set(densities), key=lambda text: (text.endswith("%"), text != "-", len(text), text))
    return known[0] if len(known) == 1 else f"{known[0]} - {known[-1]}"


def _notes(rows: "Sequence[Prediction]", skips: "Sequence[Skipped]") -> Iterator[str]:
    """Yield a line for each note on these rows, with its kernels and layers, then lines about skipped layers.

    The number of notes is limited, but skipped tensors are always named.
    """
    rows_of_note: dict[str, list[Prediction]] = {}
    for row in rows:
        for note in filter(None, row.note.split("; ")):
            if OUTSIDE in note and row.speedup_over_dense < HOPELESS:
                continue
            rows_of_note.setdefault(note, []).append(row)
    everything = {row.kernel for row in rows}
    lines = [f"note: {_about(note, about, everything)}" for note, about in rows_of_note.items()]
    reasons = Counter((skipped.kernel, skipped.reason) for skipped in skips)
    first = {(skipped.kernel, skipped.reason): skipped.layer for skipped in reversed(skips)}
    named: list[str] = []
    for (kernel, reason), count in reasons.items():
        what = f"{kernel} on {first[kernel, reason]}" if kernel else first[kernel, reason]
        more = f" and {count - 1} more" if count > 1 else ""
        (lines if kernel else named).append(f"skipped: {what}{more}: {reason}")
    shown = max(MOST_NOTES - len(named), 0)
    yield from (*lines[:shown], *named)
    if len(lines) > shown:
        yield f"... and {len(lines) - shown} more notes, see --json"


def _about(note: str, rows: "Sequence[Prediction]", everything: set[str]) -> str:
    """Return a note with the layers that it is about.

    The kernels that it is about are added unless they are all kernels, or the note begins with their name.
    """
    kernels = list(dict.fromkeys(row.kernel for row in rows))
    layers = list(dict.fromkeys(row.layer for row in rows))
    named = set(kernels) == everything or note.startswith(kernels[0])
    where = layers[0] if len(layers) == 1 else f"{len(layers)} layers"
    return f"{'' if named else ', '.join(kernels) + ': '}{note} ({where})"


def _verdict(table: "PredictionTable") -> Iterator[str]:
    """Yield lines with the fastest kernels and the total times of all layers.

    For a token-major model in an engine that is not predicted as a whole, yield also a line with the time
    including the transposes of x and y.
    """
    winners = Counter(kernel for kernel in table.fastest_kernels())
    wins = ", ".join(f"{_whose(kernel)} {count}" for kernel, count in winners.most_common())
    dense, best, added = table.dense_seconds, table.best_seconds, table.transpose_seconds
    yield f"Fastest per layer: {wins}."
    times = f"dense {microseconds(dense)} us, best {microseconds(best)} us"
    yield f"{_what(table)}: {times}, {table.speedup:.2f}x."
    if added and table.whole is None and table.provenance.runtime == "engine":
        times = f"{microseconds(best + added)} us, {dense / (best + added):.2f}x"
        yield f"In a token-major model, as in torch, with transposes of x and y: {times}."


def _whose(kernel: str) -> str:
    """Return the name of a kernel, marked as NVIDIA's if it is a sparse kernel of their libraries."""
    from prunecast.kernels import KERNELS

    record = KERNELS[kernel]
    if not record.library or record.is_baseline:
        return kernel
    return f"{kernel} (NVIDIA's library)"


def _what(table: "PredictionTable") -> str:
    """Return `All layers`, or a text with the predicted share of the weights if matrices are missing."""
    if not table.missing:
        return "All layers"
    count = len(list(table.layers()))
    share = 100 * table.coverage
    shown = f"{share:.0f}" if share >= 1 else f"{share:.2g}"
    return f"Only {count} of {count + len(table.missing)} matrices, {shown} % of the weights"
