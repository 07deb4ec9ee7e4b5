"""Readers of fp8 products: the rows of `gemm_fp8_GPU.csv` and `gemm_fp8_alone_GPU.csv`.

The first has the calls of an engine, with the passes that quantise x; the second only the product. Predicted
bounds and errors of `gemm_fp8_GPU.csv` are of the whole call, and again with the measured rounding pass
taken off (`... rounded`), where it was measured: what remains has the product and the pass that finds the
maximum of x.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from benchmarks.published.priced import Array, Priced
from prunecast.hardware import GpuSpec
from prunecast.kernels.libraries.call import LibraryCall
from prunecast.kernels.libraries.scaled.call import quantise_passes, scaled_costs, scaled_product
from prunecast.validation.case import use_by_rule

Row = Mapping[str, str]
STATE = "sustained"
"""Launches follow each other without rests."""
SCALES = {"fp8": "tensor", "fp8_block": "block"}
HOST_BOUND_S = 100e-6
"""Predicted time of calls with block scales below which the host binds: the table launched them one by one,
not in a graph."""
HOST_S = {"DeepGemm": 91e-6, "FlashInfer": 60e-6}
"""Beginning of a kernel -> time between its launches by the host. Kind: fitted, median of the fit rows of the
H100 that are predicted below 50 us."""

HOST_BOUNDS = (0.88, 1.22)
"""Bounds over `HOST_S`. Kind: fitted, as `HOST_S`, 5 and 95 %."""


class Sizes(NamedTuple):
    """A product: A (m, k) of weights times n tokens."""

    m: int
    k: int
    n: int


def priced(rows: list[Row], gpu: GpuSpec) -> Priced:
    """Return the calls of an engine with their predictions, and the calls without the rounding pass."""
    kinds, measured, calls, taken, host, fit = [], [], [], [], [], []
    for row in rows:
        call, seconds, scales = call_of(row, gpu), float(row["seconds"]), SCALES[row["gemm_dtype"]]
        is_bound = scales == "block" and call.seconds < HOST_BOUND_S
        kinds.append(f"{scales} host" if is_bound else scales)
        calls.append(call)
        measured.append(seconds)
        taken.append(0.0)
        host.append(_host_seconds(row["kernel_source"]) if is_bound else 0.0)
        fit.append(is_fit(row))
        if scales == "tensor" and row["quantise_seconds"]:
            kinds.append("product")
            calls.append(call)
            measured.append(seconds - float(row["quantise_seconds"]))
            taken.append(rounding_seconds(row, gpu))
            host.append(0.0)
            fit.append(is_fit(row))

    def of(name: str, share: float = 1.0) -> Array:
        own = np.array([getattr(call, name) for call in calls]) - np.array(taken)
        return np.maximum(own, share * np.array(host))

    return Priced(
        kind=np.array(kinds),
        measured=np.array(measured),
        seconds=of("seconds"),
        low=of("seconds_low", HOST_BOUNDS[0]),
        high=of("seconds_high", HOST_BOUNDS[1]),
        fit=np.array(fit),
    )


def _host_seconds(kernel: str) -> float:
    return next((seconds for beginning, seconds in HOST_S.items() if kernel.startswith(beginning)), 0.0)


def rounding_seconds(row: Row, gpu: GpuSpec, numbers: Mapping[str, float] | None = None) -> float:
    """Return the prediction of the pass that rounds x."""
    size = sizes_of(row)
    passes = quantise_passes(size.k, size.n, "static", numbers or scaled_costs(gpu.compute_capability))
    return sum(each.seconds(gpu) for each in passes)


def call_of(row: Row, gpu: GpuSpec, numbers: Mapping[str, float] | None = None) -> LibraryCall:
    """Return the prediction of a row, with given numbers or those of the package."""
    return scaled_product(*sizes_of(row), gpu, scales=SCALES[row["gemm_dtype"]], state=STATE, costs=numbers)


def sizes_of(row: Row) -> Sizes:
    """Return the sizes of a row: its `m` are tokens."""
    return Sizes(int(row["n"]), int(row["k"]), int(row["m"]))


def is_fit(row: Row) -> bool:
    """Return whether constants may be fitted to a row."""
    return use_by_rule(*sizes_of(row), row["gemm_dtype"]) == "fit"


def alone_priced(rows: list[Row], gpu: GpuSpec) -> Priced:
    """Return products without quantising with their predictions."""
    calls = [alone_call_of(row, gpu) for row in rows]
    return Priced(
        kind=np.array(["alone"] * len(rows)),
        measured=np.array([alone_measured_of(row) for row in rows]),
        seconds=np.array([call.seconds for call in calls]),
        low=np.array([call.seconds_low for call in calls]),
        high=np.array([call.seconds_high for call in calls]),
        fit=np.array([alone_is_fit(row) for row in rows]),
    )


def alone_call_of(row: Row, gpu: GpuSpec, numbers: Mapping[str, float] | None = None) -> LibraryCall:
    """Return the prediction of a row of `gemm_fp8_alone_GPU.csv`."""
    size = alone_sizes_of(row)
    return scaled_product(*size, gpu, scales="fused", form="cutlass-128", state=STATE, costs=numbers)


def alone_sizes_of(row: Row) -> Sizes:
    """Return the sizes of a row: its `M` are tokens."""
    return Sizes(int(row["N"]), int(row["K"]), int(row["M"]))


def alone_measured_of(row: Row) -> float:
    """Return the measured seconds of a row."""
    return 1e-6 * float(row["avg_duration"])


def alone_is_fit(row: Row) -> bool:
    """Return whether constants may be fitted to a row."""
    return use_by_rule(*alone_sizes_of(row), "fp8 alone") == "fit"
