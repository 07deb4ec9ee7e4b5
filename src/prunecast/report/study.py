"""`LayerStudy`: all that the report says about one layer, its curves over sparsity among it."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from prunecast.choice import PrunedMap, fastest_plan
from prunecast.codesign.advice import Advice, LayerCase, advise
from prunecast.codesign.explain_sections import Section, sections_of
from prunecast.codesign.prediction import Prediction
from prunecast.codesign.table import PredictionTable, fastest
from prunecast.errors import BadInput
from prunecast.hardware import Occupancy
from prunecast.kernels import KERNELS, ConvShape, Kernel, KernelPlan, plan_dense
from prunecast.kernels.tile.kernel import STSPMM
from prunecast.patterns import TileMap, parse_pattern, retained_importance
from prunecast.patterns.sources import Layer
from prunecast.simulator import SimResult
from prunecast.workload.engines import Engine
from prunecast.workload.layer_launches import seconds_of, sequences_of
from prunecast.workload.pruned_maps import MapMaker

SPARSITIES = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)


class CurvePoint(NamedTuple):
    """One sparsity of a curve."""

    density: float
    """Density that the pattern achieved."""
    seconds: float
    retained: float
    """Importance (magnitude) of what is kept over that of the whole layer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One kernel on one layer; a single point where the pattern has a sparsity of its own."""

    kernel: str
    pattern: str
    points: tuple[CurvePoint, ...]


def curves_of(
    layer: Layer, rows: Sequence[Prediction], engine: Engine, conv: ConvShape | None = None
) -> tuple[Curve, ...]:
    """Curves of all kernels in the rows of one layer, the dense one as a single point first.

    Parameters
    ----------
    layer : its weights
    rows : its predictions; their patterns are pruned to again
    engine : of the closed-form model
    conv : the convolution that the layer is; its product then runs the faster of both ways
    """
    maker = MapMaker({layer.name: layer}, "layer", remember=True)
    dense = rows[0]
    plan = plan_dense(dense.m, dense.k, dense.n, dense.dtype, engine.gpu)
    point = CurvePoint(1.0, _seconds(plan, engine, conv), 1.0)
    curves = [Curve(kernel="dense", pattern="dense", points=(point,))]
    for row in rows[1:]:
        points = [
            point for wanted in SPARSITIES for point in _points(maker, layer, row, wanted, engine, conv)
        ]
        if points:
            distinct = tuple(dict.fromkeys(points))
            curves.append(Curve(kernel=row.kernel, pattern=row.pattern, points=distinct))
    return tuple(curves)


def _points(
    maker: MapMaker, layer: Layer, row: Prediction, wanted: float, engine: Engine, conv: ConvShape | None
) -> list[CurvePoint]:
    """The point at one sparsity; none where the pattern or the kernel cannot have it."""
    with contextlib.suppress(BadInput):
        kept = maker.map_of(layer.name, row.pattern, wanted, natural=True)
        if kept.density == 0.0:
            return []
        plan = fastest_plan(row.kernel, kept, n=row.n, dtype=row.dtype, gpu=engine.gpu)
        importance = maker.importance(layer.name, parse_pattern(row.pattern))
        share = retained_importance(importance, kept.mask())
        return [CurvePoint(kept.density, _seconds(plan, engine, conv), share)]
    return []


def _seconds(plan: KernelPlan, engine: Engine, conv: ConvShape | None) -> float:
    return seconds_of(sequences_of((plan,), conv, "best", engine), engine.estimated_seconds)


MOST_STUDIED = 5
"""Layers that get all sections; the summary has all layers."""

Rows = tuple[Prediction, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LayerStudy:
    """One layer, taken apart.

    Parameters
    ----------
    rows : its predictions, dense first
    alike : number of layers of the same shape and format, this one included
    subject : the row that is explained: the fastest sparse one, or dense where there is no other
    sections : the explanation of the subject
    advice : what would help it, best first; None where its plan cannot be made again from its columns,
        or where it is a convolution
    tiles : what the fastest kernel of tiles keeps, or None
    adaptive : the same layer pruned by ATP to the same sparsity, or None
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
        """Blocks on an SM, and what limits them."""
        return self.subject.result.occupancy

    @property
    def simulated(self) -> SimResult | None:
        """The simulator's result, where it predicted."""
        return self.subject.result if isinstance(self.subject.result, SimResult) else None


def chosen_layers(table: PredictionTable) -> list[Rows]:
    """The slowest layer of each shape, slowest first."""
    slowest_first = sorted(table.layers(), key=lambda rows: -rows[0].seconds)
    of_shape: dict[tuple[int, int, int, str], Rows] = {}
    for rows in slowest_first:
        of_shape.setdefault(_shape(rows), rows)
    return list(of_shape.values())[:MOST_STUDIED]


def study(rows: Rows, table: PredictionTable, layer: Layer, engine: Engine) -> LayerStudy:
    """Look at one layer of a table.

    Parameters
    ----------
    rows : the layer's predictions
    layer : its weights
    engine : the one that predicted, for advice
    """
    subject = fastest(rows[1:] or rows)
    subject = replace(subject, result=engine.run(subject.plan))  # its SMs too, where lists were not simulated
    conv = table.convolutions.get(layer.name)
    tiled = [row for row in rows if _runs_whole_tiles(KERNELS[row.kernel])]
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


def _runs_whole_tiles(kernel: Kernel) -> bool:
    """Whether the tiles of its plans are those of the pattern, so that their picture is the pattern's."""
    return kernel.natural_pattern == STSPMM.natural_pattern and kernel.most_tokens is None


def _shape(rows: Sequence[Prediction]) -> tuple[int, int, int, str]:
    return rows[0].m, rows[0].k, rows[0].n, rows[0].dtype


def _advice(subject: Prediction, engine: Engine, tiles: TileMap | None) -> tuple[Advice, ...] | None:
    plan = subject.plan
    kept = (plan.inner or plan.tiles) if KERNELS[subject.kernel].prunes else None
    if kept is not None and not _is_planned_again(subject, kept, engine):
        return None
    case = LayerCase(
        kernel=subject.kernel, m=plan.m, k=plan.k, n=plan.n, dtype=plan.dtype, kept=kept, engine=engine
    )
    return advise(case, subject.seconds, None if KERNELS[subject.kernel].takes is TileMap else tiles)


def _is_planned_again(row: Prediction, kept: PrunedMap, engine: Engine) -> bool:
    """Whether what the plan keeps leads to the same plan, so that a change of it is the only difference."""
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
