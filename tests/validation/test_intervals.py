import tomllib

import pytest

from prunecast.validation.intervals import FEWEST_CASES, coverages, interval_table
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


def test_too_few_cases_make_no_interval():
    assert coverages(validation_of(*rows([1.0] * (FEWEST_CASES - 1), "fit"))) == []
    assert coverages(validation_of(*rows([1.0] * 20, "judge"))) == []


def test_the_table_is_toml():
    text = interval_table(validation_of(*rows([0.9 + 0.01 * i for i in range(20)], "fit")))
    (row,) = tomllib.loads(text)["validated"]
    assert (row["gpu"], row["kernel"], row["state"], row["engine"]) == (
        "h200-sxm",
        "stspmm",
        "burst",
        "simulator",
    )
    assert row["low"] < 1.0 < row["high"]
    assert row["tokens"] == [1024, 1024]
