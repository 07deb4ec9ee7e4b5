import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunecast.codesign.crossover import HIGHEST, RESOLUTION, Crossover, crossing


class Counted:
    """A time that falls with sparsity, and how often it was asked for."""

    def __init__(self, time):
        self.time, self.calls = time, 0

    def __call__(self, sparsity):
        self.calls += 1
        return self.time(sparsity)


def test_a_line_is_found_in_a_few_steps():
    # 3 - 4 s reaches 1 at s = 0.5.
    line = Counted(lambda s: 3 - 4 * s)
    found = crossing(line, 1.0)
    assert 0.5 <= found <= 0.5 + RESOLUTION
    assert line.calls <= 5


@given(where=st.floats(0.001, 0.98), power=st.floats(0.2, 5), floor=st.floats(0, 0.9))
def test_the_end_of_the_range_is_fast_enough_and_its_beginning_is_not(where, power, floor):
    def seconds(sparsity):
        return floor + (1 - floor) * ((1 - sparsity) / (1 - where)) ** power

    found = crossing(seconds, 1.0)
    assert seconds(found) <= 1.0
    assert found - RESOLUTION - 1e-9 <= where <= found + 1e-9


def test_a_step_is_found_too():
    calls = Counted(lambda s: 2.0 if s < 0.7 else 0.5)
    assert 0.7 <= crossing(calls, 1.0) <= 0.7 + RESOLUTION
    assert calls.calls < 30


def test_no_crossing():
    assert crossing(lambda s: 2.0 - s, 1.0) is None  # 1.01 at 0.99
    assert crossing(lambda s: 1.0, 1.0) == 0.0


def test_only_sparsities_below_the_highest_are_looked_at():
    def seconds(sparsity):
        assert 0.0 <= sparsity <= HIGHEST
        return 2.0 - 1.5 * sparsity

    assert crossing(seconds, 1.0) == pytest.approx(2 / 3, abs=RESOLUTION)


def test_density_is_the_rest():
    point = Crossover(layer="a", kernel="csr", pattern="unstructured", sparsity=0.75)
    assert point.row()["density"] == 0.25
    assert Crossover(layer="a", kernel="csr", pattern="unstructured", sparsity=None).density is None


def test_the_search_stays_inside_what_the_pattern_can_have():
    def seconds(sparsity):
        assert 0.5 <= sparsity <= 0.94
        return 2.0 - 1.5 * sparsity

    assert crossing(seconds, 1.0, lowest=0.5, highest=0.94) == pytest.approx(2 / 3, abs=RESOLUTION)
    assert crossing(seconds, 1.3, lowest=0.5, highest=0.94) == 0.5
    assert crossing(seconds, 0.5, lowest=0.5, highest=0.94) is None
