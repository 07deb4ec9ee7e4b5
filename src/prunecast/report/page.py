"""The page: a table of predictions, its weights and GPU become one HTML file."""

import platform
import re
from collections.abc import Callable, Sequence
from importlib import metadata, resources
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup, escape

from prunecast.codesign.engines import Engine, Progress, silent
from prunecast.codesign.interval import INTERVAL_KIND
from prunecast.codesign.layers import Source
from prunecast.codesign.pictures import draw_roofline, draw_sm_work, new_axes
from prunecast.codesign.predict import predict
from prunecast.codesign.prediction import Prediction
from prunecast.codesign.settings import predicted_layers
from prunecast.codesign.table import PredictionTable, fastest
from prunecast.files import write_text_aside
from prunecast.hardware import GpuSpec, at_power_limit, load_gpu
from prunecast.report import pictures
from prunecast.report.pictures import PAGE, MeasuredPoint, drawing, svg_text
from prunecast.report.study import LayerStudy, chosen_layers, study
from prunecast.report.words import meanings, words_of
from prunecast.text import microseconds, percent, printable, significant

LIBRARIES = ("numpy", "numba", "matplotlib", "jinja2")
LEAST_GAIN = 1.02
"""A speedup below this is none."""


def _breakable(text: str) -> Markup:
    """A name that a narrow column may break behind its dots and slashes, or where it goes on for long."""
    parts = re.findall(r"[^./]{1,24}[./]?|[./]", printable(text))
    return Markup("<wbr>").join(escape(part) for part in parts)


FILTERS: dict[str, Callable[..., str]] = {
    "number": significant,
    "us": microseconds,
    "percent": percent,
    "printable": printable,
    "breakable": _breakable,
}
"""Filters of the template."""


def write_report(weights: Source, path: str | Path, *, gpu: str | GpuSpec, **options: Any) -> PredictionTable:
    """Predict, write the page and return the table; `options` are those of `predict`. Raises BadInput."""
    table = predict(weights, gpu=gpu, **options)
    write_page(path, render_page(table, weights, gpu=gpu))
    return table


def write_page(path: str | Path, page: str) -> None:
    """Write a page aside and rename it. Raises BadInput if the file cannot be written."""
    write_text_aside(Path(path), page)


def render_page(
    table: PredictionTable,
    weights: Source,
    *,
    gpu: str | GpuSpec,
    measured: Sequence[MeasuredPoint] = (),
    progress: Progress = silent,
) -> str:
    """HTML of one prediction; equal input gives equal text with the same libraries.

    Parameters
    ----------
    table : what `predict` returned
    weights : what it was given
    gpu : the same, by name or spec
    measured : measured cases beside their predictions; none leave that section out

    Raises
    ------
    BadInput : the weights or the GPU cannot be read any more
    """
    spec = load_gpu(gpu) if isinstance(gpu, str) else gpu
    first, origin = table[0], table.provenance
    spec = spec if origin.power_limit_w is None else at_power_limit(spec, origin.power_limit_w)
    engine = Engine(name=first.engine, gpu=spec, state=first.state, launch=origin.launch, l2=origin.l2)
    chosen = chosen_layers(table)
    layers = predicted_layers(weights, origin.workload, [rows[0].layer for rows in chosen])
    shown = []
    for done, rows in enumerate(chosen):
        progress("looking into layers", done, len(chosen))
        one = study(rows, table, layers[rows[0].layer], engine)
        shown.append({"study": one, "pictures": _pictures(one, spec, salt=f"layer-{done}")})
    with drawing():
        scatter = pictures.draw_measured(measured, salt="measured") if measured else None
    return _fill(
        table=table,
        gpu=spec,
        summary=summary_of(table),
        layers=shown,
        measured=measured,
        scatter=scatter,
        meanings=meanings(),
        words=words_of(table),
        interval_kind=INTERVAL_KIND,
        provenance=_provenance(table),
    )


def _pictures(one: LayerStudy, gpu: GpuSpec, *, salt: str) -> dict[str, str]:
    """SVG by section; empty where the engine or the pattern has nothing to draw."""
    with drawing():
        drawn = dict.fromkeys(("tiles", "work", "crossover", "pareto"), "")
        roofline = new_axes()
        draw_roofline(one.rows, gpu, roofline, PAGE)
        drawn["roofline"] = svg_text(roofline, "Roofline", salt=f"{salt}-roofline")
        if one.tiles is not None:
            drawn["tiles"] = pictures.draw_tile_maps(one.tiles, one.adaptive, salt=f"{salt}-tiles")
        if one.simulated is not None:
            work = new_axes(height=2.5)
            draw_sm_work(one.simulated, one.subject.kernel, work, PAGE)
            drawn["work"] = svg_text(work, "Work of each SM", salt=f"{salt}-work")
        if len(one.curves) > 1:
            drawn["crossover"] = pictures.draw_crossover(one.curves, salt=f"{salt}-crossover")
            drawn["pareto"] = pictures.draw_pareto(one.curves, salt=f"{salt}-pareto")
    return drawn


def _provenance(table: PredictionTable) -> dict[str, Any]:
    """What the page must say so that it can be made again."""
    head = table.provenance.document()
    asked = head.pop("asked")
    libraries = {name: metadata.version(name) for name in LIBRARIES}
    return (
        head
        | {f"asked {name}": value for name, value in asked.items()}
        | {
            "engine": table[0].engine,
            "state": table[0].state,
            "Python": platform.python_version(),
            **libraries,
        }
    )


def _fill(**values: Any) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    room = resources.files("prunecast.report")
    environment = Environment(
        loader=PackageLoader("prunecast.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(FILTERS)
    style, script = ((room / name).read_text(encoding="utf-8") for name in ("report.css", "report.js"))
    return environment.get_template("report.html.j2").render(style=style, script=script, **values)


class _SummaryLine(NamedTuple):
    """One layer."""

    dense: Prediction
    best: Prediction
    rows: tuple[Prediction, ...]
    verdict: str
    sure: str
    """`win` or `loss` where intervals do not overlap, else `open`."""


def summary_of(table: PredictionTable) -> list[_SummaryLine]:
    """A line for each layer, in the order of the weights."""
    return [_line(rows) for rows in table.layers()]


def _line(rows: tuple[Prediction, ...]) -> _SummaryLine:
    dense, best = rows[0], fastest(rows)
    sparse = fastest(rows[1:]) if len(rows) > 1 else None
    if sparse is None:
        return _SummaryLine(dense, best, rows, "nothing to compare with", "open")
    if best.speedup_over_dense >= LEAST_GAIN:
        sure = best.seconds_high < dense.seconds_low
        verdict = "pays" if sure else "may pay"
        return _SummaryLine(dense, best, rows, verdict, "win" if sure else "open")
    sure = dense.seconds_high < sparse.seconds_low
    verdict = "stay dense" if sure else "no gain seen"
    return _SummaryLine(dense, best, rows, verdict, "loss" if sure else "open")
