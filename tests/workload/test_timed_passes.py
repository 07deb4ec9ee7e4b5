"""Tokens and batch mean the same passes for a prediction and for a search of the same model."""

import pytest

from prunecast.codesign.checked_settings import passes_of, settings_of
from prunecast.codesign.search.prune_model import search_of
from prunecast.workload.conv_settings import ConvSettings
from prunecast.workload.graph import parse_workload
from prunecast.workload.timed_passes import timed_passes

STATED = [
    ({}, (8, 512)),
    ({"tokens": 64}, (1, 64)),
    ({"batch": 3}, (3, 512)),
    ({"tokens": 64, "batch": 3}, (3, 64)),
]


@pytest.mark.parametrize(("stated", "sizes"), STATED)
def test_a_prediction_and_a_search_time_the_same_pass(stated, sizes):
    settings = settings_of(
        "bert-small",
        {
            "gpu": "h200-sxm",
            "tokens": stated.get("tokens"),
            "convolutions": ConvSettings(batch=stated.get("batch")),
        },
    )
    (predicted,) = passes_of("bert-small", settings)
    (timed,) = timed_passes("bert-small", **stated)
    assert (predicted.batch, predicted.tokens) == (timed.batch, timed.tokens) == sizes
    assert predicted.all_logits == timed.all_logits


@pytest.mark.parametrize(("stated", "sizes"), STATED)
def test_a_recipe_states_the_pass_that_its_promise_is_checked_with(stated, sizes):
    workload = search_of("bert-small", gpu="h200-sxm", engine="model", **stated).origin.workload
    (promised,) = parse_workload(workload)
    assert (promised.batch, promised.tokens) == sizes


def test_without_a_model_tokens_are_all_columns():
    (run,) = timed_passes({"w": None})
    assert run.columns == 4096
    assert timed_passes({"w": None}, tokens=77)[0].columns == 77
