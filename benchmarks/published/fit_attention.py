"""Fit the costs of attention to the fit rows of measured times, and write the tables of the library.

python -m benchmarks.published.fit_attention FOLDER [--write]

FOLDER holds published tables, `attention_bf16_GPU.csv`; kernels of torch are fitted to this project's record.
Prints errors of judge rows for each kernel, phase and GPU, and those of GPUs that were held out: the costs of
another GPU, applied through the spec. With `--write`, costs and bounds are written to
`src/prunecast/kernels/libraries`. Parameters are fitted in logarithms, with the logarithm of measured over
predicted as error, little weight of outliers, and a weak pull to where they begin.
"""

import argparse
import csv
import datetime
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.published.attention import Group, group_rows, groups_of, shape_of, use_of
from benchmarks.published.products import bounds
from benchmarks.published.tables import gpu_of_file
from benchmarks.pytorch.fit import points
from prunecast.hardware import GpuSpec, load_gpu
from prunecast.kernels.libraries.attention.seconds import COSTS, parts_of
from prunecast.kernels.libraries.attention.shape import Attention
from prunecast.workload.graph.runtimes import torch_costs

ROOT = Path(__file__).parents[2]
LIBRARIES = ROOT / "src/prunecast/kernels/libraries"
RECORD = ROOT / "benchmarks/measured/h200-sxm-torch-attention-2026-11-28.csv"
LENGTHS = RECORD.with_name("h200-sxm-torch-attention-2026-11-28-lengths.csv")
MODELS = ROOT / "benchmarks/measured/h200-sxm-pytorch-models-2026-11-23.json"
TORCH_KERNELS = {
    ("cudnn", False): "cuDNN",
    ("cudnn", True): "cuDNN with mask",
    ("flash", False): "FlashAttention 2 of torch",
    ("efficient", False): "memory-efficient attention",
    ("efficient", True): "memory-efficient attention with mask",
}
"""Backend of torch, and whether a mask is given -> our name of the kernel."""
MMA = ("FlashAttention 2", "memory-efficient")
"""Beginnings of the names of kernels that multiply by warp-level `mma.sync` on every GPU."""
LAUNCHES = {"prefill": 2, "decode": 2, "encoder": 1}
"""Kernels of a call of an engine: cache write and attention; on sm_90, FlashAttention 3 also schedules."""
TORCH_LAUNCHES = {"cuDNN": 2, "cuDNN with mask": 2}
"""Kernels of a call in torch, else one. cuDNN clears memory first."""


class Range(NamedTuple):
    """Where a parameter begins, and its bounds."""

    first: float
    low: float
    high: float


RANGES: Mapping[str, Range] = {
    "begin_s": Range(4e-6, 1e-7, 2e-5),
    "tile_clk": Range(2000, 100, 3e4),
    "tile_row_clk": Range(500, 1, 3e4),
    "step_clk": Range(100, 1, 500),
    "load_ratio": Range(0.5, 0.05, 5),
    "product_ratio": Range(1, 0.7, 4),
    "exponential_ratio": Range(1, 0.2, 4),
    "tail_ratio": Range(0.5, 0.05, 2),
    "unequal_ratio": Range(0.3, 0.01, 2),
    "lone_ratio": Range(1, 0.2, 3),
    "ragged_ratio": Range(1, 0.8, 3),
    "dram_ratio": Range(1, 0.6, 3),
    "l2_ratio": Range(1, 0.3, 6),
    "write_dram_ratio": Range(1.2, 0.5, 5),
    "write_l2_ratio": Range(2, 0.3, 30),
    "combine_s": Range(3e-6, 2e-7, 2e-5),
}
OF_DECODE = {"product_ratio": Range(0.9, 0.7, 1.0)}
"""Ranges that differ for decode, where products and loads of a step cannot be told apart on one GPU."""
PULL = 0.03
"""Weight of a parameter's distance from where it begins, in logarithms."""
OUTLIER = 0.1
"""Logarithm of measured over predicted from which errors count less."""
SHORT_S = 20e-6
WIDENED = 1.25
"""Exponent of the bounds of a GPU for other GPUs of its architecture. Kind: guess."""
SAME_KERNELS = {100: (100, 103)}
"""Architecture -> architectures that run the same kernels."""
Numbers = npt.NDArray[np.float64]


class Rows(NamedTuple):
    """Rows of one kernel and phase on one GPU."""

    gpu: GpuSpec
    group: Group
    measured: Numbers
    fit: npt.NDArray[np.bool_]
    cold: npt.NDArray[np.bool_]
    """Keys and values come from DRAM in a row."""
    source: str
    runtime: str
    """`engine` for published tables, whose calls are graphs of their own, or `torch`."""

    @property
    def name(self) -> tuple[str, str, str]:
        """Kernel, phase and GPU."""
        return self.group.kernel, self.group.phase, self.gpu.name


