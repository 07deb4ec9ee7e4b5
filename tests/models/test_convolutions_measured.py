"""Convolutions on an H200: what pages say of the record, and predictions that nobody fitted to it."""

import numpy as np
import pytest

from benchmarks.kernels.convolutions import CUDNN, RECORD, errors, read_times

ROWS = read_times(RECORD)
SHOWN = [row for row in ROWS if row["chosen"] == "1" and row["tiles"] != "tile-wise:256"]


def test_the_speedup_that_pages_quote():
    dense: dict[str, float] = {}
    for row in ROWS:
        if row["tiles"] == CUDNN:
            dense[row["case"]] = min(float(row["us"]), dense.get(row["case"], np.inf))
    gains = [dense[row["case"]] / float(row["us"]) for row in SHOWN]
    assert len(gains) == 15
    assert np.exp(np.mean(np.log(gains))) == pytest.approx(2.25, abs=0.005)


def test_most_layers_are_predicted_within_eight_percent():
    """12 of 15; the worst is a stride of 2, bound by DRAM, at 23 %."""
    size = np.abs(list(errors(SHOWN).values()))
    assert (size <= 0.08).sum() >= 12
    assert size.mean() <= 0.06
    assert size.max() <= 0.24
