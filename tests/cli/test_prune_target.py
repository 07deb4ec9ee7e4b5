"""`prunecast prune` with a time to meet."""

import json
import re

import numpy as np
import pytest
from safetensors.numpy import save_file

TIME = ("--engine", "model", "--tokens", "65536")


def test_it_meets_the_time_and_writes_weights_that_predict_reads(run, model, tmp_path):
    code, out, _ = run("prune", model, "-o", "pruned", "--latency", "95%", *TIME)
    assert code == 0
    assert "of dense" in out
    recipe = json.loads((tmp_path / "pruned" / "recipe.json").read_text())
    assert recipe["seconds"] <= 0.95 * recipe["dense_seconds"]
    assert {layer["kernel"] for layer in recipe["layers"]} <= {"dense", "stspmm", "2:4"}
    assert run("predict", "pruned/weights.safetensors", "--pattern", "zeros", *TIME)[0] == 0


def test_a_standard_model_gets_a_recipe_alone(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = ("--speedup", "1.01", "--engine", "model", "--target", "layer.0.up")
    code, out, _ = run("prune", "bert-small", "-o", "pruned", *asked)
    assert code == 0
    assert "are not products with weights" in out
    assert [path.name for path in (tmp_path / "pruned").iterdir()] == ["recipe.json"]


def test_a_budget_that_dense_meets_is_said_to_be(run, model, tmp_path):
    code, out, _ = run("prune", model, "-o", "pruned", "--latency", "150%", *TIME)
    assert code == 0
    assert "2 of 2 layers stay dense: the dense time is within the budget." in out
    front = [line for line in out.splitlines() if line.strip()[:1].isdigit()]
    assert len(set(front)) == len(front) > 1
    dense_us = 1e6 * json.loads((tmp_path / "pruned" / "recipe.json").read_text())["dense_seconds"]
    rows = [line.replace(",", "").split() for line in front if re.fullmatch(r"[\d.,\s]+", line)]
    assert len(rows) > 1
    for time_us, share, *_ in rows:
        assert float(share) == pytest.approx(100 * float(time_us) / dense_us, rel=0.01)


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_fewer_solutions_than_asked_for_are_given_a_reason_in_every_form(run, model, form):
    asked = ("--latency", "95%", *TIME, "--solutions", "9", *form)
    code, _, error = run("prune", model, "-o", "pruned", *asked)
    assert code == 0
    assert re.search(r"^prunecast: [1-8] of 9 solutions found: no others meet the targets", error, re.M)


@pytest.mark.parametrize(("side", "tokens", "is_faster"), [(256, 1, True), (1024, 4096, False)])
def test_another_kernel_is_named_only_where_it_is_faster_without_pruning(
    run, tmp_path, monkeypatch, side, tokens, is_faster
):
    monkeypatch.chdir(tmp_path)
    weights = np.random.default_rng(0).standard_normal((side, side)).astype(np.float16)
    save_file({"a.weight": weights}, "model.safetensors")
    asked = ("--latency", "95%", "--engine", "model", "--tokens", tokens)
    code, out, _ = run("prune", "model.safetensors", "-o", "pruned", *asked)
    assert code == 0
    assert ("by another kernel without pruning" in out) is is_faster


SIZES = {"hidden_size": 128, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 256}


@pytest.mark.parametrize("source", ["bert-small", "config.json"])
def test_a_recipe_alone_is_not_put_beside_other_weights(run, tmp_path, monkeypatch, source):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": 64, **SIZES}))
    (tmp_path / "pruned").mkdir()
    (tmp_path / "pruned" / "weights.safetensors").write_bytes(b"mine")
    code, _, err = run("prune", source, "-o", "pruned", "--speedup", "1.01", "--engine", "model")
    assert (code, err.count("\n")) == (2, 1)
    assert f"out holds weights, but {source} has none" in err
    assert [path.name for path in (tmp_path / "pruned").iterdir()] == ["weights.safetensors"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--latency", "5%"), "% of dense"),
        (("--latency", "soon"), "60%, 850us or 1.2ms"),
        (("--latency", "1001%"), "latency must be above 0 %, at most 1000%, got 1001%"),
        (("--latency", "90%", "--cap", "a"), "LAYER=0.8"),
        (("--latency", "90%", "--cap", "nobody=0.5"), "nobody"),
        (("--latency", "90%", "--pattern", "2:4"), "exclude each other"),
        (("--speedup", "-1"), "speedup"),
        (("--latency", "90%", "--tokens", "0"), "tokens"),
    ],
)
def test_bad_input_writes_nothing(run, model, tmp_path, options, told):
    code, _, err = run("prune", model, "-o", "pruned", *TIME, *options)
    assert code == 2
    assert told in err
    assert err.count("\n") == 1
    assert not (tmp_path / "pruned").exists()
