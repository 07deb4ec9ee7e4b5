"""Render a table of predictions as one HTML page, which also explains the technical terms that it uses."""

import platform
import re
from collections.abc import Callable, Sequence
from importlib import metadata, resources
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, Unpack

from markupsafe import Markup, escape

from prunecast.arguments import checked
from prunecast.axes import new_axes
from prunecast.codesign.interval import INTERVAL_KIND
from prunecast.codesign.pictures.plots import RooflinePoint, draw_roofline, draw_sm_work
from prunecast.codesign.predict import predict
from prunecast.codesign.prediction import Prediction
from prunecast.codesign.prepare_job import predicted_layers
from prunecast.codesign.table import PredictionTable, fastest
from prunecast.files import OutputFile, check_outputs, write_text_aside
from prunecast.hardware import GpuSpec, at_power_limit, load_gpu, spec_files
from prunecast.kernels import KERNELS
from prunecast.report import pictures
from prunecast.report.pictures import PAGE, MeasuredPoint, drawing, svg_text
from prunecast.report.study import LayerStudy, chosen_layers, study
from prunecast.settings import LayerSettings
from prunecast.text import gigabytes, microseconds, milliseconds, percent, printable, significant
from prunecast.workload.engines import Engine, Progress, silent
from prunecast.workload.layers import Source, files_of

MEANINGS = {
    "tensor": "tensor cores, which multiply small matrices",
    "issue": "instruction issue: each of the four schedulers of an SM starts one instruction per cycle",
    "shared": "shared memory, the scratch pad inside an SM",
    "l2 port": "the path from one SM to the L2 cache",
    "l2": "the L2 cache, which all SMs share",
    "dram": "the GPU's main memory",
    "latency": "no unit is busy half of the time: the layer is too small, or its steps wait for each other",
    "issuing": "an instruction is started: useful",
    "not selected": "ready, but the scheduler took another warp",
    "wait data": "waits until the next slab of weights and inputs has arrived in shared memory",
    "wait slot": "waits until a place in shared memory is free for the next slab",
    "wait tensor": "waits for the tensor cores to finish",
    "wait load": "waits for what it loads from L2 or DRAM",
    "wait shared": "waits for shared memory",
    "barrier": "waits for other warps of its block",
    "fix-up": "waits for the partial sums of other blocks that work on the same tile",
    "fetch": "fetches its first instructions",
    "wait store": "waits until results are written",
    "ideal work": "the multiplication alone, spread evenly over all SMs",
    "imbalance": "the busiest SM has more work than the mean",
    "tail": "SMs without work while the last items finish",
    "fill and drain": "before the first and after the last multiplication: first data in, last results out",
    "memory": "waits for data in between",
    "split fix-up": "adding up the parts of tiles that were split",
    "other": "the rest, for example instructions that nothing hides",
    "launch": "starting the kernel, which no kernel can avoid",
    "simulator": "predicted by simulating warps, SMs, L2 and DRAM",
    "model": "predicted by formulas: quicker and coarser than the simulator",
    "burst": "short runs with rests, so that the clock stays high",
    "sustained": "back to back, at the GPU's power limit",
    "graph": "kernels are recorded once and launched together (a CUDA graph)",
    "stream": "kernels are launched one by one",
}
"""Term -> explanation, for units of the GPU, stall reasons of warps, parts of the time, and settings."""


def meanings() -> dict[str, str]:
    """Return term -> explanation: `MEANINGS`, and the one-line description of each kernel by its name."""
    return {**MEANINGS, **{name: kernel.meaning for name, kernel in KERNELS.items()}}


VERDICTS = {
    "pays": "faster when pruned, and the intervals of dense and pruned do not overlap",
    "may pay": "predicted to be faster, but the intervals overlap",
    "no gain seen": "predicted to be less than 2 % faster, or slower, and the intervals overlap",
    "stay dense": "slower when pruned, and the intervals do not overlap",
    "dense in this pass": "faster when pruned, but transposes and separate operators cost the pass more",
}

_TABLE = {
    "layer, M x K": "a weight matrix with M outputs and K inputs",
    "tokens": "inputs that the layer handles at once, or pixels of a convolution",
    "us": "microsecond, a millionth of a second",
    "low - high": "interval of the prediction; what it rests on stands above the table",
    "speedup": "time of dense over time of the kernel: above 1 it is faster",
    "kernel": "the program that the GPU runs for this layer",
    "pattern": "the rule by which weights are removed; tile-wise:128 means tiles of 128 rows",
    "removed %": "share of weights that are pruned away; density is what is kept",
    "bound": "the unit of the GPU that limits the layer",
}
_GPU = {
    "SM": "streaming multiprocessor: a GPU has many, which work side by side",
    "block, warp": "a block of threads runs on one SM; a warp is 32 of its threads",
    "FLOP": "one multiplication or addition; TFLOP/s are a million million a second",
    "wgmma, mma": "instructions of the tensor cores; sparse ones skip the zeros of 2:4",
}


def words_of(table: PredictionTable) -> dict[str, str]:
    """Return technical term -> explanation for the page of `table`, in the order in which they appear."""
    first = table[0]
    settings = (first.engine, first.state, table.provenance.conditions.launch)
    kernels = dict.fromkeys(row.kernel for row in table)
    bounds = sorted({row.bound for row in table})
    meaning_of = meanings()
    known = {word: meaning_of[word] for word in (*kernels, *bounds, *settings) if word in meaning_of}
    return {**_TABLE, **VERDICTS, **known, **_GPU}


