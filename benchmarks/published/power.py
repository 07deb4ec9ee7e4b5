"""Reader of board power: the rows of `power_bf16_GPU.csv`; and the fit of the power law to them.

python -m benchmarks.published.power FOLDER power_bf16_h200.csv MODELS.csv [--write]

MODELS.csv are whole models that `benchmarks.pytorch.power` measured; those of Llama are fitted too.

The rows are dense bf16 products that ran for seconds, six layers in turn. Many of their weights were never
written: where they are zeros, the power of equal products differs by up to 40 %, which nothing in the table
tells.
"""

import argparse
import csv
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares

from benchmarks.published.priced import Array, Priced
from benchmarks.published.products import SETS_OF_WEIGHTS
from benchmarks.published.tables import gpu_of_file
from benchmarks.pytorch.power import FITTED, activity_of_row
from prunecast.hardware import GpuSpec, load_gpu
from prunecast.hardware.clock import activity_of
from prunecast.hardware.power import launch_power, power_costs
from prunecast.kernels import plan_dense
from prunecast.launch import CacheState
from prunecast.models import estimate
from prunecast.validation.case import use_by_rule

Row = Mapping[str, str]
BOUNDS = {"watts": (0.65, 1.33), "joules": (0.62, 1.34), "seconds": (0.91, 1.12)}
"""Measured over predicted values of 90 % of the fit rows above half of the limit, H200."""
SOFT, TIME_WEIGHT, MODEL_WEIGHT = 0.05, 0.5, 1.7
"""Relative error above which a row counts less in the fit, and weights of times and of watts of models beside
powers of products. The published rows are many, but half of their weights are unwritten."""


class Load(NamedTuple):
    """A row with its prediction in the state `sustained`."""

    seconds: float
    activity: float


def load_of(row: Row, gpu: GpuSpec) -> Load:
    """Return the predicted time and activity of a row, whose `m` are tokens."""
    m, k, n = int(row["n"]), int(row["k"]), int(row["m"])
    plan = plan_dense(m, k, n, "bf16", gpu)
    weights = 2.0 * SETS_OF_WEIGHTS * m * k
    found = estimate(plan, gpu, state="sustained", launch="graph", l2=CacheState("model", weights))
    cycles = found.seconds * found.clock_hz * gpu.sm_count
    moved = 2.0 * (m * k + n * k + m * n)
    through_l2 = 2.0 * m * n * k * (1.0 / plan.shape.block_m + 1.0 / plan.shape.block_n) + moved
    # What six layers in turn do not keep in L2
    cold = min(max((weights + 2.0 * n * (m + k)) / gpu.l2_usable_bytes - 1.0, 0.0), 1.0)
    return Load(
        found.seconds,
        activity_of(
            gpu,
            m * n * k / gpu.tensor_bf16_fma_per_clk_per_sm / cycles,
            through_l2 / cycles,
            cold * moved / cycles,
            "bf16",
        ),
    )


def priced(rows: list[Row], gpu: GpuSpec) -> Priced:
    """Return watts, joules and seconds of each row, above and below half of the limit."""
    powers = [launch_power(gpu, *load_of(row, gpu)) for row in rows]
    seconds, watts = (np.array([float(row[name]) for row in rows]) for name in ("seconds", "watts"))
    half = np.array([0.5 * float(row["power_limit"]) for row in rows])
    side = np.where(watts > half, "", ", below half")
    measured = {"watts": watts, "joules": watts * seconds, "seconds": seconds}
    predicted = {name: np.array([getattr(power, name) for power in powers]) for name in measured}
    bounds = np.array([BOUNDS[name] for name in measured])
    return Priced(
        kind=np.concatenate([np.char.add(name, side) for name in measured]),
        measured=np.concatenate(list(measured.values())),
        seconds=np.concatenate(list(predicted.values())),
        low=np.concatenate([low * predicted[name] for name, low in zip(measured, bounds[:, 0], strict=True)]),
        high=np.concatenate(
            [high * predicted[name] for name, high in zip(measured, bounds[:, 1], strict=True)]
        ),
        fit=np.tile([is_fit(row) for row in rows], len(measured)),
        measured_seconds=np.tile(seconds, len(measured)),
    )


def is_fit(row: Row) -> bool:
    """Return whether constants may be fitted to a row."""
    return use_by_rule(int(row["n"]), int(row["k"]), int(row["m"]), "power") == "fit"


def main() -> None:
    """Fit the power law to the fit rows, and print bounds of those above half of the limit."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("file")
    parser.add_argument("models", type=Path)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    gpu = load_gpu(gpu_of_file(asked.file))
    with (asked.folder / asked.file).open(encoding="utf-8") as opened:
        rows = [row for row in csv.DictReader(opened) if is_fit(row)]
    with asked.models.open(encoding="utf-8") as opened:
        models = [row for row in csv.DictReader(opened) if row["model"].startswith(FITTED)]
    of_models = [Load(float(row["seconds"]), activity_of_row(row, gpu.name)) for row in models]
    model_watts = np.array([float(row["watts"]) for row in models])
    loads = [load_of(row, gpu) for row in rows]
    watts, seconds = (np.array([float(row[name]) for row in rows]) for name in ("watts", "seconds"))
    begun = {name: float(cost.value) for name, cost in power_costs(gpu.compute_capability).entries.items()}

    def errors(logs: Array) -> Array:
        numbers = dict(zip(begun, np.exp(logs).tolist(), strict=True))
        found = [launch_power(gpu, *load, numbers) for load in loads]
        powers = np.log(np.array([power.watts for power in found]) / watts)
        times = np.log(np.array([power.seconds for power in found]) / seconds)
        own = np.array([launch_power(gpu, *load, numbers).watts for load in of_models]) / model_watts
        return np.concatenate([soft(powers), soft(TIME_WEIGHT * times), MODEL_WEIGHT * np.log(own)])

    def soft(error: Array) -> Array:
        return np.asarray(np.sign(error) * SOFT * np.sqrt(np.log1p((error / SOFT) ** 2)))

    found = least_squares(errors, np.log(list(begun.values())))
    fitted = dict(zip(begun, np.exp(found.x).tolist(), strict=True))
    for name, value in fitted.items():
        print(f"{name:20} {begun[name]:.4g} -> {value:.4g}")
    final = [launch_power(gpu, *load, fitted) for load in loads]
    of_watts = watts / np.array([power.watts for power in final])
    of_seconds = seconds / np.array([power.seconds for power in final])
    for name, ratios in (("watts", of_watts), ("joules", of_watts * of_seconds), ("seconds", of_seconds)):
        own = ratios[watts > 0.5 * gpu.power_limit_w]
        low, high = np.quantile(own, [0.05, 0.95])
        print(f"{name}: {low:.3f} to {high:.3f}, MAPE {100 * np.abs(1 / own - 1).mean():.1f} %")
    if asked.write:
        from benchmarks.published.fit_calls import write

        folder = resources.files("prunecast.hardware") / "power_costs"
        write(
            Path(str(folder)) / f"sm_{gpu.compute_capability}.toml",
            fitted,
            f"{asked.file} and {asked.models.name}",
        )


if __name__ == "__main__":
    main()
