"""`prunecast gpus`: list the known GPUs, or all quantities of one GPU with their sources."""

import csv
import textwrap
import tomllib
from functools import partial
from importlib import resources
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prunecast.cli import options as opt
from prunecast.cli.guard import Reads, gpu_files
from prunecast.cli.output import Report, Row, deliver
from prunecast.errors import BadInput
from prunecast.version import headed

if TYPE_CHECKING:
    from prunecast.cli.tables import Page
    from prunecast.hardware import GpuSpec


def gpus(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]", show_default=False, help="GPU name, part of one, or path of a spec file."
        ),
        Reads(gpu_files),
    ] = None,
    *,
    kernels: Annotated[
        bool, opt.flag("With NAME: costs of the kernels on its architecture instead.", "--kernels")
    ] = False,
    printed: opt.Printed,
) -> None:
    """GPUs that are known, or those whose names have NAME in them. With a full name or a spec file: all
    quantities of this GPU, with unit, kind and source.
    """
    if kernels and name is None:
        raise BadInput("--kernels needs the NAME of a GPU")
    from prunecast.hardware import gpu_names, load_gpu

    listed = [known for known in gpu_names() if name is None or name.lower() in known]
    if name is None or (listed and name not in listed and not kernels):
        specs = sorted(map(load_gpu, listed), key=lambda spec: (spec.compute_capability, spec.name))
        rows = [_summary(spec) for spec in specs]
        deliver(printed, Report(headed({"gpus": rows}), rows, lambda page: _show_list(rows, page)))
    elif kernels:
        spec = load_gpu(name)
        rows = _costs(spec)
        head = {"gpu": spec.name, "architecture": f"sm_{spec.compute_capability}"}
        document = headed({**head, "costs": rows})
        deliver(printed, Report(document, rows, lambda page: _show_costs(spec, rows, page)))
    else:
        spec = load_gpu(name)
        rows = _quantities(spec)
        head = {"gpu": spec.name, "title": spec.title, "spec_hash": spec.fingerprint}
        document = headed({**head, "quantities": rows})
        flat = [{**row, "value": _text(row["value"])} for row in rows]
        deliver(printed, Report(document, flat, partial(_show_one, spec, rows)))


def _summary(spec: "GpuSpec") -> Row:
    fma_per_clk = spec.sm_count * spec.tensor_fp16_fma_per_clk_per_sm
    return {
        "name": spec.name,
        "title": spec.title,
        "compute_capability": spec.compute_capability / 10,
        "sm_count": spec.sm_count,
        "max_clock_hz": spec.max_clock_hz,
        "dram_peak_bytes_per_s": spec.dram_peak_bytes_per_s,
        "l2_bytes": spec.l2_bytes,
        "tensor_fp16_peak_flop_per_s": 2.0 * fma_per_clk * spec.max_clock_hz,
        "checked_against": _checked_against(spec.name),
        "spec_hash": spec.fingerprint,
    }


def _checked_against(gpu: str) -> str:
    """Return a text about the measured times that predictions for a GPU were compared with.

    `N own` is the number of rows in this project's records. `published` is followed by the kernels with
    published times of others. The tables of `prunecast.codesign` are read as files, because its import would
    import Numba.
    """
    folder = resources.files("prunecast").joinpath("codesign")
    validated = tomllib.loads(folder.joinpath("validated.toml").read_text(encoding="utf-8"))["validated"]
    own = {(r["kernel"], r["state"]): r["fit_cases"] + r["judge_cases"] for r in validated if r["gpu"] == gpu}
    if own:
        return f"{sum(own.values())} own"
    rows = csv.DictReader(folder.joinpath("published.csv").read_text(encoding="utf-8").splitlines())
    published = sorted(row["kernel"] for row in rows if row["gpu"] == gpu)
    return f"published {', '.join(published)}" if published else "none"


def _quantities(spec: "GpuSpec") -> list[Row]:
    return [
        {"quantity": name, "value": getattr(spec, name)}
        | {key: getattr(provenance, key) for key in ("unit", "kind", "source")}
        for name, provenance in spec.provenance.items()
    ]


def _costs(spec: "GpuSpec") -> list[Row]:
    from prunecast.hardware import load_costs
    from prunecast.kernels import KERNELS

    own = dict.fromkeys(kernel.costs for kernel in KERNELS.values() if kernel.costs)
    packages = (*own, "prunecast.launch")
    return [
        {"kernel": costs.kernel, "cost": name}
        | {key: getattr(cost, key) for key in ("value", "unit", "kind", "date", "meaning", "source", "worth")}
        for costs in (load_costs(package, spec.compute_capability) for package in packages)
        for name, cost in costs.entries.items()
    ]


def _text(value: Any) -> str:
    return " ".join(f"{point:g}" for point in value) if isinstance(value, tuple) else f"{value:.10g}"


def _show_list(rows: list[Row], page: "Page") -> None:
    page.table(
        [
            {
                "name": row["name"],
                "cc": f"{row['compute_capability']:.1f}",
                "SMs": str(row["sm_count"]),
                "clock MHz": f"{row['max_clock_hz'] / 1e6:.0f}",
                "DRAM GB/s": f"{row['dram_peak_bytes_per_s'] / 1e9:.0f}",
                "L2 MiB": f"{row['l2_bytes'] / 2**20:.0f}",
                "fp16 tensor TFLOP/s": f"{row['tensor_fp16_peak_flop_per_s'] / 1e12:.0f}",
                "times": row["checked_against"],
                "title": row["title"],
            }
            for row in rows
        ],
        words=("name", "times", "title"),
    )
    page.say(
        "",
        "Peaks are at the highest clock. Times are those that predictions were held against: rows of our own"
        " records, or kernels whose times others published. `prunecast gpus NAME` shows every number and its"
        " source.",
    )


def _show_one(spec: "GpuSpec", rows: list[Row], page: "Page") -> None:
    """Print a line with the value of each quantity, and its source below."""
    page.say(f"{spec.title} ({spec.name}), spec {spec.fingerprint}")
    longest = max(len(row["quantity"]) for row in rows)
    for row in rows:
        value = f"{_text(row['value'])} {row['unit']}, {row['kind']}"
        _show_number(f"{row['quantity']:<{longest}}  {value}", row["source"], page)


def _show_costs(spec: "GpuSpec", rows: list[Row], page: "Page") -> None:
    """Print the costs of each kernel: a line with the value of a cost, and its meaning and source below."""
    guesses = sum(row["kind"] == "guess" for row in rows)
    head = f"{spec.title} ({spec.name}), sm_{spec.compute_capability}: costs of kernels, "
    page.say(f"{head}{guesses} of {len(rows)} guessed")
    longest = max((len(row["cost"]) for row in rows), default=0)
    for kernel in dict.fromkeys(row["kernel"] for row in rows):
        page.say("", kernel)
        for row in rows:
            if row["kernel"] == kernel:
                value = f"{_text(row['value'])} {row['unit']}, {row['kind']} {row['date']}"
                worth = f". Worth: {row['worth']}" if row["worth"] else ""
                text = f"{row['meaning']}. {row['source']}{worth}"
                _show_number(f"{row['cost']:<{longest}}  {value}", text, page)


def _show_number(line: str, text: str, page: "Page") -> None:
    from prunecast.cli.tables import WIDTH

    page.say(line)
    folded = textwrap.wrap(text, WIDTH, initial_indent="    ", subsequent_indent="    ")
    page.say(*folded, style="dim")
