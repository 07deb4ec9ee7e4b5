"""Calls of libraries without plans: parts, bounds and their evidence."""

import datetime

import pytest

from prunecast.kernels.libraries.call import LibraryCall, call_error
from prunecast.kernels.libraries.library_tables import table


def test_parts_add_up_to_the_time():
    call = LibraryCall(
        library="attention",
        kernel="FlashAttention 3",
        parts={"launch": 2e-6, "tensor": 5e-6},
        bound="tensor",
        seconds_low=6e-6,
        seconds_high=8e-6,
        evidence="published",
    )
    assert call.seconds == pytest.approx(7e-6)


def test_calls_without_measurements_have_the_widest_bounds():
    guess = call_error("no such library", "no case", "no-gpu")
    assert guess.evidence == "guess"
    for row in table("call_errors"):
        own = call_error(row["library"], row["case"], row["gpu"])
        assert guess.low <= own.low < own.high <= guess.high


def test_every_row_of_bounds_has_its_source():
    for row in table("call_errors"):
        assert row["source"]
        assert datetime.date.fromisoformat(row["date"])
    keys = [(row["library"], row["case"], row["gpu"]) for row in table("call_errors")]
    assert len(set(keys)) == len(keys)
