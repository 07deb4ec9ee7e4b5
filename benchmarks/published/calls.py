"""Tables of library calls: rows with predicted times and bounds, and their errors by kind.

A reader turns the rows of a file into a `Priced`. To read further files, add a reader to `READERS`.
"""

import csv
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.published import attention, experts, layers, power, scaled
from benchmarks.published.priced import Priced
from benchmarks.published.tables import gpu_of_file
from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec, load_gpu
from prunecast.validation.judged import log_error

Row = Mapping[str, str]
READERS: Mapping[str, Callable[[list[Row], GpuSpec], Priced]] = {
    "attention_": attention.priced,
    "moe_": experts.priced,
    "gemm_fp8_alone_": scaled.alone_priced,
    "gemm_fp8_": scaled.priced,
    "power_": power.priced,
    "layers_": layers.priced,
}
"""Beginning of a file name -> reader of its rows; the first that fits counts."""
SHORT_S = 20e-6
"""Calls below this measured time are dominated by launches; their errors are printed apart."""
Mask = npt.NDArray[np.bool_]


class CallErrors(NamedTuple):
    """Errors of some rows in percent."""

    rows: int
    mape: float
    median: float
    p90: float
    bias: float
    covered: float
    """Share of the rows whose measured time is inside the bounds."""


def print_calls(path: Path, every: int = 1) -> None:
    """Print the errors of one file, by kind, length and use. A file of an unknown GPU, or with rows that no
    kernel supports, gets one line.
    """
    try:
        gpu = load_gpu(
            layers.file_of(path.name).gpu if path.name.startswith("layers_") else gpu_of_file(path.name)
        )
        with path.open(encoding="utf-8") as file:
            rows = [{**row, "file": path.name} for row in csv.DictReader(file)][::every]
        found = priced_by(path.name)(rows, gpu)
    except BadInput as error:
        print(f"{path.name}: {error}")
        return
    print(f"{path.name}, {gpu.name}")
    length_s = found.measured if found.measured_seconds is None else found.measured_seconds
    for kind in dict.fromkeys(found.kind.tolist()):
        for length, is_long in (("above", True), ("below", False)):
            for use, is_fit in (("judge", False), ("fit", True)):
                chosen = (found.kind == kind) & ((length_s > SHORT_S) == is_long) & (found.fit == is_fit)
                if chosen.any():
                    rows = f"{kind:<12} {length} {1e6 * SHORT_S:.0f} us {use:<5}"
                    print(f"  {rows} {text_of(errors(found, chosen))}")


def priced_by(name: str) -> Callable[[list[Row], GpuSpec], Priced]:
    """Return the reader of a file by its name."""
    return next(reader for beginning, reader in READERS.items() if name.startswith(beginning))


def errors(found: Priced, chosen: Mask) -> CallErrors:
    """Return the errors of the chosen rows."""
    measured, seconds = found.measured[chosen], found.seconds[chosen]
    error = log_error(seconds, measured)
    size = 100.0 * np.abs(np.expm1(error))
    inside = (found.low[chosen] <= measured) & (measured <= found.high[chosen])
    return CallErrors(
        rows=int(chosen.sum()),
        mape=float(size.mean()),
        median=float(np.median(size)),
        p90=float(100.0 * np.expm1(np.percentile(np.abs(error), 90))),
        bias=float(100.0 * np.expm1(error.mean())),
        covered=float(100.0 * inside.mean()),
    )


def text_of(e: CallErrors) -> str:
    """Return the errors as one line."""
    return (
        f"rows {e.rows:5d}  MAPE {e.mape:5.1f} %  median {e.median:5.1f}  p90 {e.p90:5.1f}  "
        f"bias {e.bias:+6.1f}  inside bounds {e.covered:5.1f} %"
    )
