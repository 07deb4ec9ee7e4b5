"""The one definition of prediction error: log(predicted / measured), and its summary over cases."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorSummary:
    """How far predictions lie from measurements; 0.05 means 5 %.

    Parameters
    ----------
    cases : number of pairs
    mape : mean of |predicted / measured - 1|
    p90 : exp(90th percentile of |log error|) - 1: nine of ten cases are within this factor
    bias : exp(mean log error) - 1; above 0 the predictions are too slow
    worst : exp(log error) - 1 of the case with the largest |log error|
    worst_case : its name
    spearman : rank correlation of predicted and measured times, or None where ranks do not exist (fewer
        than two cases, or all times of one side equal)
    """

    cases: int
    mape: float
    p90: float
    bias: float
    worst: float
    worst_case: str
    spearman: float | None


def log_error(predicted: npt.ArrayLike, measured: npt.ArrayLike) -> FloatArray:
    """log(predicted / measured) of times: symmetric, adds up along chains, its sign is the direction.

    Raises
    ------
    BadInput : shapes differ, or a time is not a positive finite number
    """
    times = [np.asarray(side, dtype=np.float64) for side in (predicted, measured)]
    if times[0].shape != times[1].shape:
        raise BadInput(
            f"predicted and measured times must pair up, got shapes {times[0].shape} and {times[1].shape}"
        )
    if not all(np.all(np.isfinite(side) & (side > 0)) for side in times):
        raise BadInput("predicted and measured times must be positive and finite")
    return np.log(times[0] / times[1])


def summarise_errors(predicted: npt.ArrayLike, measured: npt.ArrayLike, names: Sequence[str]) -> ErrorSummary:
    """Summarise the errors of named cases: three sequences of equal, non-zero length."""
    error = log_error(predicted, measured)
    if error.ndim != 1 or error.size == 0 or len(names) != error.size:
        raise BadInput(
            f"errors need one name per case and at least one case, got {len(names)} for {error.shape}"
        )
    worst = int(np.argmax(np.abs(error)))
    return ErrorSummary(
        cases=error.size,
        mape=float(np.mean(np.abs(np.expm1(error)))),
        p90=float(np.expm1(np.percentile(np.abs(error), 90))),
        bias=float(np.expm1(np.mean(error))),
        worst=float(np.expm1(error[worst])),
        worst_case=names[worst],
        spearman=_spearman(np.asarray(predicted, dtype=np.float64), np.asarray(measured, dtype=np.float64)),
    )


def _spearman(x: FloatArray, y: FloatArray) -> float | None:
    from scipy.stats import spearmanr  # slow to import

    if min(np.ptp(x), np.ptp(y)) == 0.0:
        return None
    return float(spearmanr(x, y).statistic)
