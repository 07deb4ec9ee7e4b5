"""Fit the numbers of fused experts and of fp8 products to the fit rows of published tables.

python -m benchmarks.published.fit_calls FOLDER experts sm_90 moe_bf16_h100.csv [--others FILES] [--write]

FOLDER holds the tables (`python -m benchmarks.published --help`); `sm_90` names the file of costs whose
numbers of kind `fitted` are fitted; other kinds keep their values. Errors of fit and judge rows are printed,
with a row of `call_errors.csv` for each GPU. `--others` names tables of GPUs that are not fitted: the row of
GPU `other` is from all of their rows. With `--write` the numbers, rounded to three digits, replace those in
the file.
"""

import argparse
import csv
import datetime
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

import prunecast.kernels.libraries
from benchmarks.published import experts, scaled
from benchmarks.published.products import bounds
from benchmarks.published.tables import gpu_of_file
from prunecast.hardware import GpuSpec, load_gpu
from prunecast.hardware.costs import read_costs
from prunecast.kernels.libraries.collectives.call import collective
from prunecast.validation.case import use_by_rule

Row = Mapping[str, str]
Numbers = Mapping[str, float]
Array = npt.NDArray[np.float64]


class Reader(NamedTuple):
    """Rows of a kind of file."""

    folder: str
    """Folder of `kernels/libraries` whose costs are fitted."""
    beginnings: tuple[str, ...]
    """Beginnings of the names of the numbers to fit."""
    case: Callable[[Row], str]
    """Case in `call_errors.csv`."""
    seconds: Callable[[Row, GpuSpec, Numbers], float]
    measured: Callable[[Row], float]
    is_fit: Callable[[Row], bool]


FORMS_OF = {"nccl": ("NCCL, low latency", "NCCL"), "one-shot": ("one-shot",), "two-shot": ("two-shot",)}
"""Kind of a measured sum over GPUs -> forms that may run it."""


def _collective_seconds(row: Row, gpu: GpuSpec, numbers: Numbers) -> float:
    """Return the predicted seconds of a row of `benchmarks.pytorch.all_reduce`."""
    forms = FORMS_OF[row["kind"]]
    call = collective("all reduce", float(row["bytes"]), int(row["gpus"]), gpu, forms=forms, costs=numbers)
    return call.seconds


READERS: Mapping[str, Reader] = {
    "experts": Reader(
        "experts",
        ("triton",),
        lambda row: "triton",
        lambda row, gpu, numbers: experts.call_of(row, gpu, numbers).seconds,
        lambda row: float(row["seconds"]),
        experts.is_fit,
    ),
    "rounding": Reader(
        "scaled",
        ("rounding",),
        lambda row: "rounding",
        scaled.rounding_seconds,
        lambda row: float(row["quantise_seconds"]),
        scaled.is_fit,
    ),
    "scaled": Reader(
        "scaled",
        ("cutlass", "deepgemm", "maximum"),
        lambda row: f"{scaled.SCALES[row['gemm_dtype']]} scales",
        lambda row, gpu, numbers: scaled.call_of(row, gpu, numbers).seconds,
        lambda row: float(row["seconds"]),
        scaled.is_fit,
    ),
    "fixed": Reader(
        "scaled",
        ("fixed",),
        lambda row: "cutlass-128",
        lambda row, gpu, numbers: scaled.alone_call_of(row, gpu, numbers).seconds,
        scaled.alone_measured_of,
        scaled.alone_is_fit,
    ),
    "collectives": Reader(
        "collectives",
        ("one_shot", "two_shot", "nccl"),
        lambda row: f'"all reduce, {row["gpus"]} GPUs"',
        _collective_seconds,
        lambda row: float(row["seconds"]),
        lambda row: use_by_rule(int(row["bytes"]), int(row["gpus"]), 1, "all reduce") == "fit",
    ),
}
"""What is fitted -> reader."""
SOFT = 0.1
"""Relative error above which a row counts less. Kind: choice."""
MOST_CHANGE = 4.0
"""Factor by which a fit may change a number. Kind: choice."""


