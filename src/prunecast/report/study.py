"""`LayerStudy`: the data about one layer in the report, with its curves over sparsity."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from prunecast.choice import PrunedMap, fastest_plan
from prunecast.codesign.advice import Advice, LayerCase, advise
from prunecast.codesign.explain_sections import Section, sections_of
from prunecast.codesign.prediction import Prediction
from prunecast.codesign.table import PredictionTable, fastest
from prunecast.errors import BadInput
from prunecast.hardware import Occupancy
from prunecast.kernels import KERNELS, ConvShape, KernelPlan, plan_dense
from prunecast.kernels.tile.kernel import STSPMM
from prunecast.patterns import TileMap, parse_pattern, retained_importance
from prunecast.patterns.sources import Layer
from prunecast.simulator import SimResult
from prunecast.workload.engines import Engine
from prunecast.workload.layer_launches import seconds_of, sequences_of
from prunecast.workload.pruned_maps import MapMaker

SPARSITIES = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""Fractions of removed weights of the points of a plot. Kind: choice."""


class CurvePoint(NamedTuple):
    """Point of a `Curve`: time and retained importance at one sparsity."""

    density: float
    """Share of weights that the pruned map keeps."""
    seconds: float
    retained: float
    """Sum of the importance of the kept weights over that of all weights of the layer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Points of one kernel on one layer over sparsity; a pattern with a fixed sparsity has a single point."""

    kernel: str
    pattern: str
    points: tuple[CurvePoint, ...]


def curves_of(
    layer: Layer, rows: Sequence[Prediction], engine: Engine, conv: ConvShape | None = None
) -> tuple[Curve, ...]:
    """Return the curve of dense (a single point) and the curves of all sparse kernels, for one layer.

    Parameters
    ----------
    layer : weights of the layer
    rows : predictions of the layer, dense first; the layer is pruned to the pattern of each prediction at
        each of `SPARSITIES`
    engine : settings of the estimates, which come from the closed-form model
    conv : sizes of the convolution, if the layer is a convolution, whose time is that of the faster of
        implicit GEMM and im2col
    """
    maker = MapMaker({layer.name: layer}, "layer", remember=True)
    dense = rows[0]
    plan = plan_dense(dense.m, dense.k, dense.n, dense.dtype, engine.gpu)
    point = CurvePoint(1.0, _seconds(plan, engine, conv), 1.0)
    curves = [Curve(kernel="dense", pattern="dense", points=(point,))]
    for row in rows[1:]:
        points = tuple(dict.fromkeys(_points(maker, layer, row, engine, conv)))
        if points:
            curves.append(Curve(kernel=row.kernel, pattern=row.pattern, points=points))
    return tuple(curves)


def _points(
    maker: MapMaker, layer: Layer, row: Prediction, engine: Engine, conv: ConvShape | None
) -> Iterator[CurvePoint]:
    """Yield a point for each of `SPARSITIES` that the pattern and the kernel support."""
    importance = maker.importance(layer.name, parse_pattern(row.pattern))
    for sparsity in SPARSITIES:
        with contextlib.suppress(BadInput):
            kept = maker.map_of(layer.name, row.pattern, sparsity, natural=True)
            if kept.density > 0.0:
                n = row.n if conv is not None or row.plan.experts > 1 else row.plan.n
                plan = fastest_plan(row.kernel, kept, n=n, dtype=row.dtype, gpu=engine.gpu)
                share = retained_importance(importance, kept.mask())
                yield CurvePoint(kept.density, _seconds(plan, engine, conv), share)


def _seconds(plan: KernelPlan, engine: Engine, conv: ConvShape | None) -> float:
    return seconds_of(sequences_of((plan,), conv, "best", engine), engine.estimated_seconds)


MOST_STUDIED = 5
"""Maximum number of layers that the page analyses in detail; the summary has all layers."""

