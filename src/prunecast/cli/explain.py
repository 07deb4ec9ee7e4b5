"""`prunecast explain`: where the time of one layer goes, and what would help."""

from typing import TYPE_CHECKING, Annotated

import typer

from prunecast.cli import options as opt
from prunecast.cli.output import Report, deliver
from prunecast.cli.progress import ProgressLines

if TYPE_CHECKING:
    from rich.console import Console

    from prunecast.codesign import Explanation, Section

BAR_WIDTH = 30


def explain(
    weights: opt.Weights,
    *,
    gpu: opt.Gpu = "h200-sxm",
    kernel: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", show_default="the first that runs the pattern", help="Kernel to explain."
        ),
    ] = None,
    options: opt.Layer,
    printed: opt.Printed,
) -> None:
    """Where the time of one layer goes. Name it with --target; also says what would help, and by how much."""
    to = printed.destination()
    from prunecast.codesign import explain as explain_layer

    with ProgressLines() as progress:
        explanation = explain_layer(
            options.source(weights), gpu=gpu, kernel=kernel, **options.arguments(), progress=progress
        )
    rows = [
        {"section": section.title, **fact._asdict()}
        for section in explanation.sections
        for fact in section.facts
    ]
    deliver(to, Report(explanation.document(), rows, lambda console: _show(explanation, console)))


def _show(explanation: "Explanation", console: "Console") -> None:
    from prunecast.cli.tables import microseconds, safe
    from prunecast.codesign import INTERVAL_KIND

    row = explanation.prediction
    console.print(
        safe(
            f"{row.layer}: {row.m} x {row.k}, {row.n} tokens, {row.dtype}, {row.kernel} on {row.pattern}, "
            f"{row.sparsity:.1%} removed, {explanation.provenance.gpu}, {row.engine}, {row.state}"
        ),
        soft_wrap=True,
    )
    low, high = microseconds(row.seconds_low), microseconds(row.seconds_high)
    console.print(
        f"{microseconds(row.seconds)} us ({low} - {high}, {INTERVAL_KIND}), "
        f"{row.speedup_over_dense:.2f}x over dense",
        markup=False,
    )
    for section in explanation.sections:
        _show_section(section, console)
    console.print("\nWhat would help", style="bold")
    for advice in explanation.advice:
        console.print(f"  {advice.gain:6.1%}  {advice.change}", markup=False, soft_wrap=True)
    if not explanation.advice:
        console.print("  nothing that was tried saves more than 1 %", markup=False)


def _show_section(section: "Section", console: "Console") -> None:
    from prunecast.cli.tables import significant

    console.print(f"\n{section.title}", style="bold")
    longest = max((len(fact.name) for fact in section.facts), default=0)
    counts = [fact.value for fact in section.facts if fact.name.startswith("SMs with ")]
    most = max((float(count) for count in counts), default=0.0)
    for fact in section.facts:
        value = fact.value if isinstance(fact.value, str) else significant(fact.value)
        bar = (
            f"  {'#' * round(BAR_WIDTH * float(fact.value) / most)}"
            if fact.name.startswith("SMs with ")
            else ""
        )
        unit = "" if fact.unit == "count" else fact.unit
        console.print(
            f"  {fact.name:<{longest}}  {value:>9} {unit}{bar}".rstrip(), markup=False, soft_wrap=True
        )
