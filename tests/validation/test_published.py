"""Bounds that are drawn from published times, against slow twins; no table is needed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.published.products import bound, bounds, even_rows, held_by_other_shapes
from benchmarks.published.tables import TABLES

RATIOS = st.lists(st.floats(0.5, 2.0), min_size=2, max_size=60).map(np.array)


@given(RATIOS, st.integers(0, 59))
def test_a_bound_lies_between_the_rows_beside_its_rank(ratios, place):
    ordered, rank = sorted(ratios), 0.95 * (len(ratios) + 1)
    if rank > len(ratios):
        assert bound(ratios) > ordered[-1]
    else:
        below, above = ordered[int(rank) - 1], ordered[min(int(rank), len(ratios) - 1)]
        assert below <= bound(ratios) * (1 + 1e-12)
        assert bound(ratios) <= above * (1 + 1e-12)
    more = ratios.copy()
    more[place % len(ratios)] *= 1.5
    assert bound(more) >= bound(ratios) * (1 - 1e-12)


def test_bounds_hold_nine_of_ten_new_rows():
    rng = np.random.default_rng(0)
    held = []
    for _ in range(300):
        ratios = np.exp(0.1 * rng.standard_normal(40))
        low, high = bounds(ratios[1:])
        held.append(low <= ratios[0] <= high)
    assert 0.85 < np.mean(held) < 0.95


@given(st.lists(st.tuples(st.floats(0.5, 2.0), st.integers(0, 3)), min_size=3, max_size=30))
def test_rows_are_held_by_the_bounds_of_other_shapes(rows):
    ratios, shapes = np.array([row[0] for row in rows]), [(row[1], 7) for row in rows]
    if len(set(shapes)) < 2:
        return
    count = 0
    for ratio, shape in zip(ratios, shapes, strict=True):
        others = np.array([r for r, s in zip(ratios, shapes, strict=True) if s != shape])
        low, high = bounds(others)
        count += low <= ratio <= high
    assert held_by_other_shapes(ratios, shapes) == pytest.approx(count / len(rows))


def test_rows_of_one_token_keep_as_many_elements_as_their_density_says():
    kept = even_rows(3, 10, 4)
    assert kept.row_start.tolist() == [0, 4, 8, 12]
    assert kept.column_index[:4].tolist() == [0, 2, 5, 7]
    assert [table.bounds for table in TABLES if "one token" in table.name] == [False, False]
