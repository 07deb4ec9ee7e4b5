"""Curves of times: the engine's where it was asked, and near it in between."""

import numpy as np
import pytest

from prunecast.choice import SEARCHED, fastest_plan
from prunecast.codesign.search.option_times import EXACT_DENSITIES, OptionTimes, equal_tile_map
from prunecast.hardware import load_gpu
from prunecast.kernels import KernelPlan
from prunecast.patterns import TileMap, TileSums
from prunecast.workload import Engine

GPU = load_gpu("h200-sxm")
SIZE = (768, 768, 4096)
COUNTS = range(16, 768, 16)


def times_of(engine: str) -> OptionTimes:
    importance = np.random.default_rng(5).random(SIZE[:2]).astype(np.float32)
    typical = {SIZE[:2]: lambda: importance}
    return OptionTimes(engine=Engine(name=engine, gpu=GPU), dtype="fp16", typical=typical)


def planned(tiles: TileMap, n: int) -> KernelPlan:
    return fastest_plan("stspmm", tiles, n, "fp16", GPU, most=SEARCHED)


def test_a_curve_is_the_engines_at_some_counts_and_near_it_at_the_others() -> None:
    """The simulator's times, of which the closed-form model fills in all but seven."""
    times = times_of("simulator")
    curve = times.tile_curve(*SIZE, counts=COUNTS, height=128)
    m, k, n = SIZE
    columns = np.argsort(-TileSums.of(times.typical[m, k](), 128).sums, axis=1, kind="stable")
    maps = [equal_tile_map(columns, m, kept=kept, height=128) for kept in COUNTS]
    truth = np.array([times.engine.run(planned(tiles, n)).seconds for tiles in maps])
    asked = [COUNTS.index(round(density * SIZE[1])) for density in EXACT_DENSITIES]
    assert curve[asked] == pytest.approx(truth[asked], rel=1e-12)
    kept = np.array(COUNTS) >= 48
    assert curve[kept] == pytest.approx(truth[kept], rel=0.09)  # the form of the plan changes between two
    model = times_of("model").tile_curve(*SIZE, counts=COUNTS, height=128)
    off = np.abs(np.log(curve / truth))[kept].mean()
    assert off < 0.0138
    assert off < 0.5 * np.abs(np.log(model / truth))[kept].mean()


def test_a_curve_is_computed_once() -> None:
    times = times_of("model")
    one = times.tile_curve(*SIZE, counts=COUNTS, height=64)
    assert times.tile_curve(*SIZE, counts=COUNTS, height=64) is one
    assert times.tile_curve(*SIZE, counts=COUNTS, height=128) is not one
