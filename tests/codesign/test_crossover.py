import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunecast.codesign import predict
from prunecast.codesign.crossover import HIGHEST, STEPS, Crossover, crossing
from prunecast.workload.layer_launches import LayerLaunches

RESOLUTION = 1 / STEPS


class Counted:
    """A time that falls with sparsity, and how often it was asked for."""

    def __init__(self, time):
        self.time, self.calls = time, 0

    def __call__(self, sparsity):
        self.calls += 1
        return self.time(sparsity)


LIKELY = st.none() | st.integers(0, 99).map(lambda percent: percent / 100)


@given(likely=LIKELY)
def test_a_line_is_found_in_a_few_steps(likely):
    # 3 - 4 s reaches 1 at s = 0.5: the early look, an end and log2(90) halvings; at most four looks near a
    # likely one that is wrong come before.
    line = Counted(lambda s: 3 - 4 * s)
    assert crossing(line, 1.0, likely=likely) == 0.5
    assert line.calls <= (9 if likely is None else 13)


def test_a_crossing_where_it_is_likely_takes_two_points():
    line = Counted(lambda s: 3 - 4 * s)
    assert crossing(line, 1.0, likely=0.5) == 0.5
    assert line.calls == 2


@given(where=st.floats(0.001, 0.98), power=st.floats(0.2, 5), floor=st.floats(0, 0.9), likely=LIKELY)
def test_the_end_of_the_range_is_fast_enough_and_its_beginning_is_not(where, power, floor, likely):
    def seconds(sparsity):
        return floor + (1 - floor) * ((1 - sparsity) / (1 - where)) ** power

    found = crossing(seconds, 1.0, likely=likely)
    assert seconds(found) <= 1.0
    assert found - RESOLUTION - 1e-9 <= where <= found + 1e-9


@given(step=st.integers(1, 99), likely=LIKELY)
def test_a_step_is_found_too(step, likely):
    calls = Counted(lambda s: 2.0 if s < step / 100 else 0.5)
    assert crossing(calls, 1.0, likely=likely) == step / 100
    assert calls.calls <= 13


def test_no_crossing():
    assert crossing(lambda s: 2.0 - s, 1.0) is None  # 1.01 at 0.99
    assert crossing(lambda s: 1.0, 1.0) == 0.0


def test_only_sparsities_below_the_highest_are_looked_at():
    def seconds(sparsity):
        assert 0.0 <= sparsity <= HIGHEST
        return 2.0 - 1.5 * sparsity

    assert crossing(seconds, 1.0) == pytest.approx(2 / 3, abs=RESOLUTION)


@given(where=st.integers(1, 99), left=st.integers(2, 100), likely=LIKELY)
def test_a_pattern_that_removes_all_ends_the_range(where, left, likely):
    """A matrix of few tiles has none left at high sparsities, and crosses before."""

    def seconds(sparsity):
        step = round(sparsity * STEPS)
        return math.inf if step >= left else 2.0 if step < where else 0.5

    found = crossing(seconds, 1.0, likely=likely)
    assert found == (where / 100 if where < left else None)


def test_density_is_the_rest():
    point = Crossover(layer="a", kernel="csr", pattern="unstructured", sparsity=0.75)
    assert point.row()["density"] == 0.25
    assert Crossover(layer="a", kernel="csr", pattern="unstructured", sparsity=None).density is None


@pytest.mark.parametrize(
    ("pattern", "kernel", "has_crossover"),
    [("2:4", "2:4", False), ("atp:64:guided", "stspmm", False), ("tile-wise:64", "stspmm", True)],
)
def test_fixed_and_guided_patterns_have_no_crossover(pattern, kernel, has_crossover):
    """2:4 has one sparsity; a guided pattern would need a search for each."""
    weights = {"w": np.random.default_rng(0).standard_normal((256, 256)).astype(np.float16)}
    table = predict(
        weights,
        gpu="h200-sxm",
        tokens=256,
        engine="model",
        pattern=pattern,
        kernels=[kernel],
        crossovers=True,
    )
    assert len(table.crossovers) == has_crossover


def test_maps_of_equal_layers_are_timed_once(monkeypatch):
    """The search of the second layer begins where the first one crosses, with maps that are known there."""
    planned, real = Counter(), LayerLaunches.launches

    def launches(self, layer, kernel, kept):
        planned[layer.name] += 1
        return real(self, layer, kernel, kept)

    monkeypatch.setattr(LayerLaunches, "launches", launches)
    weights = np.random.default_rng(0).standard_normal((256, 256)).astype(np.float16)
    asked = {"gpu": "h200-sxm", "tokens": 256, "engine": "model", "kernels": ["stspmm"]}
    predict({"a": weights, "b": weights}, pattern="tile-wise:64", crossovers=False, **asked)
    rows = planned.copy()
    predict({"a": weights, "b": weights}, pattern="tile-wise:64", crossovers=True, **asked)
    searched = planned - rows - rows
    assert searched["a"] > 1
    assert searched["b"] == 0


def test_the_search_stays_inside_what_the_pattern_can_have():
    def seconds(sparsity):
        assert 0.5 <= sparsity <= 0.94
        return 2.0 - 1.5 * sparsity

    assert crossing(seconds, 1.0, lowest=0.5, highest=0.94) == pytest.approx(2 / 3, abs=RESOLUTION)
    assert crossing(seconds, 1.3, lowest=0.5, highest=0.94) == 0.5
    assert crossing(seconds, 0.5, lowest=0.5, highest=0.94) is None