Rows = tuple[Prediction, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LayerStudy:
    """Detailed analysis of one layer.

    Parameters
    ----------
    rows : predictions of the layer, dense first
    alike : number of layers of the same shape and number format, including this one
    subject : the explained prediction: the fastest sparse one, or dense if there is no sparse one
    sections : explanation of `subject`
    advice : changes that would make `subject` faster, best first; None for a convolution, or if planning the
        kept weights of `subject` again results in another plan
    tiles : tile map of the fastest kernel that runs the tiles of the pattern unchanged; None if there is none
    adaptive : tile map of the same layer pruned by ATP to the sparsity of `tiles`; None if it cannot be
        pruned so
    curves : time and retained importance over sparsity
    """

    rows: Rows
    alike: int
    subject: Prediction
    sections: tuple[Section, ...]
    advice: tuple[Advice, ...] | None
    tiles: TileMap | None
    adaptive: TileMap | None
    curves: tuple[Curve, ...]

    @property
    def occupancy(self) -> Occupancy:
        """Blocks per SM of `subject`, and the resource that limits them."""
        return self.subject.result.occupancy

    @property
    def simulated(self) -> SimResult | None:
        """Result of the simulator for `subject`; None if the closed-form model predicted it."""
        return self.subject.result if isinstance(self.subject.result, SimResult) else None


def chosen_layers(table: PredictionTable) -> list[Rows]:
    """Return the rows of the slowest dense layer of each shape, slowest first, at most `MOST_STUDIED`."""
    slowest_first = sorted(table.layers(), key=lambda rows: -rows[0].seconds)
    of_shape: dict[tuple[int, int, int, str], Rows] = {}
    for rows in slowest_first:
        of_shape.setdefault(_shape(rows), rows)
    return list(of_shape.values())[:MOST_STUDIED]


def study(rows: Rows, table: PredictionTable, layer: Layer, engine: Engine) -> LayerStudy:
    """Analyse one layer of a table of predictions.

    Parameters
    ----------
    rows : predictions of the layer, dense first
    table : all predictions
    layer : weights of the layer
    engine : engine of the prediction, which also predicts the advice
    """
    subject = fastest(rows[1:] or rows)
    # The result may be from the closed form (`Engine.quick_lists`), which has no values per SM
    subject = replace(subject, result=engine.run(subject.plan))
    conv = table.convolutions.get(layer.name)
    # Only these kernels have plans whose tiles are those of the pattern
    whole = [k for k in KERNELS.values() if k.natural_pattern == STSPMM.natural_pattern]
    tiled = [row for row in rows if row.kernel in {k.name for k in whole if k.most_tokens is None}]
    tiles = fastest(tiled).plan.tiles if tiled else None
    return LayerStudy(
        rows=rows,
        alike=sum(_shape(other) == _shape(rows) for other in table.layers()),
        subject=subject,
        sections=sections_of(subject, engine.gpu),
        advice=_advice(subject, engine, tiles) if conv is None else None,
        tiles=tiles,
        adaptive=None if tiles is None else _adaptive(tiles, layer),
        curves=curves_of(layer, rows, engine, conv),
    )


def _shape(rows: Sequence[Prediction]) -> tuple[int, int, int, str]:
    return rows[0].m, rows[0].k, rows[0].n, rows[0].dtype


def _advice(subject: Prediction, engine: Engine, tiles: TileMap | None) -> tuple[Advice, ...] | None:
    plan = subject.plan
    kept = None if KERNELS[subject.kernel].is_baseline else plan.inner or plan.tiles
    if kept is not None and not _is_planned_again(subject, kept, engine):
        return None
    case = LayerCase(
        kernel=subject.kernel, m=plan.m, k=plan.k, n=plan.n, dtype=plan.dtype, kept=kept, engine=engine
    )
    return advise(case, subject.seconds, None if KERNELS[subject.kernel].takes is TileMap else tiles)


def _is_planned_again(row: Prediction, kept: PrunedMap, engine: Engine) -> bool:
    """Return True if the kept weights lead to the same plan again, so that advice can start from it."""
    plan = row.plan
    with contextlib.suppress(BadInput):
        again = fastest_plan(row.kernel, kept, n=plan.n, dtype=plan.dtype, gpu=engine.gpu)
        return again.fingerprint() == plan.fingerprint()
    return False


def _adaptive(tiles: TileMap, layer: Layer) -> TileMap | None:
    height = parse_pattern(tiles.pattern).parameters.get("height")
    if height is None:
        return None
    with contextlib.suppress(BadInput):
        maker = MapMaker({layer.name: layer}, "layer")
        kept = maker.map_of(layer.name, f"atp:{height}", 1.0 - tiles.density, natural=True)
        return kept if isinstance(kept, TileMap) else None
    return None
