"""Print the prediction of a whole model: time, tokens per second, memory, and a line for each layer shape."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

from prunecast.text import Cells, gigabytes, microseconds, milliseconds, shortened, significant, table_text

if TYPE_CHECKING:
    from prunecast.cli.tables import Page
    from prunecast.codesign import Explanation, Prediction, PredictionTable
    from prunecast.codesign.whole_model import Phase, WholeModel
    from prunecast.workload.memory import PassMemory

LABEL, WIDTH = 10, 80
"""Width in characters of the labels before the facts about a model, and of a printed line."""
INDENT = " " * (LABEL + 3)
SHORTEST_NAME = 14
"""Least width in characters to which the name of a layer is shortened."""
SHOWN_BYTES = 5e6
"""Parts of the memory of at most this many bytes are not printed, since they would show as 0.00 GB."""


def show_model(table: "PredictionTable", whole: "WholeModel", page: "Page") -> None:
    """Print the facts about each pass of the model, then a line for each shape of its layers."""
    from prunecast.workload.graph import RUNTIMES

    origin, first = table.provenance, table[0]
    name = origin.source or "model"
    on = origin.gpu if whole.gpus == 1 else f"{whole.gpus} x {origin.gpu}"
    for phase in whole.phases:
        share = "" if len(whole.phases) == 1 else f", {100 * phase.run.share:.3g} % of the passes"
        memory = phase.dense.memory, phase.best.memory
        page.say(f"{name} on {on}: {phase.words}{share}", *misfit(*memory, whole.gpu.dram_bytes))
        page.say(phase.verdict(table.removed), style="bold")
        say_facts(_facts(phase, whole), page)
    if len(whole.phases) > 1:
        dense, best = milliseconds(whole.dense.seconds), milliseconds(whole.best.seconds)
        page.say(f"mean pass: dense {dense} ms, pruned {best} ms: {whole.speedup:.2f}x", style="bold")
    page.say(
        "", *(f"  {line}" for line in table_text(_shapes(table, whole.phases), words=WORDS).split("\n")), ""
    )
    page.say(
        f"{first.dtype}, {first.engine}, {origin.conditions.words},",
        f"{RUNTIMES[origin.runtime].meaning}.",
    )


def say_facts(facts: Iterable[tuple[str, str]], page: "Page") -> None:
    """Print facts, each with its label, in lines of `WIDTH` characters."""
    for label, text in facts:
        page.say(*wrap(text, WIDTH, initial_indent=f"  {label:<{LABEL}} ", subsequent_indent=INDENT))


def misfit(dense: "PassMemory", best: "PassMemory", has: float) -> Iterator[str]:
    """Yield a line if the dense model does not fit into the memory of a GPU, which has `has` bytes.

    `dense` and `best` are the memory that the dense and the pruned model need.
    """
    if not dense.fits(has):
        pruned = "fits" if best.fits(has) else "does not either"
        yield (
            f"DOES NOT FIT: dense needs {gigabytes(dense.total)} GB of {gigabytes(has)} GB "
            f"(pruned {gigabytes(best.total)} GB {pruned}); times are as if it did"
        )


def memory_facts(
    dense: "PassMemory", best: "PassMemory", has: float, each: str = ""
) -> Iterator[tuple[str, str]]:
    """Yield (label, text) of the memory that a pass needs, dense -> pruned, on a GPU with `has` bytes.

    `each` is a text that follows the total, such as ` on each GPU`.
    """
    parts = {"cache": best.cache, "activations": best.activations}
    others = "".join(f", {name} {gigabytes(size)}" for name, size in parts.items() if size > SHOWN_BYTES)
    batches = " -> ".join(f"{memory.largest_batch(has):,}" for memory in (dense, best))
    totals = f"{gigabytes(dense.total)} -> {gigabytes(best.total)} of {gigabytes(has)} GB"
    yield "memory", f"{totals}{each}; largest batch {batches}"
    yield "of it", f"weights {gigabytes(dense.weights)} -> {gigabytes(best.weights)}{others} GB"


def _facts(phase: "Phase", whole: "WholeModel") -> Iterator[tuple[str, str]]:
    """Yield (label, text) of each fact about a pass, with the values dense -> pruned."""
    times = [phase.dense.time, phase.best.time]
    rates = {"images/s" if phase.has_images else "tokens/s": 1}
    if phase.run.is_decode and phase.run.batch > 1:
        rates["a sequence"] = phase.run.batch
    if whole.gpus > 1:
        rates["a GPU"] = whole.gpus
    shown = [
        f"{' -> '.join(f'{phase.tokens_per_pass / count / time.seconds:,.0f}' for time in times)} {name}"
        for name, count in rates.items()
    ]
    of_pass = {
        True: "; the pass is the time per output token",
        False: "; the pass is the time to first token",
    }
    yield "rate", ", ".join(shown) + (of_pass[phase.run.is_decode] if phase.generates else "")
    each = "" if whole.gpus == 1 else " on each GPU"
    yield from memory_facts(phase.dense.memory, phase.best.memory, whole.gpu.dram_bytes, each)
    powers = [phase.dense.power, phase.best.power]
    joules = " -> ".join(significant(whole.gpus * p.joules / phase.tokens_per_pass) for p in powers)
    watts = " -> ".join(f"{p.watts:.0f}" for p in powers)
    unit = "an image" if phase.has_images else "a token"
    yield "energy", f"{joules} J {unit}, {watts} W{each} when repeated for seconds"
    if whole.price is not None:
        costs = " -> ".join(significant(phase.cost(side, whole.price)) for side in (phase.dense, phase.best))
        unit = "images" if phase.has_images else "tokens"
        yield "cost", f"{costs} for a million {unit}, at {whole.price:g} an hour for each GPU"
    yield "by kind", f"{', '.join(_kinds(phase))} ms"
    fused = [milliseconds(side.fused_s) for side in (phase.dense, phase.best)]
    yield "bound", f"{' -> '.join(fused)} ms with all but products and attention fused away"
    kernels = phase.best.time.kernels_by_kind.items()
    if kernels:
        yield "libraries", ", ".join(f"{kind} by {' and '.join(names)}" for kind, names in kernels)


def show_layer_in_model(explanation: "Explanation", page: "Page") -> None:
    """Print the time of the whole model to which an explained layer belongs, and remarks on the model."""
    model, row = explanation.model, explanation.prediction
    if model is not None and model.whole is not None and explanation.alike_s is not None:
        (phase,) = model.whole.phases
        page.say("", f"In the whole model, {phase.words}", style="bold")
        own_ms, runs = milliseconds(explanation.alike_s), explanation.alike_s / row.seconds
        say_facts(
            [
                ("pass", phase.verdict(model.removed)),
                ("by kind", f"{', '.join(_kinds(phase))} ms"),
                ("layers", f"{runs:.4g} of this size, {own_ms} ms with {row.kernel}"),
            ],
            page,
        )
    for remark in explanation.remarks:
        page.say(f"note: {remark}")


def _kinds(phase: "Phase") -> Iterator[str]:
    """Yield a text for each kind of operation with its milliseconds, dense -> pruned where they differ."""
    dense, best = phase.dense.seconds_by_part, phase.best.seconds_by_part
    for part in dense:
        shown = dict.fromkeys(significant(round(1e3 * of[part], 2)) for of in (dense, best))
        if dense[part] or best[part]:
            yield f"{part} {' -> '.join(shown)}"


WORDS = ("layer", "kernel", "pattern", "shape")


def _shapes(table: "PredictionTable", phases: "Sequence[Phase]") -> list[Cells]:
    """Return a row for each shape and number of tokens, with the kernel that is fastest for most such layers.

    Names of layers are shortened so that a line has at most `WIDTH` characters.
    """
    groups: dict[tuple[int, int, int], list[tuple[Prediction, Prediction]]] = {}
    for rows, best in zip(table.layers(), table.best(), strict=True):
        groups.setdefault((best.m, best.k, best.n), []).append((rows[0], best))
    found = [_shape(table, phases, size, layers) for size, layers in groups.items()]
    others = (max(len(name), *(len(line[name]) for line in found)) for name in found[0] if name != "layer")
    room = max(SHORTEST_NAME, WIDTH - 2 - sum(2 + width for width in others))
    return [{**line, "layer": shortened(line["layer"], room)} for line in found]


def _shape(
    table: "PredictionTable",
    phases: "Sequence[Phase]",
    size: tuple[int, int, int],
    layers: "list[tuple[Prediction, Prediction]]",
) -> Cells:
    """Return the line of layers of one shape, given the dense row and the chosen row of each."""
    dense, best = zip(*layers, strict=True)
    runs = [table.runs.get(row.layer, 1.0) for row in best]
    share = next((p.run.share for p in phases if best[0].layer.endswith(f" {p.run.label}")), 1.0)
    (kernel, pattern), _ = Counter((row.kernel, row.pattern) for row in best).most_common(1)[0]
    seconds = [
        sum(often * row.seconds for often, row in zip(runs, rows, strict=True)) / sum(runs)
        for rows in (dense, best)
    ]
    return {
        "layer": best[0].layer.removesuffix(".weight"),
        "times": f"{sum(runs) / share:.4g}",
        "shape": "x".join(map(str, size)),
        "dense us": microseconds(seconds[0]),
        "best us": microseconds(seconds[1]),
        "speedup": f"{seconds[0] / seconds[1]:.2f}x",
        "kernel": kernel,
        "pattern": pattern,
    }