LIBRARIES = ("numpy", "numba", "matplotlib", "jinja2")
LEAST_GAIN = 1.02
"""Least speedup that counts as a gain."""


def _breakable(text: str) -> Markup:
    """Return a name with line-break opportunities after dots and slashes and after 24 other characters."""
    parts = re.findall(r"[^./]{1,24}[./]?|[./]", printable(text))
    return Markup("<wbr>").join(escape(part) for part in parts)


FILTERS: dict[str, Callable[..., str]] = {
    "number": significant,
    "us": microseconds,
    "ms": milliseconds,
    "gb": gigabytes,
    "percent": percent,
    "printable": printable,
    "breakable": _breakable,
}
"""Filters of the Jinja template, by name."""


@checked
def write_report(
    weights: Source, path: str | Path, *, gpu: str | GpuSpec, **options: Unpack[LayerSettings]
) -> PredictionTable:
    """Predict a model, write the HTML page to `path`, and return the table of predictions.

    `options` are the keywords of `predict`.

    Raises
    ------
    BadInput : `predict` refuses the input, or the page cannot be written
    """
    check_outputs([OutputFile(what="path", path=Path(path))], chain(files_of(weights), spec_files(gpu)))
    table = predict(weights, gpu=gpu, **options)
    write_text_aside(Path(path), render_page(table, weights, gpu=gpu))
    return table


def render_page(
    table: PredictionTable,
    weights: Source,
    *,
    gpu: str | GpuSpec,
    measured: Sequence[MeasuredPoint] = (),
    progress: Progress = silent,
) -> str:
    """Return the HTML page of a prediction.

    Equal input gives equal text with the same library versions.

    Parameters
    ----------
    table : result of `predict`
    weights : weights that were passed to `predict`
    gpu : GPU that was passed to `predict`, as name or spec
    measured : measured cases with their predictions; if empty, the page has no such section
    progress : called with the stage and the numbers of finished and of all layers

    Raises
    ------
    BadInput : the weights or the GPU spec can no longer be read
    """
    spec = load_gpu(gpu) if isinstance(gpu, str) else gpu
    first, origin = table[0], table.provenance
    spec = spec if origin.power_limit_w is None else at_power_limit(spec, origin.power_limit_w)
    engine = Engine(name=first.engine, gpu=spec, conditions=origin.conditions)
    chosen = chosen_layers(table)
    layers = predicted_layers(weights, origin, [rows[0].layer for rows in chosen])
    shown = []
    for done, rows in enumerate(chosen):
        progress("looking into layers", done, len(chosen))
        one = study(rows, table, layers[rows[0].layer], engine)
        shown.append({"study": one, "pictures": _pictures(one, spec, salt=f"layer-{done}")})
    with drawing():
        scatter = pictures.draw_measured(measured, salt="measured") if measured else None
    return _fill(
        table=table,
        headline=headline_of(table),
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


def headline_of(table: PredictionTable) -> str:
    """Return the title of the page: model, workload, GPU, dense and pruned times, and speedup."""
    origin, whole = table.provenance, table.whole
    name = origin.source or "layers"
    if whole is None:
        times = f"{microseconds(table.dense_seconds)} to {microseconds(table.best_seconds)} us"
        return f"{name}, {table.run_words}, {origin.gpu}: layers {times}, {table.speedup:.2f}x"
    what = " and ".join(phase.words for phase in whole.phases)
    times = f"{milliseconds(whole.dense.seconds)} to {milliseconds(whole.best.seconds)} ms"
    return f"{name}, {what}, {origin.gpu}: {times}, {whole.speedup:.2f}x"


def _pictures(one: LayerStudy, gpu: GpuSpec, *, salt: str) -> dict[str, str]:
    """Return section name -> SVG text; the text is empty if the engine or the pattern has no data for it."""
    with drawing():
        drawn = dict.fromkeys(("tiles", "work", "crossover", "pareto"), "")
        roofline = new_axes()
        points = [RooflinePoint(row.kernel, row.seconds, row.plan, row.result) for row in one.rows]
        draw_roofline(points, gpu, roofline, PAGE)
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
    """Return the settings and versions that are needed to reproduce the page."""
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
    """One layer in the summary of the page."""

    dense: Prediction
    best: Prediction
    rows: tuple[Prediction, ...]
    verdict: str
    sure: str
    """`win` or `loss` if the intervals of dense and pruned do not overlap, else `open`."""


def summary_of(table: PredictionTable) -> list[_SummaryLine]:
    """Return a summary line for each layer, in the order of the weights."""
    return [_line(rows, best) for rows, best in zip(table.layers(), table.best(), strict=True)]


def _line(rows: tuple[Prediction, ...], best: Prediction | None = None) -> _SummaryLine:
    """Return the summary of a layer; `best` is its row in the fastest pass, by default its fastest row."""
    dense, best = rows[0], fastest(rows) if best is None else best
    sparse = fastest(rows[1:]) if len(rows) > 1 else None
    if sparse is None:
        verdict, sure = "nothing to compare with", "open"
    elif best is dense and sparse.speedup_over_dense >= LEAST_GAIN:
        verdict, sure = "dense in this pass", "loss"
    elif best.speedup_over_dense >= LEAST_GAIN:
        verdict, sure = ("pays", "win") if best.seconds_high < dense.seconds_low else ("may pay", "open")
    elif dense.seconds_high < sparse.seconds_low:
        verdict, sure = "stay dense", "loss"
    else:
        verdict, sure = "no gain seen", "open"
    return _SummaryLine(dense, best, rows, verdict, sure)
