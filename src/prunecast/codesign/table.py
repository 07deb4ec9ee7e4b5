"""`PredictionTable`: the predictions of all layers and kernels, with skipped layers and provenance."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from prunecast.codesign.crossover import Crossover
from prunecast.codesign.prediction import Prediction
from prunecast.codesign.provenance import Provenance, json_text
from prunecast.codesign.result import Result
from prunecast.codesign.whole_model import WholeModel
from prunecast.files import write_text_aside
from prunecast.hardware import MemoryPass
from prunecast.kernels import DTYPE_BYTES, KERNELS, ConvShape
from prunecast.text import Cells, shortened, table_text
from prunecast.workload.layers import Skipped

if TYPE_CHECKING:
    from matplotlib.figure import Figure


WORDS = ("layer", "kernel", "pattern", "bound")
"""Columns with text."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class PredictionTable(Sequence[Prediction], Result):
    """A sequence of predictions, in the order of the layers; within each layer, dense comes first.

    Parameters
    ----------
    predictions : one per layer and kernel
    crossovers : for each layer and sparse kernel, the sparsity from which the kernel is faster than dense
    skipped : layers and kernels that could not be run
    provenance : tool, GPU, weights and settings
    convolutions : layer -> its convolution, for convolutions with a known input size
    runs : layer -> number of times that a pass of the workload runs it; a layer that is missing runs once
    whole : times of the whole model, if its graph is known
    """

    predictions: tuple[Prediction, ...]
    crossovers: tuple[Crossover, ...]
    skipped: tuple[Skipped, ...]
    provenance: Provenance
    convolutions: Mapping[str, ConvShape] = field(default_factory=dict)
    runs: Mapping[str, float] = field(default_factory=dict)
    whole: WholeModel | None = None

    @overload
    def __getitem__(self, index: int) -> Prediction: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Prediction]: ...
    def __getitem__(self, index: int | slice) -> Prediction | Sequence[Prediction]:
        return self.predictions[index]

    def __len__(self) -> int:
        return len(self.predictions)

    def layers(self) -> Iterator[tuple[Prediction, ...]]:
        """Yield one tuple per layer with the predictions of all its kernels."""
        for name in dict.fromkeys(row.layer for row in self.predictions):
            yield tuple(row for row in self.predictions if row.layer == name)

    def best(self) -> list[Prediction]:
        """Return the prediction of one kernel of each layer: the fastest one, or that of `whole.best`."""
        chosen = {} if self.whole is None else self.whole.kernels
        return [
            next((row for row in rows if row.kernel == chosen.get(row.layer)), None) or fastest(rows)
            for rows in self.layers()
        ]

    def total(self, rows: Sequence[Prediction]) -> float:
        """Return the sum over `rows` of a row's seconds times the number of runs of its layer in a pass."""
        return sum(self.runs.get(row.layer, 1) * row.seconds for row in rows)

    @property
    def run_words(self) -> str:
        """The workload, or the number of tokens; images if every layer is a convolution of known size."""
        images = sorted({conv.batch for conv in self.convolutions.values()})
        if self.provenance.workload or not images or len(self.convolutions) < len(list(self.layers())):
            return self.provenance.workload or f"{self.provenance.tokens} tokens"
        return f"{images[-1]} image{'s' * (images[-1] > 1)}"

    @property
    def dense_seconds(self) -> float:
        """Summed seconds of all layers with the dense kernel."""
        return self.total([row for row in self.predictions if KERNELS[row.kernel].is_baseline])

    @property
    def best_seconds(self) -> float:
        """Summed seconds of all layers, each with its fastest kernel."""
        return self.total(self.best())

    @property
    def speedup(self) -> float:
        """Speedup of all layers together: `dense_seconds` over `best_seconds`."""
        return self.dense_seconds / self.best_seconds

    @property
    def removed(self) -> float:
        """Share of the weights of all layers that is removed, if each layer runs its fastest kernel."""
        best = self.best()
        weights = [self.runs.get(row.layer, 1) * row.m * row.k for row in best]
        return sum(row.sparsity * size for row, size in zip(best, weights, strict=True)) / sum(weights)

    @property
    def missing(self) -> tuple[Skipped, ...]:
        """Skipped tensors that may be the weights of a matrix product."""
        return tuple(skipped for skipped in self.skipped if skipped.weights)

    @property
    def coverage(self) -> float:
        """Share of the weights in predicted layers, among all weights that may belong to matrix products."""
        found = sum(rows[0].m * rows[0].k for rows in self.layers())
        return found / (found + sum(skipped.weights for skipped in self.missing))

    @property
    def transpose_seconds(self) -> float:
        """Seconds to transpose B and C of each layer whose fastest kernel is sparse, summed over layers.

        Transposes are needed if the rest of the model is token-major.
        """
        return sum(
            self.runs.get(row.layer, 1)
            * MemoryPass(
                copied_bytes=2 * size * row.n * DTYPE_BYTES[row.dtype], start_s=row.gpu.graph_launch_s
            ).seconds(row.gpu)
            for row in self.best()
            if not KERNELS[row.kernel].is_baseline
            for size in (row.m, row.k)
        )

    def fastest_kernels(self) -> list[str]:
        """Return the name of the fastest kernel of each layer."""
        return [row.kernel for row in self.best()]

    def document(self) -> dict[str, Any]:
        """Return the JSON object of `prunecast predict --json`."""
        return {
            **self.provenance.document(),
            "predictions": [row.row() for row in self.predictions],
            "crossovers": [crossover.row() for crossover in self.crossovers],
            "skipped": [skipped.row() for skipped in self.skipped],
            **({"runs": dict(self.runs)} if self.runs else {}),
            **({} if self.whole is None else {"whole_model": self.whole.document()}),
        }

    def __str__(self) -> str:
        last = f"dense {1e6 * self.dense_seconds:.4g} us, best {1e6 * self.best_seconds:.4g} us"
        return f"{table_text([row.cells() for row in self], words=WORDS)}\n{last}, {self.speedup:.2f}x"

    def __repr__(self) -> str:
        count = len(list(self.layers()))
        return f"<PredictionTable of {count} layers on {self.provenance.gpu}, {self.speedup:.2f}x>"

    def frame_rows(self) -> list[dict[str, Any]]:
        """Return the fields of each prediction."""
        return [row.row() for row in self]

    def cells(self) -> list[Cells]:
        """Return the table as texts, one row per prediction."""
        return [row.cells() for row in self]

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on the whole model and notes of the predictions, then skipped layers with their reasons."""
        notes = dict.fromkeys(note for row in self for note in row.note.split("; ") if note)
        return (
            *(() if self.whole is None else self.whole.remarks),
            *notes,
            *(f"{one.layer}: {one.reason}" for one in self.skipped),
        )

    @property
    def headlines(self) -> tuple[str, ...]:
        """A line with the dense and pruned times of each pass of the whole model; empty for single layers."""
        if self.whole is None:
            return ()
        where = f"{self.provenance.source or 'model'} on {self.provenance.gpu}"
        return tuple(f"{where}, {phase.words}: {phase.verdict(self.removed)}" for phase in self.whole.phases)

    def plot(self) -> "Figure":
        """Draw the speedup over dense for each layer and sparse kernel, as a new Matplotlib figure.

        If the table has only dense predictions, their times are drawn.
        """
        from prunecast.codesign.pictures.comparisons import NAME_WIDTH, draw_bars, draw_speedups

        first = {row.layer: row for row in self.predictions}
        kernels = list(dict.fromkeys(row.kernel for row in self if not KERNELS[row.kernel].is_baseline))
        if not kernels:
            return draw_bars(
                list(first), ["dense"], [[row.latency_us] for row in first.values()], self.provenance.gpu
            )
        speedups = {(row.layer, row.kernel): row.speedup_over_dense for row in self}
        rows = [[speedups.get((name, kernel)) for kernel in kernels] for name in first]
        texts = [
            f"{shortened(name, NAME_WIDTH)}\n{row.m} x {row.k}, N {row.n}" for name, row in first.items()
        ]
        return draw_speedups(texts, kernels, rows, f"Speedup over dense on {self.provenance.gpu}")

    def save(self, path: str | Path) -> None:
        """Write the JSON object to a file, which `compare` can read."""
        write_text_aside(Path(path), json_text(self.document()))


def fastest(rows: Sequence[Prediction]) -> Prediction:
    """Return the prediction with the least time; the first one if several are equal."""
    return min(rows, key=lambda row: row.seconds)