def published(folder: Path) -> list[Rows]:
    """Return the rows of all tables of attention in a folder."""
    found = []
    for path in sorted(folder.glob("attention_*.csv")):
        gpu, rows = load_gpu(gpu_of_file(path.name)), rows_in(path)
        measured, fit = times_of(rows)
        warm = np.zeros(len(rows), bool)
        source = f"fit rows of {path.name} (AIConfigurator; Apache-2.0)"
        found += [
            Rows(gpu, group, measured[group.rows], fit[group.rows], warm[group.rows], source, "engine")
            for group in groups_of(rows, gpu)
        ]
    return found


def recorded() -> list[Rows]:
    """Return the rows of torch's fused kernels in the project's record."""
    rows = [row for row in (*rows_in(RECORD), *rows_in(LENGTHS)) if row["kernel_source"] != "math"]
    models = traced()
    rows += models
    gpu = load_gpu("h200-sxm")
    measured, fit = times_of(rows)
    fit[len(rows) - len(models) :] = True
    cold = np.array([int(row["sets"]) > 1 for row in rows])
    shapes = [shape_of(row) for row in rows]
    kernels = [
        TORCH_KERNELS[row["kernel_source"], shape.has_mask] for row, shape in zip(rows, shapes, strict=True)
    ]
    source = f"fit rows of {RECORD.name} and {LENGTHS.name} (torch 2.11, cuDNN 9.19)"
    # torch runs the same kernel with and without a causal mask
    phases = ["decode" if shape.phase == "decode" else "encoder prefill" for shape in shapes]
    return [
        Rows(gpu, group, measured[group.rows], fit[group.rows], cold[group.rows], source, "torch")
        for group in group_rows(rows, shapes, kernels, phases, gpu)
    ]


def traced() -> list[dict[str, str]]:
    """Return rows of attention in traces of models that are marked fit, with the fill before it and gaps."""
    found = []
    models = [model for model in json.loads(MODELS.read_text())["models"] if model["use"] == "fit"]
    beside_s = FILL_S + 2.0 * torch_costs(load_gpu("h200-sxm"))["gap_s"]
    for point in points(models, "attention"):
        shape = point.operation.attention
        assert shape is not None
        kind = {"encoder": "encoder", "prefill": "context", "decode": "generation"}[shape.phase]
        sizes = shape.sequences, shape.queries, shape.keys - shape.queries, shape.heads, shape.key_heads
        numbers = dict(zip(SIZES, (*sizes, shape.head_width), strict=True))
        seconds = str(1e-6 * point.us + beside_s)
        texts = {"kind": kind, "kernel_source": "cudnn", "mask": "none", "window_size": "0", "sets": "2"}
        found.append({**texts, "seconds": seconds, **{name: str(size) for name, size in numbers.items()}})
    return found


SIZES = ("batch_size", "isl", "step", "num_heads", "num_key_value_heads", "head_dim")
FILL_S = 0.8e-6
"""cuDNN's fill before attention, in traces of `benchmarks.kernels.attention`."""


