import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from prunecast.errors import BadInput
from prunecast.patterns.tile_cost import prune_to_cost, steps_within
from tests.naive import prune as naive
from tests.patterns.matrices import importances

gains = hnp.arrays(
    np.float64, st.tuples(st.integers(1, 4), st.integers(1, 4)), elements=st.integers(0, 9)
).map(lambda array: -np.sort(-array, axis=1))


def best_steps(gains, cost, budget):
    """Retained importance of the best of all choices."""
    return naive.best_counts(
        gains.tolist(),
        [1] * gains.shape[0],
        range(gains.shape[1] + 1),
        lambda steps: cost(np.array(steps)) <= budget,
    )


def retained(gains, steps):
    return naive.retained_by_counts(gains.tolist(), [1] * gains.shape[0], steps.tolist())


@given(gains=gains, budget=st.integers(0, 16))
def test_the_best_of_all_where_every_step_costs_the_same(gains, budget):
    steps = steps_within(gains, np.sum, budget)
    assert retained(gains, steps) == best_steps(gains, np.sum, budget)


@given(gains=gains, budget=st.integers(0, 16))
def test_the_best_of_all_where_the_heaviest_tile_decides(gains, budget):
    steps = steps_within(gains, np.max, budget)
    assert retained(gains, steps) == best_steps(gains, np.max, budget)


def on_two_processors(steps):
    """Heaviest load after giving each tile, longest first, to the one with less to do."""
    loads = [0, 0]
    for work in sorted(steps, reverse=True):
        loads[loads.index(min(loads))] += work
    return max(loads)


@settings(deadline=None)
@given(gains=gains, budget=st.integers(0, 8), weights=st.lists(st.integers(1, 3), min_size=4, max_size=4))
def test_any_cost_is_met_and_no_single_step_is_left_to_add_or_move(gains, budget, weights):
    def weighted(steps):
        return float(np.dot(steps, weights[: steps.size]))

    for cost in (on_two_processors, weighted):
        steps = steps_within(gains, cost, budget)
        assert cost(steps) <= budget
        reached = retained(gains, steps)
        assert reached <= best_steps(gains, cost, budget)
        for to in range(steps.size):
            for source in range(-1, steps.size):
                other = steps.copy()
                other[to] += 1
                if source >= 0:
                    other[source] -= 1
                if other.min() >= 0 and other.max() <= gains.shape[1] and cost(other) <= budget:
                    assert retained(gains, other) <= reached


def test_on_random_gains_hardly_below_the_best_of_all():
    reached = []
    for seed in range(30):
        gains = -np.sort(-np.random.default_rng(seed).exponential(size=(4, 5)), axis=1)
        steps = steps_within(gains, on_two_processors, 5)
        reached.append(retained(gains, steps) / best_steps(gains, on_two_processors, 5))
    assert np.mean(reached) > 0.98
    assert max(reached) <= 1 + 1e-12


@given(matrix=importances(min_rows=2, most=8), quantum=st.integers(1, 3), budget=st.integers(0, 20))
def test_the_mask_keeps_counts_on_the_quantum_within_the_budget(matrix, quantum, budget):
    mask = prune_to_cost(matrix, np.sum, budget, height=2, quantum=quantum)
    counts = np.count_nonzero(mask[::2], axis=1)
    assert counts.sum() <= budget
    assert all(count % quantum == 0 or count == mask.shape[1] for count in counts)
    np.testing.assert_array_equal(mask[: 2 * (len(mask) // 2) : 2], mask[1::2])


def test_a_tile_keeps_its_most_important_columns():
    importance = np.array([[3.0, 1.0, 2.0, 0.0], [0.0, 1.0, 5.0, 5.0]])
    mask = prune_to_cost(importance, np.sum, 4, height=1, quantum=1)
    np.testing.assert_array_equal(mask, [[True, False, True, False], [False, False, True, True]])


def test_free_steps_are_taken():
    """Two tiles in parallel: the lighter one may be as heavy as the other, though its columns matter less."""
    importance = np.array([[9.0] * 4, [1.0] * 4])
    assert prune_to_cost(importance, np.max, 2, height=1, quantum=1).sum(axis=1).tolist() == [2, 2]


def test_the_cost_is_called_no_more_often_than_asked():
    calls = []

    def cost(counts):
        calls.append(counts)
        return float(counts.max())

    importance = np.ones((64, 64))
    prune_to_cost(importance, cost, 32.0, height=1, quantum=1, most_costs=0)
    unlimited = len(calls)
    calls.clear()
    prune_to_cost(importance, cost, 32.0, height=1, quantum=1, most_costs=10)
    assert len(calls) <= unlimited + 10
    assert all(counts.dtype == np.int32 and counts.shape == (64,) for counts in calls)


def test_what_cannot_be_pruned_to_a_cost():
    with pytest.raises(BadInput, match="budget: wanted at least the 5 that empty tiles cost, got 4"):
        prune_to_cost(np.ones((4, 4)), lambda counts: 5.0, 4.0, height=2)
    with pytest.raises(BadInput, match="budget: wanted at least the nan"):
        prune_to_cost(np.ones((4, 4)), lambda counts: float("nan"), 4.0, height=2)
    with pytest.raises(BadInput, match="tiles: wanted height and quantum from 1, got 0 and 16"):
        prune_to_cost(np.ones((4, 4)), np.sum, 4.0, height=0)
    with pytest.raises(BadInput, match="importance of 'importance': wanted finite values"):
        prune_to_cost(np.full((4, 4), np.nan), np.sum, 4.0, height=2)
