"""Seconds without reports are the seconds of the engines."""

import numpy as np
import pytest

from prunecast.choice import fastest_plan
from prunecast.codesign.batch import estimate_many, predict_seconds
from prunecast.errors import BadInput
from prunecast.models import estimate
from prunecast.patterns import parse_pattern
from prunecast.simulator import simulate
from tests.toy_gpu import toy_gpu


def _map(sparsity, text="tile-wise:32"):
    pattern = parse_pattern(text)
    importance = np.abs(np.random.default_rng(1).standard_normal((96, 576)))
    return pattern.map(pattern.prune({"w": importance}, sparsity)["w"])


@pytest.mark.parametrize(("engine", "run"), [("model", estimate), ("simulator", simulate)])
def test_seconds_are_those_of_the_engine(engine, run):
    gpu = toy_gpu()
    plan = fastest_plan("tile-wise", _map(0.5), n=64, dtype="fp16", gpu=gpu)
    wanted = run(plan, gpu, state="burst", launch="graph").seconds
    assert predict_seconds(plan, gpu, engine=engine) == wanted


def test_many_maps_come_in_order():
    gpu, maps = toy_gpu(), [_map(0.25), _map(0.9), _map(0.25)]
    found = estimate_many(iter(maps), gpu, kernel="tile-wise", n=64)
    plans = [fastest_plan("tile-wise", kept, n=64, dtype="fp16", gpu=gpu) for kept in maps]
    assert found.tolist() == [predict_seconds(plan, gpu) for plan in plans]
    assert found[0] == found[2] > found[1]


def test_no_maps_give_no_seconds():
    assert estimate_many([], toy_gpu(), kernel="tile-wise", n=64).shape == (0,)


def test_a_map_that_cannot_run_is_named_by_place():
    with pytest.raises(BadInput, match="map 0: two-part"):
        estimate_many([_map(0.5)], toy_gpu(), kernel="two-part", n=64)


def test_an_unknown_engine_is_bad_input():
    with pytest.raises(BadInput, match="engine must be one of"):
        estimate_many([_map(0.5)], toy_gpu(), kernel="tile-wise", n=64, engine="oracle")
