"""The results of all commands offer the same."""

import json

import numpy as np
import pytest

from prunecast.codesign import compare_gpus, explain, predict
from prunecast.codesign.result import Result
from prunecast.codesign.search import Targets, prune_model
from prunecast.codesign.study import search_model
from prunecast.codesign.sweep.run_sweep import sweep
from prunecast.validation.validate import bundled_records, replay

W = {"a": np.random.default_rng(0).standard_normal((256, 256)).astype(np.float16)}
ASKED = {"tokens": 256, "engine": "model"}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    storage = str(tmp_path_factory.mktemp("study") / "study.sqlite")
    pruned = {"gpu": "h200-sxm", "families": ["atp"], **ASKED}
    return {
        "predict": predict(W, gpu="h200-sxm", crossovers=False, **ASKED),
        "compare": compare_gpus(W, gpus=["h200-sxm", "t4"], **ASKED),
        "explain": explain(W, gpu="h200-sxm", kernel="stspmm", **ASKED),
        "prune": prune_model(W, Targets(sparsity=0.5), **pruned),
        "search": search_model(W, Targets(sparsity=0.5), trials=2, storage=storage, **pruned),
        "sweep": sweep(f"{storage}-sweep", shapes=[(256, 256, 256)], workers=1),
        "validate": replay(bundled_records(), engines=["model"], part=(1, 400)),
    }


@pytest.mark.parametrize("command", ["predict", "compare", "explain", "prune", "search", "sweep", "validate"])
def test_a_result_is_a_frame_json_html_and_notes(results, command):
    result = results[command]
    assert isinstance(result, Result)
    assert json.loads(result.to_json()) == json.loads(json.dumps(result.document()))
    rows = result.frame_rows()
    assert rows
    assert all(set(row) == set(rows[0]) for row in rows)
    html = result._repr_html_()
    assert html.count("<tr>") == 1 + len(result.cells())
    assert all(isinstance(note, str) and note for note in result.notes)
    assert result.plot().axes


def test_frames_have_the_rows(results):
    pytest.importorskip("pandas")
    for result in results.values():
        frame = result.to_dataframe()
        assert len(frame) == len(result.frame_rows())
        assert list(frame.columns) == list(result.frame_rows()[0])
    assert set(results["compare"].to_dataframe()["gpu"]) == {"h200-sxm", "t4"}


def test_notes_name_the_verdict_and_what_was_skipped(results):
    assert results["explain"].notes == (results["explain"].verdict,)
    table = predict("mixtral-8x7b", gpu="h200-sxm", workload="decode:1@8", kernels="dense", engine="model")
    assert any("router" in note for note in table.notes)


def test_an_explanation_draws_the_parts_of_the_time_or_the_roofline(results):
    told = explain(W, gpu="h200-sxm", kernel="stspmm", tokens=256)
    (parts,) = (section.facts for section in told.sections if section.title == "Where the time goes")
    bars = told.plot().axes[0].patches
    assert [bar.get_height() for bar in bars] == [fact.value for fact in parts]
    (axes,) = results["explain"].plot().axes
    assert axes.get_xscale() == axes.get_yscale() == "log"
