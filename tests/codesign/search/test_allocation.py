"""Allocation against an exact solver and against trying everything."""

import itertools

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from ortools.sat.python import cp_model

from prunecast.codesign.search import allocation
from prunecast.codesign.search.allocation import (
    GRID,
    OptionValues,
    _hull,
    _on_grid,
    allocate,
    floor_seconds,
    pareto_optimal,
    totals,
)
from prunecast.codesign.search.loops import fill_grid
from prunecast.errors import BadInput

SCALE = 10**6


def random_menus(rng: np.random.Generator, layers: int, options: int) -> list[OptionValues]:
    """Times rise with what is kept, with diminishing returns and noise, as the options of real layers do."""
    menus = []
    for _ in range(layers):
        kept = np.sort(rng.uniform(0.05, 1.0, options))
        size = float(rng.choice([1.0, 2.0, 4.0]))
        seconds = size * (0.1 + kept * rng.uniform(0.8, 1.2, options))
        importance = size * kept ** rng.uniform(0.2, 0.8) * rng.uniform(0.97, 1.0, options)
        menus.append(OptionValues(seconds * 1e-5, importance, size * kept * 1e6))
    return menus


def exact_importance(menus: list[OptionValues], budget_s: float, most_kept: float = np.inf) -> float:
    model = cp_model.CpModel()
    pick = [[model.new_bool_var(f"{i}.{j}") for j in range(m.seconds.size)] for i, m in enumerate(menus)]
    for options in pick:
        model.add_exactly_one(options)

    def weighted(column: str, scale: float, up: bool) -> cp_model.LinearExpr:
        rounded = np.ceil if up else np.floor
        values = [rounded(getattr(m, column) * scale).astype(int).tolist() for m in menus]
        return sum(v * x for vs, xs in zip(values, pick, strict=True) for v, x in zip(vs, xs, strict=True))

    model.add(weighted("seconds", SCALE * 1e5, up=True) <= int(budget_s * SCALE * 1e5))
    if np.isfinite(most_kept):
        model.add(weighted("kept", 1.0, up=True) <= int(most_kept))
    model.maximize(weighted("importance", SCALE, up=False))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = 20
    assert solver.solve(model) == cp_model.OPTIMAL
    return solver.objective_value / SCALE


def test_close_to_the_exact_optimum_on_random_instances() -> None:
    rng = np.random.default_rng(1)
    shares = []
    for _ in range(40):
        menus = random_menus(rng, int(rng.integers(2, 9)), int(rng.integers(2, 12)))
        slowest = sum(m.seconds.max() for m in menus)
        budget = floor_seconds(menus) + rng.uniform(0.05, 0.9) * (slowest - floor_seconds(menus))
        choice = totals(menus, allocate(menus, budget))
        assert choice.seconds <= budget
        shares.append(choice.importance / exact_importance(menus, budget))
    assert np.mean(shares) >= 0.995
    assert np.min(shares) >= 0.98


def test_close_to_the_optimum_with_two_constraints() -> None:
    rng = np.random.default_rng(2)
    shares = []
    for _ in range(15):
        menus = random_menus(rng, 6, 8)
        budget = 0.6 * sum(m.seconds.max() for m in menus)
        most_kept = 0.45 * sum(m.kept.max() for m in menus)
        choice = totals(menus, allocate(menus, budget, most_kept))
        assert choice.seconds <= budget
        assert choice.kept <= most_kept
        shares.append(choice.importance / exact_importance(menus, budget, most_kept))
    assert np.mean(shares) >= 0.99


def test_many_layers_by_the_hulls_alone() -> None:
    menus = random_menus(np.random.default_rng(3), 120, 6)
    budget = 0.5 * sum(m.seconds.max() for m in menus)
    choice = totals(menus, allocate(menus, budget))
    assert choice.seconds <= budget
    assert choice.importance >= 0.998 * exact_importance(menus, budget)


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.floats(0.0, 1.0))
@example(395, 1.0)  # the slowest options of all layers, added up in another order, just fit
def test_never_worse_than_any_of_few_choices_by_much(seed: int, share: float) -> None:
    menus = random_menus(np.random.default_rng(seed), 3, 4)
    slowest = sum(m.seconds.max() for m in menus)
    budget = floor_seconds(menus) + share * (slowest - floor_seconds(menus))
    found = totals(menus, allocate(menus, budget))
    everything = [totals(menus, np.array(c)) for c in itertools.product(range(4), repeat=3)]
    best = max(t.importance for t in everything if t.seconds <= budget)
    assert found.seconds <= budget * (1 + 1e-12)  # added up in another order
    assert found.importance >= 0.99 * best


def test_more_time_never_retains_less() -> None:
    menus = random_menus(np.random.default_rng(4), 5, 6)
    slowest = sum(m.seconds.max() for m in menus)
    retained = [
        totals(menus, allocate(menus, budget)).importance
        for budget in np.linspace(floor_seconds(menus), slowest, 12)
    ]
    assert np.all(np.diff(retained) >= -1e-3 * retained[-1])
    assert retained[-1] == pytest.approx(sum(m.importance.max() for m in menus))


def test_a_target_below_the_floor_says_the_floor() -> None:
    menus = random_menus(np.random.default_rng(5), 2, 3)
    with pytest.raises(BadInput, match=f"{floor_seconds(menus) * 1e6:.1f} us"):
        allocate(menus, 0.5 * floor_seconds(menus))


