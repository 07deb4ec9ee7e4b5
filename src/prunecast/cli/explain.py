"""`prunecast explain`: break down the time of one layer, and list changes that would make it faster."""

from functools import partial
from typing import TYPE_CHECKING, Annotated

from prunecast.cli import options as opt
from prunecast.cli.model_page import show_layer_in_model
from prunecast.cli.output import Report, deliver
from prunecast.cli.progress import ProgressLines
from prunecast.text import microseconds, significant

if TYPE_CHECKING:
    from prunecast.cli.tables import Page
    from prunecast.codesign import Explanation, Section

BAR_WIDTH = 30


def explain(
    weights: opt.Weights,
    *,
    gpu: opt.Gpu = "h200-sxm",
    kernel: Annotated[
        str | None, opt.option("NAME", "Kernel to explain.", default="the fastest that runs the pattern")
    ] = None,
    options: opt.LayerOptions,
    engine: opt.Engine = opt.DEFAULTS["engine"],
    launch: opt.Launch = opt.DEFAULTS["launch"],
    runtime: opt.Runtime = opt.DEFAULTS["runtime"],
    printed: opt.Printed,
) -> None:
    """Where the time of one layer goes. Name it with --target; also says what would help, and by how much.

    Of a layer of a model, the time of the whole pass is predicted too.
    """
    from prunecast.codesign import explain as explain_layer

    asked = options.arguments() | {
        "kernel": kernel,
        "engine": engine,
        "launch": launch,
        "runtime": runtime,
    }
    with ProgressLines() as progress:
        explanation = explain_layer(options.source(weights), gpu=gpu, **asked, progress=progress)
    shown = partial(_show, explanation)
    deliver(printed, Report(explanation.document(), explanation.frame_rows(), shown))


def _show(explanation: "Explanation", page: "Page") -> None:
    from prunecast.codesign import INTERVAL_KIND

    row = explanation.prediction
    page.say(
        f"{row.layer}: {row.m} x {row.k}, {row.n} tokens, {row.dtype}, {row.kernel} on {row.pattern}, "
        f"{row.sparsity:.1%} removed, {explanation.provenance.gpu}, {row.engine}, "
        f"{explanation.provenance.conditions.words}"
    )
    low, high = microseconds(row.seconds_low), microseconds(row.seconds_high)
    page.say(
        f"{microseconds(row.seconds)} us ({low} - {high}, {INTERVAL_KIND}), "
        f"{row.speedup_over_dense:.2f}x over dense"
    )
    page.say(f"{explanation.verdict}.", style="bold")
    # A dense product may be part of an engine's call, which is not what its plan shows
    if row.pattern == "dense" and row.note:
        page.say(f"note: {row.note}")
    for section in explanation.sections:
        _show_section(section, page)
    page.say("", "What would help", style="bold")
    for advice in explanation.advice:
        page.say(f"  {advice.gain:6.1%}  {advice.change}")
    if not explanation.advice:
        page.say("  nothing that was tried saves more than 1 %")
    show_layer_in_model(explanation, page)


def _show_section(section: "Section", page: "Page") -> None:
    page.say("", section.title, style="bold")
    longest = max((len(fact.name) for fact in section.facts), default=0)
    counts = [float(fact.value) for fact in section.facts if fact.name.startswith("SMs with ")]
    for fact in section.facts:
        bars = round(BAR_WIDTH * float(fact.value) / max(counts)) if fact.name.startswith("SMs with ") else 0
        unit = "" if fact.unit == "count" else fact.unit
        line = f"  {fact.name:<{longest}}  {significant(fact.value):>9} {unit}{'  ' * (bars > 0)}{'#' * bars}"
        page.say(line.rstrip())
