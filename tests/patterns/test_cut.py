import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunecast.patterns import cut
from prunecast.patterns.cut import elements_to_prune, keep_highest, row_sums
from tests.naive import prune as naive


@pytest.mark.parametrize(
    ("sparsity", "total", "wanted"),
    [(0.0, 10, 0), (0.5, 7, 4), (0.55, 100, 55), (0.07, 100, 7), (0.9, 11_272_192_000, 10_144_972_800)],
)
def test_targets_are_those_of_the_decimal(sparsity, total, wanted):
    assert elements_to_prune(sparsity, total) == wanted


@given(percent=st.integers(0, 9999), total=st.integers(1, 10**9))
def test_target_is_the_exact_ceiling(percent, total):
    sparsity = percent / 10_000
    assert elements_to_prune(sparsity, total) == naive.target(sparsity, total)


def test_root_splits_hit_whole_numbers():
    # 1 - sqrt(1 - 0.51) is 0.3 and a little more in float64
    assert elements_to_prune(1 - (1 - 0.51) ** 0.5, 10) == 3


pieces = st.lists(st.tuples(st.integers(0, 4), st.sampled_from([1, 2, 5])), min_size=1, max_size=30)


@given(pieces=pieces, share=st.floats(0, 1))
def test_cut_is_that_of_a_full_sort(pieces, share):
    scores = np.array([float(score) for score, _ in pieces])
    elements = np.array([count for _, count in pieces])
    target = int(share * elements.sum())
    kept = keep_highest({"a": scores}, {"a": elements}, target)["a"]
    assert set(np.flatnonzero(~kept)) == naive.cut(pieces, target)


@given(scores=st.lists(st.integers(0, 3).map(float), min_size=1, max_size=30), share=st.floats(0, 1))
def test_cut_of_equal_pieces_is_that_of_a_full_sort(scores, share):
    target = int(share * 3 * len(scores))
    kept = keep_highest({"a": np.array(scores)}, {"a": np.array([3])}, target)["a"]
    assert set(np.flatnonzero(~kept)) == naive.cut([(score, 3) for score in scores], target)


def test_of_equal_scores_the_later_layer_and_place_goes_first():
    scores = {"first": np.ones((2, 2)), "second": np.ones((1, 3))}
    elements = {name: np.array([[1]]) for name in scores}
    kept = keep_highest(scores, elements, 4)
    np.testing.assert_array_equal(kept["second"], [[False, False, False]])
    np.testing.assert_array_equal(kept["first"], [[True, True], [True, False]])


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("rows", [(0, 1, 3), (0, 4)])
def test_sums_of_wide_pieces_are_those_of_their_columns(monkeypatch, power, rows):
    """Bit for bit: columns are summed independently of how many are summed at a time."""
    scores = np.random.default_rng(0).standard_normal((7, 1000)).astype(np.float16)
    whole = row_sums(scores, np.array(rows), power=power)
    monkeypatch.setattr(cut, "SUMMED_AT_A_TIME", 100)
    for columns in (slice(0, 1000), slice(0, 129), slice(3, 66), slice(0, 0)):
        divided = row_sums(scores[:, columns], np.array(rows), power=power)
        np.testing.assert_array_equal(divided, whole[:, columns])


def test_sums_of_squares_need_little_memory():
    """Less than the scores, of which the squares of one tile would need twice the memory."""
    scores = np.ones((256, 2**17), np.float16)
    tracemalloc.start()
    row_sums(scores, np.array([0, 128]), power=2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < scores.nbytes


@pytest.mark.parametrize("values", ["spread", "few", "ramp", "zeros"])
@pytest.mark.parametrize("share", [0.001, 0.3, 0.75, 0.999])
def test_a_selection_among_many_looks_where_a_sample_says_and_finds_the_same(values, share):
    random = np.random.default_rng(0)
    size = cut.SAMPLE * cut.SAMPLED + 7
    scores = {
        "spread": random.random(size, dtype=np.float32),
        "few": random.integers(0, 3, size).astype(np.float32),
        "ramp": np.arange(size, dtype=np.float32),
        "zeros": np.where(random.random(size) < 0.9, 0, 1).astype(np.float32),
    }[values]
    count = int(share * size)
    kept = cut.keep_highest({"": scores}, {"": np.ones(1, np.int64)}, count)[""]
    assert np.count_nonzero(kept) == size - count
    assert scores[kept].min() >= scores[~kept].max()


def test_a_sample_that_misleads_costs_time_only(monkeypatch):
    monkeypatch.setattr(cut, "SAMPLE", 4)
    monkeypatch.setattr(cut, "SAMPLED", 1)
    monkeypatch.setattr(cut, "MARGIN", 0)
    scores = np.array([5.0, 1.0, 4.0, 9.0, 2.0, 6.0, 8.0, 3.0, 7.0])
    for count in range(1, 10):
        kept = cut.keep_highest({"": scores}, {"": np.ones(1, np.int64)}, count)[""]
        assert sorted(scores[~kept]) == list(range(1, count + 1))