def test_targets_that_exclude_each_other_are_refused() -> None:
    menus = random_menus(np.random.default_rng(6), 2, 3)
    with pytest.raises(BadInput, match="no choice meets both"):
        allocate(menus, 1.0, most_kept=1.0)


def test_exactly_as_many_weights_as_may_stay_do_stay() -> None:
    """The limit itself is allowed: the best choice has it in whole numbers."""
    menu = OptionValues(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 2.9]), np.array([10.0, 20.0, 30.0]))
    for kept, option in ((9.0, None), (10.0, 0), (20.0, 1), (29.0, 1), (30.0, 2), (np.inf, 2)):
        if option is None:
            with pytest.raises(BadInput, match="9 weights may stay, 10 at least do"):
                allocate([menu], 3.0, kept)
        else:
            assert allocate([menu], 3.0, kept).tolist() == [option]


@pytest.mark.parametrize("seed", range(3))
def test_the_best_choice_for_a_price_is_found_when_just_its_weights_may_stay(seed: int) -> None:
    """Nothing with as many weights or fewer retains more, so the limit itself has to count as kept."""
    rng = np.random.default_rng(seed)
    menus = [
        OptionValues(np.ones(6), 100.0 * np.sqrt(np.sort(rng.random(6))), rng.permutation(60)[:6] + 1.0)
        for _ in range(40)
    ]
    menus = [menu._replace(kept=np.sort(menu.kept)) for menu in menus]
    for price in (0.3, 1.0, 3.0):
        chosen = np.array([np.argmax(menu.importance - price * menu.kept) for menu in menus])
        wanted = totals(menus, chosen)
        found = totals(menus, allocate(menus, len(menus), wanted.kept))
        assert found.kept <= wanted.kept
        assert found.importance == pytest.approx(wanted.importance, rel=1e-9)


def test_a_time_that_the_fastest_options_just_need_is_kept() -> None:
    menus = random_menus(np.random.default_rng(7), 3, 4)
    floor = floor_seconds(menus)
    assert totals(menus, allocate(menus, floor)).seconds == pytest.approx(floor)
    with pytest.raises(BadInput, match=f"wanted {0.9e6 * floor:.1f} us or less, the fastest "):
        allocate(menus, 0.9 * floor)


def naive_hull(menu: OptionValues) -> list[int]:
    """Options that no line between a faster and a slower one passes above."""
    points = [(menu.seconds[o], menu.importance[o], o) for o in pareto_optimal(menu.seconds, menu.importance)]
    return [
        option
        for s, i, option in points
        if not any(
            i <= i_a + (i_b - i_a) * (s - s_a) / (s_b - s_a)
            for s_a, i_a, _ in points
            for s_b, i_b, _ in points
            if s_a < s < s_b
        )
    ]


@pytest.mark.parametrize("seed", range(20))
def test_the_hull_is_what_no_line_passes_above(seed: int) -> None:
    (menu,) = random_menus(np.random.default_rng(seed), 1, 14)
    assert _hull(menu).tolist() == naive_hull(menu)


@pytest.mark.parametrize("seed", range(20))
def test_the_grid_holds_the_best_of_every_option_at_every_cell(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cells, importance = rng.integers(0, 12, 6), rng.integers(1, 5, 6).astype(np.float64)
    value = np.maximum.accumulate(rng.integers(0, 9, 10).astype(np.float64))
    options, taken = pareto_optimal(cells, importance), np.zeros(10, np.int32)
    found = fill_grid(options, cells, importance, value, taken)
    for place in range(10):
        tried = [
            (value[place - cells[o]] + importance[o], -i) for i, o in enumerate(options) if cells[o] <= place
        ]
        best, first = max(tried, default=(-np.inf, 0))
        assert found[place] == best
        assert not tried or taken[place] == options[-first]


@pytest.mark.parametrize("seed", range(5))
def test_on_the_grid_the_choice_is_the_best_within_a_cell_of_each_layer(seed: int) -> None:
    """Times are rounded up to cells: no choice that fits with a cell more for each layer retains more."""
    menus = random_menus(np.random.default_rng(seed), 3, 5)
    floor, most = floor_seconds(menus), sum(float(menu.seconds.max()) for menu in menus)
    for share in (0.0, 0.3, 0.7, 1.0):
        budget_s = floor + share * (most - floor)
        found = totals(menus, _on_grid(menus, budget_s))
        rounded_s = len(menus) * (budget_s - floor) / GRID
        choices = (totals(menus, np.array(each)) for each in itertools.product(range(5), repeat=3))
        tight = [each.importance for each in choices if each.seconds <= budget_s - rounded_s]
        assert found.seconds <= budget_s * (1.0 + 1e-12)
        assert found.importance >= max(tight, default=0.0)


def test_the_grid_is_used_up_to_its_number_of_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    menus, retained = random_menus(np.random.default_rng(0), 3, 6), {}
    floor, most_s = floor_seconds(menus), sum(float(menu.seconds.max()) for menu in menus)
    for most in (2, 3, 100):
        monkeypatch.setattr(allocation, "MOST_GRID_LAYERS", most)
        choice = allocate(menus, floor + 0.4 * (most_s - floor), np.inf)
        retained[most] = totals(menus, choice).importance
    assert retained[2] < retained[3] == retained[100]


def test_the_front_holds_what_nothing_beats() -> None:
    seconds, importance = np.array([1.0, 2.0, 2.0, 3.0, 4.0]), np.array([0.2, 0.1, 0.5, 0.5, 1.0])
    assert pareto_optimal(seconds, importance).tolist() == [0, 2, 4]
