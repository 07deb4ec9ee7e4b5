"""Time and retained importance of one layer over sparsity, by the closed-form model."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from prunecast.choice import PrunedMap, fastest_plan
from prunecast.codesign.engines import Engine
from prunecast.codesign.prediction import Prediction
from prunecast.codesign.pruned_maps import MapMaker
from prunecast.codesign.ways import conv_ways, seconds_of
from prunecast.errors import BadInput
from prunecast.kernels import ConvShape, KernelPlan, plan_dense
from prunecast.patterns import NestedMap, parse_pattern
from prunecast.patterns.sources import Layer

SPARSITIES = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)


class CurvePoint(NamedTuple):
    """One sparsity of a curve."""

    density: float
    """As achieved."""
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
        kept = maker.map_of(layer.name, row.pattern, wanted, natural=True).kept
        if kept.density == 0.0:
            return []
        plan = fastest_plan(row.kernel, kept, n=row.n, dtype=row.dtype, gpu=engine.gpu)
        share = _retained(maker, layer, row.pattern, kept)
        return [CurvePoint(kept.density, _seconds(plan, engine, conv), share)]
    return []


def _seconds(plan: KernelPlan, engine: Engine, conv: ConvShape | None) -> float:
    return seconds_of(conv_ways((plan,), conv, "best", engine), engine)


def _retained(maker: MapMaker, layer: Layer, pattern: str, kept: PrunedMap) -> float:
    importance = maker.importance(layer.name, parse_pattern(pattern))
    mask = (kept.inner if isinstance(kept, NestedMap) else kept).mask()
    whole = float(importance.sum(dtype=np.float64))
    return float(importance.sum(dtype=np.float64, where=mask)) / whole if whole else 1.0