def main() -> None:
    """Fit the numbers of one file of costs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("what", choices=tuple(READERS))
    parser.add_argument("architecture", help="such as sm_90")
    parser.add_argument("files", nargs="+")
    parser.add_argument("--others", nargs="*", default=[], help="files of GPUs that are not fitted")
    parser.add_argument("--only", default="", help="use only rows that have this entry, e.g. fp8_block")
    parser.add_argument("--above", type=float, default=0.0, help="use only rows above this time in seconds")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    reader = READERS[asked.what]
    folder = Path(prunecast.kernels.libraries.__path__[0]) / reader.folder / "costs"
    costs = read_costs(folder, reader.folder, int(asked.architecture.removeprefix("sm_")))
    numbers = {name: float(cost.value) for name, cost in costs.entries.items()}
    free = [
        n for n, cost in costs.entries.items() if cost.kind == "fitted" and n.startswith(reader.beginnings)
    ]

    def table_of(file: str) -> "Table":
        with (asked.folder / file).open(encoding="utf-8") as opened:
            rows = [row for row in csv.DictReader(opened) if asked.only in row.values() or not asked.only]
        rows = [row for row in rows if reader.measured(row) > asked.above]
        return Table(file, load_gpu(gpu_of_file(file)), rows)

    tables = [table_of(file) for file in asked.files]
    fitted = fit(reader, tables, numbers, free)
    for table in tables:
        print_errors(reader, table, {**numbers, **fitted})
    others = [table_of(file) for file in asked.others]
    if others:
        print_others(reader, others, {**numbers, **fitted})
    if asked.write:
        write(folder / f"{asked.architecture}.toml", fitted, ", ".join(asked.files))


class Table(NamedTuple):
    """Rows of a file."""

    file: str
    gpu: GpuSpec
    rows: list[Row]

    def ratios(self, reader: Reader, numbers: Numbers, chosen: list[Row]) -> Array:
        """Return measured over predicted times."""
        return np.array([reader.measured(row) / reader.seconds(row, self.gpu, numbers) for row in chosen])


def fit(reader: Reader, tables: list[Table], numbers: Numbers, free: list[str]) -> dict[str, float]:
    """Return the free numbers of least robust logarithmic error over the fit rows."""
    of_table = [(table, [row for row in table.rows if reader.is_fit(row)]) for table in tables]

    def errors(changed: Numbers) -> Array:
        return np.log(np.concatenate([table.ratios(reader, changed, rows) for table, rows in of_table]))

    # A number that changes no prediction of the table keeps its value
    base = errors(numbers)
    free = [n for n in free if np.abs(errors({**numbers, n: 1.1 * numbers[n]}) - base).max() > 1e-9]
    limit = float(np.log(MOST_CHANGE))

    def at(logs: Array) -> dict[str, float]:
        return {name: numbers[name] * float(np.exp(log)) for name, log in zip(free, logs, strict=True)}

    found = least_squares(
        lambda logs: errors({**numbers, **at(logs)}),
        np.zeros(len(free)),
        bounds=(-limit, limit),
        loss="soft_l1",
        f_scale=SOFT,
    )
    for name, value in at(found.x).items():
        print(f"{name:32} {numbers[name]:.4g} -> {value:.4g}")
    return at(found.x)


def print_errors(reader: Reader, table: Table, numbers: Numbers) -> None:
    """Print the errors of fit and judge rows of a fitted GPU, and its row of `call_errors.csv`."""
    parts = {
        use: table.ratios(
            reader, numbers, [row for row in table.rows if reader.is_fit(row) == (use == "fit")]
        )
        for use in ("fit", "judge")
    }
    for use, ratios in parts.items():
        print(f"{table.file} {use}: {ratios.size} rows, MAPE {100 * np.abs(1 / ratios - 1).mean():.1f} %")
    low, high = bounds(parts["fit"])
    covered = float(((parts["judge"] >= low) & (parts["judge"] <= high)).mean())
    print_row(reader, table, table.gpu.name, (low, high), parts["fit"].size, parts["judge"].size, covered)


def print_others(reader: Reader, tables: list[Table], numbers: Numbers) -> None:
    """Print the errors of GPUs that were not fitted, and the row of GPU `other`."""
    every = [table.ratios(reader, numbers, table.rows) for table in tables]
    for table, ratios in zip(tables, every, strict=True):
        print(f"{table.file} not fitted: MAPE {100 * np.abs(1 / ratios - 1).mean():.1f} %")
    ratios = np.concatenate(every)
    print_row(reader, tables[0], "other", bounds(ratios), 0, ratios.size, 0.9)


def print_row(
    reader: Reader,
    table: Table,
    gpu: str,
    band: tuple[float, float],
    fit_rows: int,
    judge_rows: int,
    covered: float,
) -> None:
    """Print a row of `call_errors.csv`."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    where = f"{reader.folder},{reader.case(table.rows[0])},{gpu}"
    counts = f"{fit_rows},{judge_rows},{covered:.3f}"
    print(f"{where},{band[0]:.3f},{band[1]:.3f},{counts},{today},{table.file}")


def write(path: Path, fitted: Numbers, source: str) -> None:
    """Replace the values, sources and dates of numbers in a file of costs."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    text = path.read_text(encoding="utf-8")
    for name, value in fitted.items():
        found = re.search(rf"\[{name}\]\n(?:.+\n)+", text)
        assert found is not None, name
        entry = re.sub(r"value = .*", f"value = {value:.3g}", found[0])
        entry = re.sub(
            r"source = .*", f'source = "benchmarks.published.fit_calls, fit rows of {source}"', entry
        )
        text = text.replace(found[0], re.sub(r"date = .*", f'date = "{today}"', entry))
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
