"""Folders of Hugging Face: the graph that `config.json` says, with the names of the tensors."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from prunecast.codesign import predict, prune
from prunecast.codesign.search import Targets, prune_model
from prunecast.errors import BadInput
from prunecast.workload.graph import ModelGraph, parse_workload
from prunecast.workload.graph.config import checkpoint_shape, graph_of_tensors, node_of
from prunecast.workload.graph.shapes import transformers
from prunecast.workload.layers import Removed

LLAMA = {
    "model_type": "llama",
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 512,
    "vocab_size": 320,
}
MIXTRAL = {**LLAMA, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
SETTINGS = {"gpu": "h200-sxm", "engine": "model", "crossovers": False, "kernels": ["stspmm"]}


def tensors_of(config):
    """Names and shapes as transformers saves them."""
    width, keys, wide = config["hidden_size"], config["hidden_size"] // 2, config["intermediate_size"]
    found = {"model.embed_tokens.weight": (320, width), "lm_head.weight": (320, width)}
    for layer in range(config["num_hidden_layers"]):
        own = f"model.layers.{layer}"
        for name, m in (("q", width), ("k", keys), ("v", keys), ("o", width)):
            found[f"{own}.self_attn.{name}_proj.weight"] = (m, width)
        found[f"{own}.input_layernorm.weight"] = (width,)
        experts = config.get("num_local_experts", 0)
        if experts:
            found[f"{own}.block_sparse_moe.gate.weight"] = (experts, width)
        for expert in range(experts):
            for name, shape in (("w1", (wide, width)), ("w3", (wide, width)), ("w2", (width, wide))):
                found[f"{own}.block_sparse_moe.experts.{expert}.{name}.weight"] = shape
        if not experts:
            for name, shape in (("gate", (wide, width)), ("up", (wide, width)), ("down", (width, wide))):
                found[f"{own}.mlp.{name}_proj.weight"] = shape
    return found


def folder(tmp_path, config):
    rng = np.random.default_rng(0)
    named = {n: rng.standard_normal(shape).astype(np.float16) for n, shape in tensors_of(config).items()}
    save_file(named, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config))
    return tmp_path


def test_a_graph_is_sorted_as_often_for_many_layers_as_for_few(tmp_path, monkeypatch):
    sorts = []
    ordered = ModelGraph.__iter__
    monkeypatch.setattr(ModelGraph, "__iter__", lambda graph: sorts.append(graph) or ordered(graph))

    def sorts_of(layers):
        sorts.clear()
        (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "num_hidden_layers": layers}))
        predict(tmp_path / "config.json", **SETTINGS)
        return len(sorts)

    assert sorts_of(1) == sorts_of(40) > 0


def test_more_layers_than_any_model_has_are_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "num_hidden_layers": 2000}))
    with pytest.raises(BadInput, match="num_hidden_layers must be 1 to 1024, got 2000"):
        predict(tmp_path / "config.json", **SETTINGS)


def test_products_are_called_as_their_tensors_and_run_what_is_said(tmp_path):
    (run,) = parse_workload("decode:8@100")
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    sizes = {n: s for n, s in tensors_of(LLAMA).items() if len(s) == 2 and "embed" not in n}
    graph = graph_of_tensors("m", checkpoint_shape(tmp_path / "config.json"), run, sizes)
    assert set(graph.products) == set(sizes)
    assert {(p.m, p.k) for p in graph.products.values()} == set(sizes.values())
    after = list(graph.graph.successors("model.layers.0.self_attn.q_proj.weight"))
    assert after == ["layer.0.attention"]
    assert graph["layer.0.attention"].elements_cached == 2 * 128 * 8 * 100


def test_experts_are_products_of_their_own_which_run_as_often_as_tokens_choose_them(tmp_path):
    (run,) = parse_workload("decode:1@100")
    (tmp_path / "config.json").write_text(json.dumps(MIXTRAL))
    sizes = {n: s for n, s in tensors_of(MIXTRAL).items() if len(s) == 2 and "embed" not in n}
    graph = graph_of_tensors("m", checkpoint_shape(tmp_path / "config.json"), run, sizes)
    experts = [p for name, p in graph.products.items() if "experts" in name]
    assert len(experts) == 2 * 3 * 4
    assert {(p.copies, p.runs, p.n) for p in experts} == {(1, 0.5, 1)}


def test_a_layer_without_matrices_is_neither_timed_nor_removed(tmp_path):
    layers = LLAMA["num_hidden_layers"]
    source = folder(tmp_path, LLAMA)
    assert predict(source, workload="prefill:512", **SETTINGS).whole is not None
    (source / "config.json").write_text(json.dumps({**LLAMA, "num_hidden_layers": layers + 1}))
    table = predict(source, workload="prefill:512", **SETTINGS)
    assert table.whole is None
    assert {row.layer for row in table} == {n for n in tensors_of(LLAMA) if "_proj" in n}
    assert any("other sizes or layers than its matrices" in skipped.reason for skipped in table.skipped)
    for part in ("widths:0.5", "layers:0.5"):
        with pytest.raises(BadInput, match=f"no tensor is of layer {layers}, .* {layers + 1} layers"):
            prune(Removed(weights=source, parts=[part]), pattern="dense", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("config", [LLAMA, MIXTRAL])
def test_predict_and_prune_count_the_whole_model(tmp_path, config):
    source = folder(tmp_path, {**config, "num_hidden_layers": 1})
    table = predict(source, workload="prefill:512", **SETTINGS)
    assert table.whole.dense.seconds > table.dense_seconds
    assert "lm_head.weight" in {skipped.layer for skipped in table.skipped}
    head = predict(source, workload="prefill:512", target=["lm_head.weight"], **SETTINGS)
    assert {(row.layer, row.n) for row in head} == {("lm_head.weight", 1)}
    found = prune_model(
        source, Targets(latency_share=1.0), gpu="h200-sxm", engine="model", workload="prefill:512"
    ).result
    assert found.time is not None
    assert found.dense_seconds == pytest.approx(table.whole.dense.seconds)
    assert "attention" in found.time.seconds_by_kind


def test_a_mix_of_passes_of_a_folder(tmp_path):
    table = predict(folder(tmp_path, LLAMA), workload="prefill:512,decode:2@9=3", **SETTINGS)
    assert {row.layer.split(" ")[1] for row in table} == {"prefill:512", "decode:2@9"}
    assert set(table.runs.values()) == {0.25, 0.75}


def test_a_configuration_alone_is_a_standard_model(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    table = predict(tmp_path / "config.json", workload="decode:8@100", **SETTINGS)
    assert {(row.m, row.k) for row in table} == {(512, 256), (256, 256), (1024, 256), (256, 512)}
    assert table.whole is not None
    apart = predict(tmp_path / "config.json", workload="decode:8@100", runtime="engine", **SETTINGS)
    assert {(row.m, row.k) for row in apart} == {(256, 256), (128, 256), (512, 256), (256, 512)}


def test_other_sizes_than_said_leave_the_layers_alone(tmp_path):
    source = folder(tmp_path, LLAMA)
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "intermediate_size": 1024}))
    assert predict(source, tokens=64, **SETTINGS).whole is None


@pytest.mark.parametrize(
    ("tensor", "node"),
    [
        ("model.layers.3.self_attn.q_proj.weight", "layer.3.query"),
        ("language_model.model.layers.0.mlp.down_proj.weight", "layer.0.down"),
        ("model.layers.1.mlp.experts.7.gate_proj.weight", "layer.1.experts.gate"),
        ("model.layers.1.block_sparse_moe.experts.0.w2.weight", "layer.1.experts.down"),
        ("bert.encoder.layer.2.attention.self.key.weight", "layer.2.key"),
        ("encoder.layer.2.output.dense.weight", "layer.2.down"),
        ("vit.encoder.layer.0.attention.output.dense.weight", "layer.0.output"),
        ("vit.embeddings.patch_embeddings.projection.weight", "patches"),
        ("transformer.h.11.attn.c_attn.weight", "layer.11.qkv"),
        ("transformer.h.3.self_attention.query_key_value.weight", "layer.3.qkv"),
        ("transformer.h.3.mlp.dense_4h_to_h.weight", "layer.3.down"),
        ("layers.2.attention.q_proj.weight", "layer.2.query"),
        ("layers.2.mlp.fc1.weight", "layer.2.up"),
        ("layers.3.self_attn.out_proj.weight", "layer.3.output"),
        ("encoder.block.5.layer.0.SelfAttention.q.weight", "layer.5.query"),
        ("encoder.block.5.layer.1.DenseReluDense.wi_0.weight", "layer.5.gate"),
        ("lm_head.weight", "head"),
        ("bert.pooler.dense.weight", None),
        ("model.layers.3.something.weight", None),
    ],
)
def test_names_of_tensors(tensor, node):
    assert node_of(tensor) == node


QWEN = {
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
    "intermediate_size": 6144,
    "vocab_size": 151936,
}


def test_a_configuration_says_what_the_table_says(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(QWEN))
    named = transformers()["qwen3-30b-a3b"]
    found = checkpoint_shape(tmp_path / "config.json")
    assert all(getattr(found, n) == getattr(named, n) for n in named.__slots__ if n != "source")


@pytest.mark.parametrize(
    "changed",
    [
        {"hidden_size": 0},
        {"hidden_size": "x"},
        {"hidden_size": None},
        {"hidden_size": 2**30},
        {"num_attention_heads": 7},
        {"num_hidden_layers": -1},
        {"vocab_size": True},
        {"intermediate_size": 1.5},
    ],
)
def test_bad_configurations(tmp_path, changed):
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, **changed}))
    with pytest.raises(BadInput, match=next(iter(changed))):
        checkpoint_shape(tmp_path / "config.json")


@pytest.mark.parametrize("text", ["", "[]", "{", "3", '{"model_type": "llama"'])
def test_no_configuration(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(BadInput, match="configuration"):
        checkpoint_shape(tmp_path / "config.json")


def test_types_that_are_not_known(tmp_path):
    source = folder(tmp_path, LLAMA)
    (tmp_path / "config.json").write_text('{"model_type": "mamba"}')
    assert checkpoint_shape(tmp_path / "config.json") is None
    assert "attention" not in predict(source, tokens=64, **SETTINGS).whole.dense.seconds_by_kind
    with pytest.raises(BadInput, match="its model_type is none of llama"):
        predict(tmp_path / "config.json", **SETTINGS)


@pytest.mark.parametrize("tokens", [2048, 16384])
def test_a_folder_in_torch_has_the_launches_of_torch_under_the_names_of_its_tensors(tmp_path, tokens):
    where = folder(tmp_path, LLAMA)
    whole = predict(where, workload=f"prefill:{tokens}", runtime="torch", **SETTINGS).whole
    kinds = set(whole.best.seconds_by_kind)
    assert {"rms norm", "rotary", "gated unit"} <= kinds
    products = [name for name, kind in whole.best.kind_of.items() if kind == "gemm"]
    assert products[:4] == [
        f"model.layers.0.{name}.weight"
        for name in (
            "self_attn.q_proj+k_proj+v_proj",
            "self_attn.o_proj",
            "mlp.gate_proj+up_proj",
            "mlp.down_proj",
        )
    ]
    # sparsify prunes gate and up together, so that the gated unit is an epilogue that writes X transposed
    kept_dense = {name for name, kernel in whole.kernels.items() if kernel == "dense"}
    before = {
        products[0]: ("norm0", "layer.0.norm2"),
        products[1]: ("layer.0.attention", "layer.1.attention"),
    }
    turned = [name for product, names in before.items() if product not in kept_dense for name in names]
    assert sorted(whole.best.turning_seconds) == sorted([*turned, "layer.0.norm1", "layer.1.norm1"])
    # With few tokens only products with the gated unit save more than their transposes cost
    assert kept_dense.issuperset(products[:2]) == (tokens == 2048)


@pytest.mark.parametrize("workload", ["prefill:2048", "decode:16@512"])
def test_a_folder_in_torch_takes_what_its_configuration_alone_takes(tmp_path, workload):
    """Which has queries, keys and values, gate and up as one product; dense, as tiles differ."""
    where = folder(tmp_path, LLAMA)
    asked = {"workload": workload, **SETTINGS}
    times = [predict(each, **asked).whole.dense.seconds for each in (where, where / "config.json")]
    assert times[0] == pytest.approx(times[1])


def test_a_folder_is_pruned_to_a_time_in_torch(tmp_path):
    where = folder(tmp_path, LLAMA)
    pruned = prune_model(
        where,
        Targets(latency_share=0.95),
        gpu="h200-sxm",
        engine="model",
        workload="prefill:512x128",
        runtime="torch",
    )
    assert pruned.result.time is not None
    assert "rms norm" in pruned.result.time.seconds_by_kind
    assert {layer.pattern.partition(":")[0] for layer in pruned.result.layers} <= {"atp", "dense"}
    attention = next(layer for layer in pruned.result.layers if "q_proj" in layer.layer)
    assert attention.layer == "model.layers.0.self_attn.q_proj+k_proj+v_proj.weight"
    assert [name.rpartition(".")[0].rpartition(".")[2] for name in attention.names] == [
        "q_proj",
        "k_proj",
        "v_proj",
    ]


def test_matrices_alone_have_no_form_in_torch():
    with pytest.raises(BadInput, match="runtime torch is of whole models"):
        predict(np.ones((64, 64), np.float16), runtime="torch", **SETTINGS)
