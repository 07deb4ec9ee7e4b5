"""Multi-head latent attention, as of DeepSeek-V3: weights, cache and arithmetic against published numbers."""

import json

import pytest

from prunecast.codesign import predict
from prunecast.codesign.export import PassPredictor
from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.workload.graph import Operation, load_pass, parse_workload
from prunecast.workload.graph.config import checkpoint_shape
from prunecast.workload.graph.removal import Removal, without
from prunecast.workload.graph.runtimes import engine_seconds
from prunecast.workload.graph.shapes import transformers
from prunecast.workload.memory import pass_memory
from tests.naive.transformer_weights import layer_weights

NAME = "deepseek-v3"
V3 = transformers()[NAME]
CONFIG = {
    "model_type": "deepseek_v3",
    **{"hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048},
    **{"n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3},
    **{"num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128},
    **{"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128},
    **{"v_head_dim": 128, "vocab_size": 129280},
}


def graph_of(workload):
    (run,) = parse_workload(workload)
    return load_pass(NAME, run)


def test_a_configuration_has_the_sizes_of_the_name(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    found = checkpoint_shape(tmp_path / "config.json")
    names = [name for name in V3.__slots__ if name not in ("source", "vocabulary")]
    assert {name: getattr(found, name) for name in names} == {name: getattr(V3, name) for name in names}


@pytest.mark.parametrize("workload", ["prefill:2048", "decode:16@4096"])
def test_the_graph_has_all_weights(workload):
    products = graph_of(workload).products
    layers = sum(p.m * p.k * p.copies for name, p in products.items() if name.startswith("layers"))
    routers = (V3.layers - V3.dense_layers) * V3.experts * V3.hidden
    assert layers == layer_weights(V3) + routers


@pytest.mark.parametrize(("workload", "tokens"), [("prefill:2048", 2048), ("decode:16@4096", 16 * 4097)])
def test_a_token_has_the_published_bytes_of_cache(workload, tokens):
    """DeepSeek-AI 2025, "Insights into DeepSeek-V3", table 1: 70.272 KB for each token in bf16."""
    memory = pass_memory(graph_of(workload), 1, 2)
    assert memory.cache == pytest.approx(70272 * tokens)


def test_a_prompt_and_its_tokens_one_by_one_multiply_as_many_weights():
    """A decode absorbs the expanding product into queries and outputs: the same weights, once each."""
    prompt, token = (graph_of(workload) for workload in ("prefill:1x64", "decode:64@64"))
    of_attention = [
        {name: p.m * p.k * p.n * p.runs for name, p in graph.products.items() if ".experts" not in name}
        for graph in (prompt, token)
    ]
    for name in ("layers.query_b", "layers.key_a", "layers.key_b", "layers.output"):
        assert of_attention[0][name] == of_attention[1][name]


def test_attention_multiplies_each_pair_of_tokens_once():
    graph = graph_of("prefill:3")
    assert graph["layers.attention"].flops == 2 * 128 * (192 + 128) * (1 + 2 + 3)
    graph = graph_of("decode:1@9")
    assert graph["layers.attention"].flops == 2 * 128 * (576 + 512) * 10


@pytest.mark.parametrize(("workload", "columns", "cached"), [("prefill:2x3", 6, 0), ("decode:2@9", 2, 9)])
def test_each_operator_moves_the_tensors_of_its_equation(workload, columns, cached):
    """128 heads of 192 features, 64 of them rotated; 512 latents and 64 rotated features of a key."""
    graph = graph_of(workload)
    rotary, attention = graph["layers.rotary"], graph["layers.attention"]
    assert rotary.elements_in == rotary.elements_out == (128 + 1) * 64 * columns
    assert graph["layers.query_norm"].elements_in == 1536 * columns
    assert graph["layers.key_norm"].elements_in == 512 * columns
    keys = 576 if cached else 128 * (128 + 128) + 64
    assert attention.elements_in == (128 * 192 + keys) * columns
    assert attention.elements_out == 128 * 128 * columns
    assert attention.elements_cached == 576 * 2 * cached
    assert attention.elements_kept == 576 * (2 * cached + columns)


def test_attention_needs_the_longer_of_arithmetic_and_memory():
    """The H200 has 989 TFLOP/s of dense fp16 and 4.8 TB/s, as NVIDIA publishes; kernels reach less."""
    gpu = load_gpu("h200-sxm")

    def seconds(**sizes):
        return engine_seconds(Operation(name="x", kind="attention", **sizes), gpu)

    computing, twice = (seconds(flops=times * 989e12, elements_in=8) for times in (1, 2))
    assert 1.0 < computing < 2.5
    assert twice == pytest.approx(2 * computing, rel=1e-4)
    moving = seconds(flops=1e9, elements_in=int(2.4e12))
    assert 1.0 < moving < 1.5
    assert seconds(flops=989e12, elements_in=int(2.4e12)) == pytest.approx(max(computing, moving), rel=1e-4)


def test_each_gpu_has_its_heads_and_the_whole_cache():
    share = V3.share(8)
    assert share.width == V3.width // 8
    assert share.key_rank == V3.key_rank
    assert share.dense_feed_forward == V3.dense_feed_forward // 8


def test_nothing_is_removed_from_it():
    with pytest.raises(BadInput, match="without latent attention"):
        without(NAME, V3, [Removal("heads", 0.5)])


def test_it_is_not_exported():
    with pytest.raises(BadInput, match="latent attention"):
        PassPredictor(NAME, gpu="h200-sxm")


def test_it_is_predicted_whole_with_the_expanding_product_dense():
    table = predict(NAME, gpu="h200-sxm", engine="model", workload="decode:16@4096", crossovers=False)
    whole = table.whole
    assert not any("key_b" in row.layer for row in table)
    assert whole.phases[0].generates
    assert whole.best.seconds < whole.dense.seconds
    assert any("latent attention" in row.reason for row in table.skipped)
