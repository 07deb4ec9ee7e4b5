"""Curves of times: the engine's where it was asked, and near it in between."""

import numpy as np
import pytest

from prunecast.codesign.search.option_times import EXACT_DENSITIES, OptionTimes
from prunecast.hardware import load_gpu
from prunecast.workload import Engine

GPU = load_gpu("h200-sxm")
SIZE = (768, 768, 4096)
COUNTS = range(16, 768, 16)


def times_of(engine: str, quick: Engine | None = None) -> OptionTimes:
    importance = np.random.default_rng(5).random(SIZE[:2]).astype(np.float32)
    typical = {SIZE[:2]: lambda: importance}
    return OptionTimes(engine=Engine(name=engine, gpu=GPU), dtype="fp16", typical=typical, quick=quick)


def test_a_curve_is_the_engines_at_some_counts_and_near_it_at_the_others() -> None:
    """The simulator's times, of which the closed-form model fills in all but seven."""
    both = times_of("simulator", Engine(name="model", gpu=GPU))
    curve = both.tile_curve(*SIZE, counts=COUNTS, height=128)
    truth = times_of("simulator").tile_curve(*SIZE, counts=COUNTS, height=128)
    asked = [COUNTS.index(round(density * SIZE[1])) for density in EXACT_DENSITIES]
    assert curve[asked] == pytest.approx(truth[asked], rel=1e-12)
    kept = np.array(COUNTS) >= 48
    assert curve[kept] == pytest.approx(truth[kept], rel=0.09)  # the form of the plan changes between two
    model = times_of("model").tile_curve(*SIZE, counts=COUNTS, height=128)
    off = np.abs(np.log(curve / truth))[kept].mean()
    assert off < 0.0138
    assert off < 0.5 * np.abs(np.log(model / truth))[kept].mean()


def test_a_curve_is_computed_once() -> None:
    times = times_of("model", Engine(name="model", gpu=GPU))
    one = times.tile_curve(*SIZE, counts=COUNTS, height=64)
    assert times.tile_curve(*SIZE, counts=COUNTS, height=64) is one
    assert times.tile_curve(*SIZE, counts=COUNTS, height=128) is not one
