"""Sizes of transformers after parts are removed, and the graphs that are priced."""

from dataclasses import replace

import pytest

from prunecast.cli import main
from prunecast.codesign import predict
from prunecast.errors import BadInput
from prunecast.workload.graph.removal import Removal, parse_removals, without
from prunecast.workload.graph.shapes import Pass, Transformer, transformers
from prunecast.workload.layers import Removed
from prunecast.workload.load import graph_of_standard

LLAMA, MIXTRAL = transformers()["llama-3-8b"], transformers()["mixtral-8x7b"]


def attention(graph):
    return next(o.attention for o in graph if o.attention is not None)


def test_a_text_is_read_and_written_alike():
    assert parse_removals(["heads:.25", "layers:0.5"]) == (Removal("heads", 0.25), Removal("layers", 0.5))
    assert Removal("widths", 0.125).text == "widths:0.125"


def test_heads_are_removed_with_their_key_heads():
    found = without("llama", LLAMA, parse_removals(["heads:0.25"]))
    assert (found.heads, found.key_heads, found.head_width) == (24, 6, 128)
    graph = graph_of_standard(Removed(weights="llama-3-8b", parts=["heads:0.25"]), Pass(1, 64))
    assert (graph["layer.0.query"].m, graph["layer.0.key"].m, graph["layer.0.output"].k) == (3072, 768, 3072)
    assert (attention(graph).heads, attention(graph).key_heads) == (24, 6)


def test_widths_layers_and_experts_are_removed():
    assert without("llama", LLAMA, parse_removals(["widths:0.3"])).feed_forward == 64 * round(0.7 * 224)
    assert without("llama", LLAMA, parse_removals(["layers:0.25"])).layers == 24
    fewer = without("mixtral", MIXTRAL, parse_removals(["experts:0.25"]))
    assert (fewer.experts, fewer.experts_per_token) == (6, 2)


@pytest.mark.parametrize("part", [{"mels": 80}, {"position_bias": True}])
def test_encoders_of_sound_and_with_biases_of_positions_are_refused(part):
    shape = Transformer(layers=4, hidden=64, heads=4, feed_forward=128, causal=False)
    assert without("x", shape, parse_removals(["layers:0.5"])).layers == 2
    with pytest.raises(BadInput, match="biases of positions"):
        without("x", replace(shape, **part), parse_removals(["layers:0.5"]))


def test_the_graph_loses_the_share_of_its_weights():
    whole = graph_of_standard("llama-3-8b", Pass(1, 64))
    half = graph_of_standard(Removed(weights="llama-3-8b", parts=["layers:0.5"]), Pass(1, 64))
    head = LLAMA.head * LLAMA.hidden
    assert half.weights - head == (whole.weights - head) // 2


def test_a_smaller_model_is_predicted_by_the_same_sum():
    removed = Removed(weights="bert-small", parts=["layers:0.5", "widths:0.5"])
    settings = {"gpu": "h100-sxm", "engine": "model", "workload": "batch:8", "kernels": ["dense", "stspmm"]}
    whole, smaller = (predict(source, **settings).whole for source in ("bert-small", removed))
    assert 0.3 * whole.dense.seconds < smaller.dense.seconds < 0.5 * whole.dense.seconds
    assert smaller.phases[0].dense.memory.weights < whole.phases[0].dense.memory.weights


@pytest.mark.parametrize(
    ("model", "parts", "complaint"),
    [
        ("mixtral-8x7b", ["widths:0.5"], "remove experts instead"),
        ("mixtral-8x7b", ["experts:0.9"], r"experts:0.9 leaves 1 of 8 experts, wanted 2 to 7"),
        ("whisper-small", ["layers:0.5"], "an encoder and a decoder"),
        ("gemma-2-9b", ["layers:0.5"], "alternate between windows"),
        ("resnet50", ["layers:0.5"], "remove is of a transformer"),
        ("nowhere", ["layers:0.5"], "no such file"),
    ],
)
def test_parts_that_a_model_lacks_are_refused(model, parts, complaint):
    with pytest.raises(BadInput, match=complaint):
        Removed(weights=model, parts=parts).sizes()


@pytest.mark.parametrize(
    "given",
    [
        ["predict", "bert-small", "--remove", "widths"],
        ["predict", "bert-small", "--remove", "widths:0.5", "--transpose", "x"],
        ["prune", "bert-small", "--remove", "experts", "--latency", "60%", "-o", "OUT"],
        ["prune", "bert-small", "--remove", "widths", "--latency", "60%", "--solutions", "2", "-o", "OUT"],
        ["prune", "bert-small", "--remove", "widths:0.5", "-o", "OUT"],
    ],
)
def test_options_that_exclude_each_other_are_one_line(given, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(given) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())
