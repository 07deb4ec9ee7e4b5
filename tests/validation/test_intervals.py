import math
import tomllib

import pytest

from prunecast.errors import BadInput
from prunecast.validation.intervals import FEWEST_CASES, Ratios, bounds_of_layers, coverages, write_intervals
from tests.validation.judged_rows import judged_row, validation_of


def rows(ratios, use):
    return [judged_row(100 * ratio, 100, use=use, seed=i) for i, ratio in enumerate(ratios)]


def test_bounds_come_from_fit_and_coverage_from_judge():
    fit = rows([0.9 + 0.01 * i for i in range(20)], "fit")
    judge = rows([0.85, 0.95, 1.0, 1.05], "judge")
    (found,) = coverages(validation_of(*fit, *judge))
    # 20 cases: the 1st of floor(21 * 0.05) and the 20th of ceil(21 * 0.95)
    assert (found.low, found.high) == pytest.approx((0.9, 1.09))
    assert (found.fit_cases, found.judge_cases, found.coverage) == (20, 4, 0.75)


def test_many_cases_leave_the_outermost_out():
    fit = rows([0.5, *[1.0 + 0.001 * i for i in range(98)], 2.0], "fit")
    (found,) = coverages(validation_of(*fit))
    # 100 cases: the 5th and the 96th
    assert (found.low, found.high) == pytest.approx((1.003, 1.094))


def cases(layers):
    return [Ratios(layer, (ratio,)) for layer, ratios in layers.items() for ratio in ratios]


def test_layers_that_err_on_their_own_make_wide_bounds():
    alike = bounds_of_layers(cases({f"layer {i}": [0.95, 1.0, 1.05] for i in range(10)}))
    assert alike == pytest.approx((0.95, 1.05))
    apart = cases({f"layer {i}": [0.8 + 0.04 * i] * 3 for i in range(10)})
    low, high = bounds_of_layers(apart)
    # The outermost layers are the quantiles of all cases. Of ten layers 99 % must be held by the others', so
    # both of them must be inside what the other nine give
    assert low < 0.8
    assert high > 1.16


@pytest.mark.parametrize("layers", [1, 2, 3, 9])
def test_layers_that_err_alike_need_no_wider_bounds(layers):
    """All cases must be inside if there are at most nine layers, and they are."""
    alike = cases({f"layer {i}": [0.95, 1.0, 1.05] for i in range(layers)})
    assert bounds_of_layers(alike) == pytest.approx((0.95, 1.05))


def test_bounds_are_no_wider_than_a_left_out_layer_needs():
    """The others say 0.9 to 1.1; the odd layer errs by 1.2, and the next step of widths is wide enough."""
    alike = {f"layer {i}": [0.9, 1.0, 1.1] for i in range(3)}
    low, high = bounds_of_layers(cases(alike | {"odd": [1.2]}))
    others = bounds_of_layers(cases(alike))
    assert others == pytest.approx((0.9, 1.1))
    width = math.log(high) / math.log(1.2)  # 1.2 is the highest ratio of all cases
    needed = math.log(1.2) / math.log(1.1)
    assert needed <= width < needed + 1 / 20
    assert low == pytest.approx(0.9**width)


def test_few_layers_make_wider_bounds_than_many():
    odd = {"odd": [0.85, 1.0, 1.0, 1.0, 1.0, 1.15]}
    found = []
    for count in (2, 12):
        alike = {f"layer {i}": [0.9, 0.95, 1.0, 1.0, 1.05, 1.1] for i in range(count)}
        low, high = bounds_of_layers(cases(alike | odd))
        found.append(high / low)
    assert found[0] > found[1]


def test_every_board_counts_and_a_case_counts_once():
    quiet = [Ratios("a", (1.0,)) for _ in range(39)]
    # 40 cases: the second one from either side is the bound; both boards of the odd case are one case
    assert bounds_of_layers([*quiet, Ratios("a", (0.9, 0.95))]) == (1.0, 1.0)
    low, high = bounds_of_layers([Ratios("a", (0.9, 1.1)) for _ in range(8)])
    assert (low, high) == (0.9, 1.1)


def test_too_few_cases_make_no_interval():
    assert coverages(validation_of(*rows([1.0] * (FEWEST_CASES - 1), "fit"))) == []
    assert coverages(validation_of(*rows([1.0] * 20, "judge"))) == []
    fewest = validation_of(*rows([0.9 + 0.01 * i for i in range(FEWEST_CASES)], "fit"))
    (found,) = coverages(fewest)
    assert (found.fit_cases, found.judge_cases) == (FEWEST_CASES, 0)
    assert math.isnan(found.coverage)


def test_ranges_are_those_of_all_cases():
    fit, judge = rows([1.0] * 10, "fit"), [judged_row(40, 50, use="judge", n=8), judged_row(900, 800, n=4096)]
    (found,) = coverages(validation_of(*fit, *judge))
    assert found.seconds == pytest.approx((50e-6, 800e-6))
    assert found.tokens == (8, 4096)
    assert (found.fit_cases, found.judge_cases) == (10, 2)


def test_the_table_is_toml_and_keeps_other_gpus(tmp_path):
    file = tmp_path / "validated.toml"
    validation = validation_of(*rows([0.9 + 0.01 * i for i in range(20)], "fit"))
    write_intervals(validation, file)
    (row,) = tomllib.loads(file.read_text())["validated"]
    assert (row["gpu"], row["kernel"], row["state"], row["engine"]) == (
        "h200-sxm",
        "stspmm",
        "burst",
        "simulator",
    )
    assert row["low"] < 1.0 < row["high"]
    assert row["tokens"] == [1024, 1024]
    file.write_text(file.read_text().replace("h200-sxm", "another"))
    write_intervals(validation, file)
    both = tomllib.loads(file.read_text())["validated"]
    assert both == [row | {"gpu": "another"}, row]


@pytest.mark.parametrize("name", ["gpu", "kernel", "state", "engine", "low", "tokens"])
def test_a_row_without_an_entry_is_refused_and_the_table_stays(tmp_path, name):
    file = tmp_path / "validated.toml"
    validation = validation_of(*rows([0.9 + 0.01 * i for i in range(20)], "fit"))
    write_intervals(validation, file)
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(line for line in lines if not line.startswith(f"{name} = ")))
    before = file.read_bytes()
    with pytest.raises(BadInput, match=f"validated.toml: wanted a table of intervals.*{name}"):
        write_intervals(validation, file)
    assert file.read_bytes() == before
