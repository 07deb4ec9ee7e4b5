"""`--runtime torch`: a whole model as torch runs it."""

import json

import numpy as np
import pytest

from prunecast.codesign import predict
from prunecast.codesign.checked_settings import checked_settings
from prunecast.codesign.prepare_job import usual_runtime
from prunecast.codesign.search.model_search import FAMILIES
from prunecast.codesign.search.prune_model import families_of, search_of

OPTIONS = ("--engine", "model", "--json", "--runtime", "torch")


def test_predict_counts_what_torch_launches(run):
    code, out, _ = run("predict", "bert-small", "--workload", "prefill:2x128", *OPTIONS, "--no-crossovers")
    assert code == 0
    document = json.loads(out)
    assert document["asked"]["runtime"] == "torch"
    assert {row["kernel"] for row in document["predictions"]} == {"dense", "stspmm", "2:4"}


def test_the_table_says_so(run):
    options = ("--engine", "model", "--runtime", "torch", "--no-crossovers")
    code, out, _ = run("predict", "bert-small", "--workload", "prefill:2x128", *options)
    assert code == 0
    assert "as torch.compile and prunecast.torch run it" in out
    assert "Layout:" not in out


def test_kernels_that_torch_does_not_run_are_named_where_only_dense_is_left():
    asked = {"gpu": "h200-sxm", "workload": "prefill:1x64", "runtime": "torch", "engine": "model"}
    table = predict("bert-small", pattern="balanced:64", crossovers=False, **asked)
    assert {row.kernel for row in table} == {"dense"}
    assert [row.kernel for row in table.skipped if row.layer == "torch"] == ["balanced", "csr"]


def test_torch_and_an_engine_take_different_times():
    found = {
        runtime: predict(
            "bert-small",
            gpu="h200-sxm",
            workload="prefill:8x128",
            runtime=runtime,
            engine="model",
            kernels=["stspmm"],
            crossovers=False,
        ).whole
        for runtime in ("engine", "torch")
    }
    assert found["torch"].dense.seconds > found["engine"].dense.seconds  # GELU is a kernel of its own
    assert "activation" in found["torch"].best.seconds_by_kind


@pytest.mark.parametrize(("tokens", "planned"), [(100, 128), (60, 64), (65, 128), (4, 8)])
def test_torch_pads_rows_itself_so_that_no_number_of_tokens_needs_copies(tokens, planned):
    """`SparseLinear` plans for `planned` tokens and writes x transposed into rows of that length."""
    options = {"gpu": "h200-sxm", "engine": "model", "runtime": "torch", "crossovers": False}
    few, more = (predict("bert-small", tokens=n, **options) for n in (tokens, planned))
    assert {row.n for row in few} == {tokens}
    for row, padded in zip(few, more, strict=True):
        if row.kernel != "dense":
            assert (row.kernel, row.seconds) == (padded.kernel, padded.seconds)
            assert row.plan.n == planned
        assert "copies of B" not in row.note
    by_engine = predict("bert-small", tokens=100, **{**options, "runtime": "engine"})
    assert any("copies of B" in row.note for row in by_engine)


def test_a_search_for_torch_times_the_rows_that_torch_pads():
    options = {"gpu": "h200-sxm", "engine": "model", "runtime": "torch", "families": ("atp", "2:4")}
    found = [search_of("bert-small", tokens=tokens, **options) for tokens in (100, 128)]
    for search in found:
        search.prepare()
    for name in found[0].options:
        few, more = (search.options[name] for search in found)
        assert few.runs == more.runs
        sparse = [place for place, option in enumerate(few) if option.pattern != "dense"]
        np.testing.assert_array_equal(few.seconds[sparse], more.seconds[sparse])


def test_prune_offers_what_torch_runs(run, tmp_path):
    asked = ("--latency", "85%", "--workload", "prefill:64x128", "-o", str(tmp_path / "out"))
    code, out, error = run("prune", "bert-small", *asked, *OPTIONS)
    assert code == 0, error
    document = json.loads(out)
    assert document["runtime"] == "torch"
    assert document["seconds"] <= 0.85 * document["dense_seconds"]
    assert {row["pattern"].partition(":")[0] for row in document["layers"]} <= {"atp", "dense"}
    assert families_of("torch", FAMILIES) == ["atp", "guided", "2:4", "tvw"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("predict", "stable-diffusion-1.5", "--runtime", "torch"), "its form in torch is not known"),
        (("predict", "bert-small", "--runtime", "jax"), "runtime must be"),
        (
            ("predict", "bert-small", "--runtime", "torch", "--kernel", "tile-wise"),
            "runs dense, stspmm, small-n",
        ),
        (("prune", "x.onnx", "--latency", "60%", "--runtime", "torch", "-o", "out"), "x.onnx"),
    ],
)
def test_what_torch_does_not_run(run, arguments, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, error = run(*arguments)
    assert code == 2
    assert said in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("pattern", ["shuffled-block:64", "atp:128:shuffled", "dense-block:8"])
def test_rows_from_anywhere_are_refused(run, pattern):
    code, out, error = run("predict", "bert-small", "--pattern", pattern, *OPTIONS)
    assert (code, out) == (2, "")
    assert "wanted a pattern whose tiles are of neighbouring rows" in error


@pytest.mark.parametrize(
    ("asked", "runtime"),
    [
        ({}, None),
        ({"kernels": "stspmm"}, None),
        ({"kernels": ["dense", "2:4"]}, None),
        ({"kernels": ["stspmm", "csr"]}, "engine"),
        ({"pattern": "tile-wise:64"}, None),
        ({"pattern": "balanced:64"}, "engine"),
        ({"pattern": "tile-wise:64", "kernels": ["csr"]}, "engine"),
        ({"pattern": "balanced:64", "kernels": ["stspmm"]}, "engine"),
        ({"dtype": "bf16"}, None),
        ({"dtype": "fp8"}, "engine"),
        ({"dtype": "int8", "kernels": ["dense"]}, "engine"),
    ],
)
def test_what_torch_cannot_run_is_predicted_for_an_engine(asked, runtime):
    """Each of the kernels, patterns and formats that are asked for; otherwise the model decides."""
    assert usual_runtime(checked_settings({"gpu": "h200-sxm", **asked}), None) == runtime
