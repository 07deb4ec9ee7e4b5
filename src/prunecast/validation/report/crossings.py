"""What a prediction is for: saying from which density sparse beats dense."""

import itertools
from collections.abc import Iterable
from typing import NamedTuple

from prunecast.kernels import KERNELS
from prunecast.kernels.tile.kernel import STSPMM
from prunecast.validation.judged import Judged

__all__ = ["Bound", "Crossing", "crossings"]


class Bound(NamedTuple):
    """Where a curve meets dense, or which end of the densities it does not meet it before."""

    density: float
    side: int = 0
    """0 where it meets dense at `density`; 1 where it is below dense up to there, the densest, and -1 where
    it is above from there on, the sparsest."""

    def __str__(self) -> str:
        """As a cell of the table."""
        return f"{('', 'above ', 'below ')[self.side]}{self.density:.3f}"


class Crossing(NamedTuple):
    """Density below which STSpMM beats dense on a layer."""

    layer: str
    measured: Bound
    predicted: Bound

    @property
    def points(self) -> float:
        """Predicted less measured, in points of density; at least as far where one of both is beyond."""
        return 100.0 * (self.predicted.density - self.measured.density)

    @property
    def beyond(self) -> bool:
        """Whether one of both curves does not meet dense where it was measured."""
        return (self.measured.side, self.predicted.side) != (0, 0)


def _is_on_curve(row: Judged) -> bool:
    wanted = (STSPMM, STSPMM.natural_pattern, "equal")
    return (KERNELS[row.family], row.case.pattern, row.case.distribution) == wanted


def crossings(rows: Iterable[Judged], engine: str) -> list[Crossing]:
    """Layers on which equal tiles of 128 rows were measured, or are predicted, on both sides of dense."""
    curves: dict[tuple[str, str], dict[float, Judged]] = {}
    dense: dict[tuple[str, str], Judged] = {}
    for row in rows:
        if not row.counts or row.case.state != "burst":
            continue
        layer = (row.case.layer, row.case.state)
        if not KERNELS[row.family].prunes:
            dense[layer] = row
        elif _is_on_curve(row):
            curves.setdefault(layer, {})[1.0 - row.case.sparsity] = row
    found = []
    for layer, curve in curves.items():
        if layer not in dense or len(curve) < 2:
            continue
        library = dense[layer]
        measured = _crossing(
            {d: (row.measured.seconds or 0.0) / (library.measured.seconds or 1.0) for d, row in curve.items()}
        )
        predicted = _crossing(
            {d: row.predicted[engine].seconds / library.predicted[engine].seconds for d, row in curve.items()}
        )
        if 0 in (measured.side, predicted.side) or measured.side != predicted.side:
            found.append(Crossing(layer[0], measured, predicted))
    return found


def _crossing(ratio: dict[float, float]) -> Bound:
    """Where sparse over dense passes 1, by straight lines between the measured densities."""
    densities = sorted(ratio)
    for low, high in itertools.pairwise(densities):
        if ratio[low] <= 1.0 < ratio[high]:
            return Bound(low + (1.0 - ratio[low]) / (ratio[high] - ratio[low]) * (high - low))
    if ratio[densities[0]] > 1.0:
        return Bound(densities[0], -1)
    return Bound(densities[-1], 1 if densities[-1] < 1.0 else 0)