def rows_in(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file."""
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def times_of(rows: Sequence[Mapping[str, str]]) -> tuple[Numbers, npt.NDArray[np.bool_]]:
    """Return the measured seconds, and which rows may be fitted to."""
    measured = np.array([float(row["seconds"]) for row in rows])
    # Biases of each head are another tensor than a mask, which judges only
    fit = [use_of(row) == "fit" and row.get("mask") != "biases" for row in rows]
    return measured, np.array(fit)


def predicted(rows: Rows, costs: Mapping[str, float]) -> Numbers:
    """Return the seconds of rows with given costs."""
    is_engine = rows.runtime == "engine"
    parts = parts_of(
        rows.group.work, costs, rows.gpu, rows.group.clock_hz, cold=rows.cold, replayed=is_engine,
        writes_cache=is_engine,
    )  # fmt: skip
    return np.asarray(parts.seconds)


def unseen_ratios(rows: Rows) -> Numbers:
    """Return measured over predicted times of the fit rows, each with costs fitted to the other half."""
    is_second = np.cumsum(rows.fit) % 2 == 1
    found = np.ones(rows.measured.size)
    for half in (is_second, ~is_second):
        costs = fitted(rows._replace(fit=rows.fit & ~half))
        found[half] = (rows.measured / predicted(rows, costs))[half]
    return found[rows.fit]


def fitted(rows: Rows) -> dict[str, float]:
    """Return the costs with the least error on the fit rows."""
    from scipy.optimize import least_squares

    ranges = {**RANGES, **(OF_DECODE if rows.group.phase == "decode" else {})}
    first, low, high = np.log(np.array(list(ranges.values()))).T

    def errors(logarithms: Any) -> Any:
        seconds = predicted(rows, costs_from(rows, np.exp(logarithms)))
        error = np.log(seconds / rows.measured)[rows.fit]
        return np.concatenate([error, PULL * (logarithms - first)])

    solved = least_squares(errors, first, bounds=(low, high), loss="soft_l1", f_scale=OUTLIER, max_nfev=300)
    return costs_from(rows, np.exp(solved.x))


def costs_from(rows: Rows, values: Any) -> dict[str, float]:
    """Return all costs from fitted values. What precedes the first tile, beyond launches, is the replay of a
    graph in published tables.
    """
    costs = dict(zip(RANGES, values.tolist(), strict=True))
    kernel, phase, _ = rows.name
    launches = TORCH_LAUNCHES.get(kernel, 1)
    if rows.runtime == "engine":
        launches = LAUNCHES[phase] + (kernel == "FlashAttention 3" and rows.gpu.has_wgmma)
    begin_s = max(costs.pop("begin_s") - launches * rows.gpu.graph_launch_s, 0.0)
    is_mma = kernel.startswith(MMA) or (kernel == "FlashAttention 3" and not rows.gpu.has_wgmma)
    return {
        **costs,
        "launches": launches,
        "start_s": begin_s if rows.runtime == "torch" else 0.0,
        "replay_s": begin_s if rows.runtime == "engine" else 0.0,
        "is_mma": float(is_mma),
    }


def print_errors(label: str, rows: Rows, costs: Mapping[str, float]) -> None:
    """Print the errors of judge rows."""
    seconds = predicted(rows, costs)
    for length, chosen in (("above", rows.measured > SHORT_S), ("below", rows.measured <= SHORT_S)):
        own = chosen & ~rows.fit
        if own.any():
            error = np.log(seconds[own] / rows.measured[own])
            size = 100 * np.abs(np.expm1(error))
            print(
                f"{label:<58} {length} 20 us {own.sum():4d} judge rows  MAPE {size.mean():5.1f} %  "
                f"p90 {np.percentile(size, 90):5.1f}  bias {100 * np.expm1(error.mean()):+5.1f}"
            )


Fitted = Mapping[tuple[str, str, str], Mapping[str, float]]
"""Kernel, phase and GPU -> costs."""


def held_out(tables: Sequence[Rows], costs: Fitted) -> dict[str, list[Numbers]]:
    """Return phase -> measured over predicted times of judge rows with the costs of each other GPU."""
    ratios: dict[str, list[Numbers]] = {}
    for rows in tables:
        for (kernel, phase, gpu), others in costs.items():
            own_kernels = {"FlashAttention 4"} if phase != "encoder" else set()
            if phase != rows.group.phase or gpu == rows.gpu.name or {kernel, rows.group.kernel} & own_kernels:
                continue
            print_errors(f"held out: {rows.gpu.name} {phase}, {kernel} of {gpu}", rows, others)
            chosen = ~rows.fit
            ratios.setdefault(phase, []).append((rows.measured / predicted(rows, others))[chosen])
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    engine, torch = published(asked.folder), recorded()
    costs = {rows.name: fitted(rows) for rows in (*engine, *torch)}
    for rows in (*engine, *torch):
        print_errors(" ".join(rows.name), rows, costs[rows.name])
    ratios = held_out(engine, {rows.name: costs[rows.name] for rows in engine})
    entries = fit_math()
    if asked.write:
        write_costs([*engine, *torch], costs)
        write_bounds([*engine, *torch], costs, ratios)
        print("\n".join(f"{name} {value:.4g}" for name, value in entries.items()))


def fit_math() -> dict[str, float]:
    """Return the entries of torch's unfused path: passes over scores, mask and operands, and the start."""
    from scipy.optimize import nnls

    gpu = load_gpu("h200-sxm")
    rows = [row for row in rows_in(RECORD) if row["kernel_source"] == "math" and int(row["isl"]) > 1]
    shapes = [shape_of(row) for row in rows]
    measured, fit = times_of(rows)
    rate = 2.0 * gpu.fp32_fma_per_clk_per_sm * gpu.sm_count * gpu.clock_burst_hz[0]
    table = np.array([_math_terms(shape, gpu) for shape in shapes])
    products_s = np.array([_scores(shape) * 4.0 * shape.head_width for shape in shapes]) / rate
    rest = np.maximum(measured - products_s, 0.0)
    found = nnls((table / measured[:, None])[fit], (rest / measured)[fit])[0]
    size = 100 * np.abs((table @ found + products_s) / measured - 1.0)[~fit]
    print(f"math, {(~fit).sum()} judge rows: MAPE {size.mean():.1f} %, p90 {np.percentile(size, 90):.1f} %")
    return dict(
        zip(("start_s", "score_passes", "mask_passes", "operand_passes"), found.tolist(), strict=True)
    )


def _math_terms(shape: Attention, gpu: GpuSpec) -> list[float]:
    scores_s = 4.0 * _scores(shape) / gpu.dram_copy_bytes_per_s
    operands_s = (
        4.0 * shape.sequences * shape.width * (shape.queries + shape.keys) / gpu.dram_copy_bytes_per_s
    )
    masked = shape.has_mask or (shape.is_causal and shape.queries > 1)
    return [1.0, scores_s, scores_s * masked, operands_s]


def _scores(shape: Attention) -> float:
    return float(shape.sequences * shape.heads * shape.queries * shape.keys)


def write_costs(tables: Sequence[Rows], costs: Fitted) -> None:
    """Write the table of costs. Kernels that are not fitted here keep their rows."""
    path = LIBRARIES / "tables/attention_costs.csv"
    others = [row for row in rows_in(path) if row["kernel"] not in {rows.group.kernel for rows in tables}]
    with path.open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["kernel", "phases", "sm", "instruction", *COSTS, "fit_rows", "date", "kind", "source"])
        for rows in tables:
            own = costs[rows.name]
            first = [rows.group.kernel, rows.group.phase, rows.gpu.compute_capability]
            numbers = [f"{own[name]:.4g}" for name in COSTS]
            instruction = "mma" if own["is_mma"] else "warpgroup"
            last = [int(rows.fit.sum()), today(), "fitted", f"{rows.source}, {rows.gpu.name}"]
            out.writerow([*first, instruction, *numbers, *last])
        out.writerows(row.values() for row in others)


