import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from prunecast.errors import BadInput
from prunecast.validation.judged import log_error, summarise_errors

times = st.floats(1e-7, 1e-2)


@given(predicted=times, measured=times)
def test_the_error_changes_its_sign_when_the_sides_change_places(predicted, measured):
    assert log_error(predicted, measured) == pytest.approx(-log_error(measured, predicted))


def test_summary_of_three_cases_by_hand():
    # Predicted over measured: 1, 2 and 1/2.
    summary = summarise_errors([1e-6, 4e-6, 2e-6], [1e-6, 2e-6, 4e-6], ["a", "b", "c"])
    assert summary.cases == 3
    assert summary.mape == pytest.approx((0 + 1 + 0.5) / 3)
    assert summary.bias == pytest.approx(0.0)
    # |log error| is 0, log 2, log 2: its 90th percentile is log 2.
    assert summary.p90 == pytest.approx(1.0)
    assert (summary.worst, summary.worst_case) == (pytest.approx(1.0), "b")
    # Ranks 1 3 2 against 1 2 3: 1 - 6 * (0 + 1 + 1) / (3 * 8).
    assert summary.spearman == pytest.approx(0.5)


def test_too_fast_predictions_have_a_negative_bias_and_worst():
    summary = summarise_errors([1e-6, 1e-6], [2e-6, 4e-6], ["a", "b"])
    assert summary.bias == pytest.approx(1 / math.sqrt(8) - 1)
    assert (summary.worst, summary.worst_case) == (pytest.approx(-0.75), "b")


@given(pairs=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=2, max_size=20))
def test_rank_correlation_is_scipys(pairs):
    x, y = np.array(pairs, dtype=float).T
    ours = summarise_errors(x, y, [str(i) for i in range(len(x))]).spearman
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        assert ours is None
    else:
        assert ours == pytest.approx(spearmanr(x, y).statistic)


@pytest.mark.parametrize("bad", [0.0, -1e-6, math.nan, math.inf])
def test_a_time_that_is_none_is_refused(bad):
    with pytest.raises(BadInput, match="positive and finite"):
        log_error([1e-6, bad], [1e-6, 1e-6])


def test_lengths_must_agree():
    with pytest.raises(BadInput, match="pair up"):
        log_error([1e-6], [1e-6, 1e-6])
    with pytest.raises(BadInput, match="one name per case"):
        summarise_errors([1e-6], [1e-6], [])
    with pytest.raises(BadInput, match="at least one case"):
        summarise_errors([], [], [])


def test_p90_is_the_error_that_nine_of_ten_cases_do_not_exceed():
    """Eleven cases with log errors 0, 0.1 to 1 in any order, half of them too fast."""
    logs = np.array([0.3, -0.1, 0.9, -0.5, 0.0, 0.2, -0.4, 0.6, -0.7, 0.8, -1.0])
    summary = summarise_errors(np.exp(logs), np.ones(11), [str(log) for log in logs])
    assert summary.p90 == pytest.approx(math.expm1(0.9))
    assert (summary.worst_case, summary.worst) == ("-1.0", pytest.approx(math.expm1(-1.0)))
    assert summary.bias == pytest.approx(math.expm1(logs.mean()))
    assert summary.mape == pytest.approx(np.abs(np.expm1(logs)).mean())


def test_a_table_shows_errors_in_percent():
    """Predictions that are 10 and 100 % too slow: exp of the mean logarithm is sqrt(1.1 * 2) = 1.483."""
    cells = summarise_errors([11.0, 20.0, 5.0], [10.0, 10.0, 5.0], ["a", "b", "c"]).cells()
    assert (cells["cases"], cells["MAPE"], cells["worst"]) == ("3", "36.7 %", "+100 %")
    cells = summarise_errors([11.0, 20.0], [10.0, 10.0], ["a", "b"]).cells()
    assert (cells["bias"], cells["p90"]) == ("+48.3 %", "88.4 %")
    assert cells["Spearman"] == "-"  # equal measured times have no ranks
    assert summarise_errors([11.0, 20.0], [10.0, 11.0], ["a", "b"]).cells()["Spearman"] == "1.000"
