"""`LayerStudy`: all that the report says about one layer, and which layers are worth it."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from prunecast.choice import PrunedMap, fastest_plan
from prunecast.codesign.advice import Advice, Case, advise
from prunecast.codesign.engines import Engine
from prunecast.codesign.explain_sections import Section, sections_of
from prunecast.codesign.prediction import Prediction
from prunecast.codesign.pruned_maps import MapMaker
from prunecast.codesign.table import PredictionTable, fastest
from prunecast.errors import BadInput
from prunecast.hardware import Occupancy
from prunecast.kernels import KERNELS, Kernel
from prunecast.kernels.tile.kernel import STSPMM
from prunecast.patterns import TileMap, parse_pattern
from prunecast.patterns.sources import Layer
from prunecast.report.curves import Curve, curves_of
from prunecast.simulator import SimResult

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
        curves=curves_of(layer, rows, replace(engine, name="model"), conv),
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
    case = Case(
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
        kept = maker.map_of(layer.name, f"atp:{height}", 1.0 - tiles.density, natural=True).kept
        return kept if isinstance(kept, TileMap) else None
    return None