def write_bounds(tables: Sequence[Rows], costs: Fitted, ratios: Mapping[str, list[Numbers]]) -> None:
    """Replace the bounds of attention in the table of bounds, and print their coverage of judge rows.

    Bounds are of fit rows with costs that were fitted to other fit rows.
    """
    path = LIBRARIES / "tables/call_errors.csv"
    kept = [row for row in rows_in(path) if row["library"] != "attention"]
    cases: dict[tuple[str, GpuSpec], list[Rows]] = {}
    for rows in tables:
        for phase in rows.group.phase.split():
            cases.setdefault((f"{rows.runtime} {phase}", rows.gpu), []).append(rows)
    for (case, gpu), own in cases.items():
        ratio = np.concatenate([rows.measured / predicted(rows, costs[rows.name]) for rows in own])
        fit = np.concatenate([rows.fit for rows in own])
        low, high = bounds(np.concatenate([unseen_ratios(rows) for rows in own]))
        inside = float(((ratio >= low) & (ratio <= high))[~fit].mean())
        print(f"{case} {gpu.name}: {low:.3f} to {high:.3f}, {100 * inside:.0f} % of judge rows inside")
        source = own[0].source
        kept.append(_bounds_row(case, gpu.name, low, high, fit, f"{inside:.3f}", source))
        text = f"guess: those of {gpu.name}, to the power of {WIDENED:g}"
        for sm in SAME_KERNELS.get(gpu.compute_capability, (gpu.compute_capability,)):
            kept.append(_bounds_row(case, f"sm_{sm}", low**WIDENED, high**WIDENED, fit, "", text))
    for phase, found in ratios.items():
        low, high = bounds(np.concatenate(found))
        text = "judge rows of each GPU with the costs of each other GPU"
        none = np.zeros(0, bool)
        kept.append(_bounds_row(f"engine {phase}", "other", low, high, none, "", text))
    with path.open("w", encoding="utf-8", newline="") as file:
        out = csv.DictWriter(file, list(kept[0]), lineterminator="\n")
        out.writeheader()
        out.writerows(kept)


def _bounds_row(
    case: str, gpu: str, low: float, high: float, fit: npt.NDArray[np.bool_], coverage: str, source: str
) -> dict[str, str]:
    return {
        **{"library": "attention", "case": case, "gpu": gpu, "low": f"{low:.3f}", "high": f"{high:.3f}"},
        **{"fit_rows": str(int(fit.sum())), "judge_rows": str(int((~fit).sum())), "coverage": coverage},
        **{"date": today(), "source": source},
    }


def today() -> str:
    """Return the date of the fit."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


if __name__ == "__main__":
    main()
