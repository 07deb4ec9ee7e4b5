"""Comparison of the predictions in two files, or of one model on several GPUs."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from prunecast.arguments import checked
from prunecast.codesign.checked_settings import settings_of
from prunecast.codesign.interval import evidence_of
from prunecast.codesign.predict import GpuRequest, predict_each
from prunecast.codesign.provenance import read_document
from prunecast.codesign.result import Result
from prunecast.codesign.table import PredictionTable
from prunecast.errors import BadInput, check_choice
from prunecast.launch import Conditions
from prunecast.settings import LayerSettings
from prunecast.text import Cells, gigabytes, milliseconds, shortened, significant, table_text
from prunecast.version import headed
from prunecast.workload.engines import Progress, silent
from prunecast.workload.layers import Source

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH = 80
"""Maximum line length of the table of GPUs, in characters."""
SHORTEST_NAME = 8
"""Minimum length of a shortened GPU name, in characters."""
SHORT_SOURCES = {"measured": "own", "published": "others"}
GPU_COLUMNS = ("GPU", "source")
"""Columns of the table of GPUs that contain text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRow:
    """Predicted times of one layer with one kernel, in each of the compared predictions (columns).

    Parameters
    ----------
    layer, kernel, n : layer, kernel and number of tokens; rows of different predictions match if these agree
    pattern : pruning pattern of the layer, from the first prediction that has this row
    seconds : predicted seconds in each column; None for a prediction without this row
    ratio : time in each column over the time in the first column; None if either time is missing
    """

    layer: str
    kernel: str
    n: int
    pattern: str
    seconds: tuple[float | None, ...]
    ratio: tuple[float | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRow:
    """Predicted totals of a model (or of single layers) on one GPU, dense and with the fastest kernels.

    Parameters
    ----------
    gpu : name of the GPU
    dense_seconds, seconds : dense time, and time with the fastest kernels, in seconds. For a model, this is
        the mean time of a pass of the workload; for single layers, the sum over layers
    seconds_low, seconds_high : bounds of the interval of `seconds`
    per_s : tokens or images per second with the fastest kernels; None for several passes or single layers
    memory_bytes : bytes of weights, KV cache and activations, of the pass with the largest sum; None for
        single layers
    gpu_bytes : bytes of the GPU's memory
    fits : True if the pruned model fits in memory; None for single layers
    largest_batch : largest number of sequences or images with which every pass of the pruned model fits in
        memory; 0 if not even one fits, None for single layers
    joules : energy per token or image with the fastest kernels; None for several passes or single layers
    cost_per_million : price of a million tokens or images of the pruned model; None if the GPU has no price,
        and for several passes or single layers
    evidence : basis of the interval: `measured`, `published` or `guess`
    """

    gpu: str
    dense_seconds: float
    seconds: float
    seconds_low: float
    seconds_high: float
    per_s: float | None
    memory_bytes: float | None
    gpu_bytes: int
    fits: bool | None
    largest_batch: int | None
    joules: float | None
    cost_per_million: float | None
    evidence: str

    @property
    def speedup(self) -> float:
        """Dense time over the time with the fastest kernels."""
        return self.dense_seconds / self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(Result):
    """Comparison of several predictions (columns): of two files, or of one model on several GPUs.

    Parameters
    ----------
    columns : label of each prediction: the GPU, or the file and its GPU
    rows : rows that at least two columns have, in the order of the first column
    unmatched : layer, kernel and tokens of rows that only one column has
    gpus : totals on each GPU, sorted by time, GPUs without enough memory last; empty for two files
    conditions : conditions of the times in each column, see `launch.conditions`
    """

    columns: tuple[str, ...]
    rows: tuple[ComparisonRow, ...]
    unmatched: tuple[str, ...]
    gpus: tuple[GpuRow, ...] = ()
    conditions: tuple[Conditions, ...] = ()

    def plot(self) -> "Figure":
        """Draw the dense and pruned time on each GPU, or for two files the times of each layer and kernel.

        The result is a new Matplotlib figure.
        """
        from prunecast.codesign.pictures.comparisons import draw_bars

        if self.gpus:
            totals = [[1e6 * row.dense_seconds, 1e6 * row.seconds] for row in self.gpus]
            return draw_bars([row.gpu for row in self.gpus], ["dense", "pruned"], totals, "one pass")
        names = [f"{row.layer}, {row.kernel}" for row in self.rows]
        times = [[None if s is None else 1e6 * s for s in row.seconds] for row in self.rows]
        return draw_bars(names, self.columns, times, "ratio is to the first")

    def cells(self) -> list[Cells]:
        """Return a table as texts: one row per GPU, or for two files one row per layer and kernel."""
        if self.gpus:
            return gpu_cells(self.gpus)
        heads = [f"{name}, us" for name in self.columns]
        return [
            {"layer": r.layer, "kernel": r.kernel, "N": f"{r.n}"}
            | dict(zip(heads, map(_us, r.seconds), strict=True))
            for r in self.rows
        ]

    def frame_rows(self) -> list[dict[str, Any]]:
        """Return one row per GPU, or for two files one row per layer, kernel and file."""
        if self.gpus:
            return [{**asdict(row), "speedup": row.speedup} for row in self.gpus]
        return [
            {"layer": row.layer, "kernel": row.kernel, "n": row.n, "column": name, "seconds": seconds}
            for row in self.rows
            for name, seconds in zip(self.columns, row.seconds, strict=True)
        ]

    @property
    def notes(self) -> tuple[str, ...]:
        """A line for each row that only one column has."""
        return tuple(f"only in one column: {name}" for name in self.unmatched)

    def __str__(self) -> str:
        return table_text(self.cells(), words=("layer", "kernel", *GPU_COLUMNS))

    def document(self) -> dict[str, Any]:
        """Return the JSON object of `prunecast compare --json`."""
        content = {
            "columns": list(self.columns),
            "conditions": [each.document() for each in self.conditions],
            "rows": [asdict(row) for row in self.rows],
            "unmatched": list(self.unmatched),
        }
        return headed(content | ({"gpus": [asdict(row) for row in self.gpus]} if self.gpus else {}))


def gpu_cells(gpus: Sequence[GpuRow]) -> list[Cells]:
    """Return a table with one row per GPU, as texts, at most `WIDTH` characters wide.

    Long GPU names are shortened in the middle, unless two names would then be equal.
    """
    has_prices = any(row.cost_per_million is not None for row in gpus)
    rows = [_cells_of(row, has_prices=has_prices) for row in gpus]
    others = (max(len(title), *(len(row[title]) for row in rows)) for title in rows[0] if title != "GPU")
    left = max(SHORTEST_NAME, WIDTH - sum(2 + width for width in others))
    names = [shortened(row.gpu, left) for row in gpus]
    if len({*names}) < len({row.gpu for row in gpus}):
        return rows
    return [{**row, "GPU": name} for row, name in zip(rows, names, strict=True)]


def _cells_of(row: GpuRow, *, has_prices: bool) -> Cells:
    return {
        "GPU": row.gpu,
        "dense": milliseconds(row.dense_seconds),
        "pruned": milliseconds(row.seconds),
        "interval": f"{milliseconds(row.seconds_low)}-{milliseconds(row.seconds_high)}",
        "gain": f"{row.speedup:.2f}x",
        **({} if row.per_s is None else {"per s": f"{row.per_s:,.0f}"}),
        **({} if row.joules is None else {"J": significant(row.joules)}),
        **({"cost": significant(row.cost_per_million or "")} if has_prices else {}),
        **({} if row.memory_bytes is None else {"GB": gigabytes(row.memory_bytes) + " no" * (not row.fits)}),
        "source": SHORT_SOURCES.get(row.evidence, row.evidence),
    }


Row = dict[str, Any]
SHORTEST_S, LONGEST_S = 1e-12, 1e9
"""Range of accepted times in seconds; it keeps the ratios finite."""
_NEEDED = {"layer": str, "kernel": str, "n": int, "pattern": str, "seconds": float}


@checked
def compare(first: str | Path, second: str | Path) -> Comparison:
    """Compare two files that `predict --json` wrote; a ratio is the time in the second file over the first.

    Raises
    ------
    BadInput : a file does not contain predictions, or no layer, kernel and number of tokens is in both files
    """
    read = [(path, read_document(path, key="predictions")) for path in (first, second)]
    columns = _different([f"{Path(path).name} ({document.get('gpu')})" for path, document in read])
    tables = [_rows_of(document, path) for path, document in read]
    found = tuple(Conditions.of({**next(iter(one["predictions"]), {}), **one}, path) for path, one in read)
    return replace(_side_by_side(columns, tables), conditions=found)


def _us(seconds: float | None) -> str:
    return "" if seconds is None else f"{1e6 * seconds:.2f}"


def _different(labels: Sequence[str]) -> list[str]:
    """Return the labels, with the column number in front of each label that occurs more than once."""
    return [
        f"{place}: {label}" if labels.count(label) > 1 else label for place, label in enumerate(labels, 1)
    ]


@checked
def compare_gpus(
    weights: Source,
    *,
    gpus: Sequence[str],
    prices: Mapping[str, float] | None = None,
    progress: Progress = silent,
    **options: Unpack[LayerSettings],
) -> Comparison:
    """Predict the same layers on several GPUs and compare the times.

    Parameters
    ----------
    weights : as in `predict`
    gpus : names or spec files of two or more GPUs
    prices : GPU -> price of an hour, in any currency, for the cost of a million tokens
    progress : called with the progress
    options : settings of `predict` other than the GPU

    Raises
    ------
    BadInput : in the same cases as `predict`; also for fewer than two GPUs, or a price of a GPU not in `gpus`
    """
    prices = prices or {}
    for name in prices:
        check_choice("GPU of a price", name, gpus)
    if "gpu" in options:
        raise TypeError("compare_gpus: wanted the GPUs as gpus=, got gpu=")
    if len(gpus) < 2:
        raise BadInput(f"gpus must be two or more to compare, got {', '.join(gpus) or 'none'}")
    settings = [settings_of(weights, {"gpu": gpu, **options}, "compare_gpus") for gpu in gpus]
    asked = [GpuRequest(each, prices.get(gpu)) for each, gpu in zip(settings, gpus, strict=True)]
    tables = predict_each(weights, asked, crossovers=False, progress=progress)
    names = _different([table.provenance.gpu for table in tables])
    layers = _side_by_side(names, [[prediction.row() for prediction in table] for table in tables])
    ranked = sorted(map(_gpu_row, names, tables), key=lambda row: (row.fits is False, row.seconds))
    return replace(
        layers, gpus=tuple(ranked), conditions=tuple(table.provenance.conditions for table in tables)
    )


def _gpu_row(name: str, table: PredictionTable) -> GpuRow:
    """Return the totals of a table: those of the whole model if its graph is known, else sums over layers."""
    gpu, whole = table[0].gpu, table.whole
    phases = () if whole is None else whole.phases
    times = [(p.run.share, p.best.time.seconds, p.best.low_s, p.best.high_s) for p in phases]
    if whole is None:
        times = [(table.runs.get(r.layer, 1), r.seconds, r.seconds_low, r.seconds_high) for r in table.best()]
    seconds, low, high = (sum(one[0] * one[place] for one in times) for place in (1, 2, 3))
    memories = [phase.best.memory for phase in phases]
    only = phases[0] if len(phases) == 1 else None
    price = None if whole is None else whole.price
    return GpuRow(
        gpu=name,
        dense_seconds=table.dense_seconds if whole is None else whole.dense.seconds,
        seconds=seconds,
        seconds_low=low,
        seconds_high=high,
        per_s=None if only is None else only.tokens_per_pass / seconds,
        joules=None if only is None else only.run.gpus * only.best.power.joules / only.tokens_per_pass,
        cost_per_million=None if only is None or price is None else only.cost(only.best, price),
        memory_bytes=max((memory.total for memory in memories), default=None),
        gpu_bytes=gpu.dram_bytes,
        fits=all(memory.fits(gpu.dram_bytes) for memory in memories) if memories else None,
        largest_batch=min((memory.largest_batch(gpu.dram_bytes) for memory in memories), default=None),
        evidence=evidence_of(gpu.name),
    )


def _rows_of(document: dict[str, Any], path: str | Path) -> list[Row]:
    rows = document["predictions"]
    if not isinstance(rows, list):
        raise BadInput(f"{path}: predictions must be a list, got {type(rows).__name__}")
    for index, row in enumerate(rows):
        if not isinstance(row, dict):
            raise BadInput(f"{path}: predictions[{index}] must be an object, got {row!r:.40}")
        for name, kind in _NEEDED.items():
            value = row.get(name)
            if not isinstance(value, kind) or isinstance(value, bool):
                wanted = f"predictions[{index}] must have {name} as {kind.__name__}"
                raise BadInput(f"{path}: {wanted}, got {value!r:.40}")
        if not SHORTEST_S <= row["seconds"] <= LONGEST_S:
            raise BadInput(
                f"{path}: predictions[{index}].seconds must be {SHORTEST_S:g} to {LONGEST_S:g}, "
                f"got {row['seconds']!r:.40}"
            )
    return rows


def _side_by_side(columns: Sequence[str], tables: Sequence[list[Row]]) -> Comparison:
    found = [{(row["layer"], row["kernel"], row["n"]): row for row in rows} for rows in tables]
    every = dict.fromkeys(key for keys in found for key in keys)
    shared = [key for key in every if sum(key in keys for keys in found) > 1]
    if not shared:
        raise BadInput(
            f"nothing to compare: {' and '.join(columns)} share no layer, kernel and number of tokens"
        )
    return Comparison(
        columns=tuple(columns),
        rows=tuple(_row([keys.get(key) for keys in found]) for key in shared),
        unmatched=tuple(
            f"{layer}, {kernel}, n={n}" for layer, kernel, n in every if (layer, kernel, n) not in shared
        ),
    )


def _row(found: Sequence[Row | None]) -> ComparisonRow:
    seconds = tuple(None if row is None else float(row["seconds"]) for row in found)
    first = next(row for row in found if row is not None)
    return ComparisonRow(
        layer=first["layer"],
        kernel=first["kernel"],
        n=first["n"],
        pattern=first["pattern"],
        seconds=seconds,
        ratio=tuple(None if time is None or seconds[0] is None else time / seconds[0] for time in seconds),
    )
