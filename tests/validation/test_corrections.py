"""The command that says what each launch correction is worth."""

from collections.abc import Sequence
from importlib import import_module

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.corrections import CORRECTIONS, Correction, refitted_errors, removable, without

TIMES = st.lists(st.floats(1e-6, 1e-3), min_size=4, max_size=30)


@pytest.mark.parametrize("correction", CORRECTIONS, ids=lambda correction: correction.name)
def test_a_correction_is_taken_out_and_put_back(correction: Correction) -> None:
    room, name = correction.function.rsplit(".", 1)
    module = import_module(f"prunecast.{room}")
    function = getattr(module, name)
    with without(correction):
        assert getattr(module, name) is correction.instead
    assert getattr(module, name) is function


@given(times=TIMES, factor=st.floats(0.5, 2.0), floor=st.floats(-1e-7, 1e-6))
def test_a_refit_finds_a_factor_and_a_floor(times: list[float], factor: float, floor: float) -> None:
    found = np.array(times)
    measured = factor * found + floor
    assert refitted_errors(found, measured).max() == pytest.approx(0.0, abs=0.01)


@given(times=TIMES, seed=st.integers(0, 99))
def test_a_refit_never_makes_it_worse(times: list[float], seed: int) -> None:
    found = np.array(times)
    measured = found * np.random.default_rng(seed).uniform(0.8, 1.2, found.size)
    before = 100.0 * np.abs(found / measured - 1.0).mean()
    assert refitted_errors(found, measured).mean() <= before + 1e-9


def test_corrections_that_correct_each_other_go_together() -> None:
    worth = {"a": 0.05, "b": 0.1, "c": 0.15, "d": 1.0}
    corrections = [Correction(name, "models.chip.chip_ends", lambda: 0.0) for name in worth]

    def lost(removed: Sequence[Correction]) -> float:
        names = {correction.name for correction in removed}
        pair = {"b", "d"} <= names
        return sum(worth[name] for name in names) - (1.0 if pair else 0.0)

    assert [correction.name for correction in removable(corrections, lost)] == ["a", "b", "d"]
