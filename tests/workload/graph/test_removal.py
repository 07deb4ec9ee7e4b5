"""Sizes of transformers after parts are removed, and the graphs that are priced."""

import json
from dataclasses import replace

import numpy as np
import pytest

from prunecast.cli import main
from prunecast.codesign import predict
from prunecast.errors import BadInput
from prunecast.workload.graph.config import checkpoint_shape, smaller_config
from prunecast.workload.graph.removal import Removal, parse_removals, without
from prunecast.workload.graph.shapes import LayerSizes, Pass, Transformer, transformers
from prunecast.workload.graph.workloads import transformer_graph
from prunecast.workload.layers import Removed
from prunecast.workload.load import graph_of_standard
from prunecast.workload.removed_parts import cuts_of, uneven_counts
from tests.naive.transformer_weights import layer_weights

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


@pytest.mark.parametrize("name", ["pythia-70m", "falcon-40b"])
def test_rows_by_head_are_those_that_transformers_reads_as_the_kept_heads(name):
    shape = replace(transformers()[name], layers=1)
    groups, width = shape.key_heads or shape.heads, shape.width // shape.heads
    rows = np.arange(shape.width + 2 * shape.key_width)
    # as the attention of both families views the result: (key heads, queries of each + key + value, width)
    of_group = rows.reshape(groups, shape.heads // groups + 2, width)
    kept = np.array([0, 3, 5])
    np.testing.assert_array_equal(cuts_of(shape)["qkv"].places(kept, groups), of_group[kept].ravel())


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


@pytest.mark.parametrize(
    "given",
    [
        ["predict"],
        ["prune", "--latency", "60%", "-o", "OUT"],
        ["prune", "--sparsity", "0.5", "-o", "OUT"],
        ["search", "--latency", "60%"],
    ],
)
def test_no_command_removes_parts_of_a_transposed_model(given, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command, *others = given
    assert main([command, "bert-small", "--remove", "widths:0.5", "--transpose", "x", *others]) == 2
    told = capsys.readouterr().err
    assert told == "prunecast: error: --remove widths:0.5 and --transpose x exclude each other\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("seed", range(8))
def test_uneven_counts_are_those_of_removing_the_least_step_again_and_again(seed):
    draw = np.random.default_rng(seed)
    layers, blocks, step = draw.integers(1, 6), draw.integers(2, 7), draw.integers(1, 4)
    saliency = draw.lognormal(size=(layers, blocks * step)) * draw.lognormal(size=(layers, 1))
    total = int(draw.integers(layers, layers * blocks + 1)) * step
    left = [sorted(own)[::-1] for own in saliency.tolist()]
    while sum(map(len, left)) > total:
        longer = [own for own in left if len(own) > step]
        least = min(longer, key=lambda own: sum(own[-step:]))
        del least[-step:]
    assert uneven_counts(saliency, total, step) == [len(own) for own in left]


def test_layers_of_own_sizes_are_priced_and_shared_by_their_sizes():
    whole = transformers()["llama-2-7b"]
    sizes = [LayerSizes(32, 32, 11008), *[LayerSizes(16, 16, 5504)] * 31]
    shape = replace(whole, layer_sizes=tuple(sizes))
    graph = transformer_graph("uneven", shape, Pass(1, 64))
    widths = [graph[f"layer.{layer}.up"].m for layer in range(32)]
    assert widths == [11008, *[5504] * 31]
    assert graph["layer.1.attention"].attention.key_heads == 16
    assert layer_weights(shape) == sum(o.weights for o in graph if o.kind == "gemm" and o.name != "head")
    assert shape.share(2).layer_shape(1).own_sizes == LayerSizes(8, 8, 2752)


def test_sizes_by_layer_come_back_from_a_configuration(tmp_path):
    sizes = (LayerSizes(8, 4, 128), LayerSizes(4, 2, 96), LayerSizes(8, 4, 64))
    config = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 8}
    config |= {"num_key_value_heads": 4, "intermediate_size": 128, "vocab_size": 96}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    before = checkpoint_shape(path)
    given = replace(before, head_width=8, layer_sizes=sizes)
    written = smaller_config(config, given, range(3))
    assert written["intermediate_size"] == 128
    assert written["per_layer_config"].keys() == {"1", "2"}
    path.write_text(json.dumps(written))
    assert checkpoint_shape(path).layer_sizes == sizes
    with pytest.raises(BadInput, match="its layers have sizes of their own"):
        without("again", checkpoint_shape(path), [Removal("widths", 0.5)])


@pytest.mark.parametrize(
    "wrong", ['{"3": {}}', '{"first": {}}', '{"0": 4}', "[1]", '{"0": {"skip": ["mlp"]}}']
)
def test_wrong_sizes_by_layer_are_one_line(wrong, tmp_path):
    text = '{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 8,'
    text += ' "vocab_size": 96,'
    (tmp_path / "config.json").write_text(f'{text} "intermediate_size": 128, "per_layer_config": {wrong}}}')
    with pytest.raises(BadInput, match="per_layer_config must hold sizes of layers from 0 to 2"):
        checkpoint_shape(tmp_path / "config.json")


def test_uneven_parts_of_a_model_without_weights_are_refused():
    with pytest.raises(BadInput, match=r"widths:0\.25/uneven is of a Hugging Face folder"):
        Removed(weights="llama-2-7b", parts=["widths:0.25/uneven"]).sizes()
