"""The 90 % interval of a prediction, derived for each kernel from validation errors if there are any.

`validated.toml` is made from recorded runs (`prunecast validate --replay bundled --intervals FILE`). It
contains quantiles of measured over predicted time, computed from the cases that were used for fitting, and
the share of the other cases inside these quantiles. `published.csv` contains the same for GPUs for which
others published times (made by `python -m benchmarks.published FOLDER --intervals FILE`). A combination of
GPU, kernel, clock state and engine that was never validated gets a guessed interval, which is marked as a
guess. It is wider if constants of the GPU are guesses too.
"""

import csv
import tomllib
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from prunecast.hardware import GpuSpec

INTERVAL_KIND = "90 % of validated cases where there are any, else a guess"
"""Meaning of the bounds of a prediction, as text; `Interval.kind` is the basis of a single interval."""


NEVER_MEASURED = "a guess, nothing was ever measured on this GPU"


def evidence_of(gpu: str) -> str:
    """Return the basis of a GPU's intervals: `measured` by this project, `published` by others, `guess`."""
    if any(key[0] == gpu for key in _validated()):
        return "measured"
    return "published" if any(key[0] == gpu for key in _published()) else "guess"


def interval_words(gpu: str) -> str:
    """Return the meaning of the bounds of predictions for a GPU as text; `gpu` is the name of its spec.

    The text contains the state, burst or sustained, of times that others published.
    """
    if any(key[0] == gpu for key in _validated()):
        return INTERVAL_KIND
    states = {kernel: " or ".join(rows) for (name, kernel), rows in _published().items() if name == gpu}
    if not states:
        return NEVER_MEASURED
    known = " and ".join(f"{kernel} ({state})" for kernel, state in states.items())
    return f"of {known} from times that others published, else a guess"


class Interval(NamedTuple):
    """Bounds of a predicted time in seconds, and their basis."""

    low_s: float
    high_s: float
    kind: str
    """`validated`, `published`, or `guess`."""
    warning: str
    """Text that names the quantity outside the validated range; empty if there is none, and for guesses."""


_OWN_KERNEL = (0.75, 1.25)
"""Lower and upper bound of measured over predicted time for kernels that were never validated. Kind: guess,
the spread of errors of published GPU kernel models that know the launch configuration."""
_PRIOR = {"dense": (0.85, 1.15), "csr": (0.5, 2.0)}
"""Kernel of a library -> lower and upper bound of measured over predicted time, if it was never validated.
Kind: guess. cuBLAS (`dense`) selects its own tile shape, which changes the time of large products little. The
source of the CSR kernel is closed, and its time depends on the row lengths."""
GUESSED_COSTS_LOWER, GUESSED_COSTS_HIGHER = 0.13, 0.32
"""Factors, minus 1, by which predicted times fall or rise if all costs of a kernel are multiplied by two
thirds or by one and a half. 90 % of the recorded cases change by less (tile kernels, closed form, H200,
2026-11-22: `python -m benchmarks.costs`)."""
GUESSED_GPU = 0.2
"""Factor, minus 1, by which predicted times may be wrong if clocks, bandwidths and launch time of a GPU are
guesses. Kind: choice; products on B200, L40S and T4 were 14 to 27 % off before anything was fitted to these
GPUs."""
_MATTER = ("clock_burst_hz", "clock_sustained_hz", "dram_bytes_per_s", "l2_bytes_per_s", "graph_launch_s")
"""Fields of `GpuSpec` with the largest effect on predictions."""
_SLACK = 1.25
"""Factor by which a case may be outside the validated range of times and tokens without a warning."""


def interval_s(
    kernel: str,
    seconds: float,
    *,
    gpu: str = "",
    engine: str = "simulator",
    state: str = "burst",
    tokens: int | None = None,
    guessed_costs: float = 0.0,
    guessed_gpu: float = 0.0,
) -> Interval:
    """Return the interval around a predicted time.

    Parameters
    ----------
    kernel : name of the kernel
    seconds : predicted time
    gpu : name of the GPU spec; if it is empty, the interval is a guess
    engine, state : `simulator` or `model`; `burst` or `sustained`
    tokens : N; the interval has a warning if it is outside the validated range
    guessed_costs : share (0 to 1) of the kernel's costs that were carried over from another architecture. A
        guessed interval is widened by this share of `GUESSED_COSTS_LOWER` and `GUESSED_COSTS_HIGHER`
    guessed_gpu : result of `guessed_share`. A guessed interval is widened by this share of `GUESSED_GPU`
    """
    row = _validated().get((gpu, kernel, state, engine))
    if row is None and (gpu, kernel) in _published():
        # Others published each kernel in one state; its interval is also the best guess for the other state
        of_states = _published()[gpu, kernel]
        low, high = of_states.get(state) or next(iter(of_states.values()))
        return Interval(seconds * low, seconds * high, "published", "")
    if row is None:
        low, high = _PRIOR.get(kernel, _OWN_KERNEL)
        lower = (1.0 + GUESSED_COSTS_LOWER * guessed_costs) * (1.0 + GUESSED_GPU * guessed_gpu)
        higher = (1.0 + GUESSED_COSTS_HIGHER * guessed_costs) * (1.0 + GUESSED_GPU * guessed_gpu)
        return Interval(seconds * low / lower, seconds * high * higher, "guess", "")
    warning = _outside(row, "seconds", seconds)
    if not warning and tokens is not None:
        warning = _outside(row, "tokens", tokens)
    return Interval(seconds * row["low"], seconds * row["high"], "validated", warning)


def guessed_share(gpu: GpuSpec) -> float:
    """Return the share of guesses among a GPU's main quantities: clocks, bandwidths and launch time."""
    return sum(gpu.provenance[name].kind == "guess" for name in _MATTER) / len(_MATTER)


def _outside(row: dict[str, Any], name: str, value: float) -> str:
    low, high = row[name]
    if low / _SLACK <= value <= high * _SLACK:
        return ""
    if name == "seconds":
        times = (f"{1e6 * each:.3g}" for each in (value, low, high))
        return "{} us is outside the validated range, {} to {} us".format(*times)
    tokens = "1 token" if value == 1 else f"{value:.0f} tokens"
    return f"{tokens} is outside the validated range, {low:.0f} to {high:.0f} tokens"


@cache
def _validated() -> dict[tuple[str, str, str, str], dict[str, Any]]:
    text = (resources.files("prunecast.codesign") / "validated.toml").read_text(encoding="utf-8")
    rows = tomllib.loads(text).get("validated", [])
    return {(row["gpu"], row["kernel"], row["state"], row["engine"]): row for row in rows}


@cache
def _published() -> dict[tuple[str, str], dict[str, tuple[float, float]]]:
    """Return (GPU, kernel) -> state -> lower and upper bound of measured over predicted time."""
    text = (resources.files("prunecast.codesign") / "published.csv").read_text(encoding="utf-8")
    found: dict[tuple[str, str], dict[str, tuple[float, float]]] = {}
    for row in csv.DictReader(text.splitlines()):
        bounds = float(row["low"]), float(row["high"])
        found.setdefault((row["gpu"], row["kernel"]), {})[row["state"]] = bounds
    return found
