"""One model, one answer: by its name, folder, `config.json`, module and ONNX file."""

import json

import numpy as np
import onnx
import pytest
from safetensors.numpy import save_file

from prunecast.codesign import predict
from prunecast.workload.graph import Pass, load_pass, parse_workload
from prunecast.workload.load import SPLIT_ATTENTION, load_workload
from tests import onnx_files

SETTINGS = {"gpu": "h200-sxm", "engine": "model", "crossovers": False, "kernels": ["stspmm"]}
LLAMA = {
    "model_type": "llama",
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 512,
    "vocab_size": 1000,
    "dtype": "float16",
}
QWEN = {**LLAMA, "model_type": "qwen2", "intermediate_size": 1024, "tie_word_embeddings": True}
BERT = {
    "model_type": "bert",
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
    "vocab_size": 1000,
}


def tensors(config):
    """Weights under the names of transformers."""
    hidden, wide = config["hidden_size"], config["intermediate_size"]
    found = {}
    for layer in range(config["num_hidden_layers"]):
        if config["model_type"] == "bert":
            before = f"bert.encoder.layer.{layer}"
            shapes = {f"attention.self.{name}": (hidden, hidden) for name in ("query", "key", "value")}
            shapes |= {"attention.output.dense": (hidden, hidden), "intermediate.dense": (wide, hidden)}
            shapes["output.dense"] = (hidden, wide)
        else:
            before = f"model.layers.{layer}"
            shapes = {f"self_attn.{name}_proj": (hidden, hidden) for name in "qo"}
            shapes |= {f"self_attn.{name}_proj": (hidden // 2, hidden) for name in "kv"}
            shapes |= {f"mlp.{name}_proj": (wide, hidden) for name in ("gate", "up")}
            shapes["mlp.down_proj"] = (hidden, wide)
        found |= {f"{before}.{name}.weight": shape for name, shape in shapes.items()}
    if config["model_type"] == "llama":
        found["lm_head.weight"] = (config["vocab_size"], hidden)
    random = np.random.default_rng(0)
    return {name: random.standard_normal(shape).astype(np.float16) for name, shape in found.items()}


class Module:
    """A module of transformers, as far as a prediction reads it."""

    def __init__(self, config):
        self.config = self
        self.to_dict = lambda: config
        self.state_dict = lambda: tensors(config)


@pytest.mark.parametrize("runtime", [None, "engine"])
@pytest.mark.parametrize("workload", [None, "prefill:2x256"])
@pytest.mark.parametrize("config", [LLAMA, QWEN, BERT], ids=lambda config: config["model_type"])
def test_folder_configuration_and_module_have_one_answer(tmp_path, config, workload, runtime):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors(config), folder / "model.safetensors")
    asked = {"workload": workload, "runtime": runtime, **SETTINGS}
    tables = [predict(source, **asked) for source in (folder, folder / "config.json", Module(config))]
    for table in tables[1:]:
        first = tables[0].whole.phases[0]
        (phase,) = table.whole.phases
        assert phase.run == first.run
        assert table.provenance.conditions.l2 == tables[0].provenance.conditions.l2
        assert table.provenance.runtime == tables[0].provenance.runtime
        assert {row.dtype for row in table} == {row.dtype for row in tables[0]}
        assert phase.dense.time.seconds == pytest.approx(first.dense.time.seconds)
        assert phase.dense.memory == first.dense.memory
        assert phase.dense.time.seconds_by_kind == pytest.approx(first.dense.time.seconds_by_kind)
        assert phase.best.time.seconds == pytest.approx(first.best.time.seconds, rel=0.05)
        if sorted(table.whole.kernels.values()) != sorted(tables[0].whole.kernels.values()):
            continue  # tiles of other weights have other times, by which another kernel can be chosen
        kinds = [p.best.time.seconds_by_kind for p in (phase, first)]
        for kind in kinds[0]:
            assert kinds[0][kind] == pytest.approx(kinds[1][kind], rel=0.1 if kind == "gemm" else 1e-9)


@pytest.mark.parametrize("name", ["bert-base", "llama-3.2-1b", "qwen2.5-0.5b"])
def test_a_name_and_its_configuration_have_one_answer(tmp_path, name):
    kinds = {"bert-base": "bert", "llama-3.2-1b": "llama", "qwen2.5-0.5b": "qwen2"}
    products = load_pass(name, parse_workload("batch:8")[0], "engine")
    attention = next(o.attention for o in products if o.attention is not None)
    up = next(o for o in products.products.values() if o.name.endswith("up"))
    config = {
        "model_type": kinds[name],
        "hidden_size": up.k,
        "num_hidden_layers": sum(o.attention is not None for o in products),
        "num_attention_heads": attention.heads,
        "num_key_value_heads": attention.key_heads,
        "head_dim": attention.head_width,
        "intermediate_size": up.m,
        "vocab_size": products["head"].m if products.has_product("head") else 30522,
        "tie_word_embeddings": name != "bert-base",
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    by_name, by_config = (predict(each, **SETTINGS) for each in (name, tmp_path / "config.json"))
    assert by_config.whole.dense.seconds == pytest.approx(by_name.whole.dense.seconds, rel=0.01)
    assert by_config.whole.best.seconds == pytest.approx(by_name.whole.best.seconds, rel=0.01)
    assert by_config.provenance.conditions.l2 == by_name.provenance.conditions.l2


def test_what_differs_is_said(tmp_path):
    onnx.save(onnx_files.attention(), tmp_path / "m.onnx")
    reasons = {one.layer: one.reason for one in predict(tmp_path / "m.onnx", **SETTINGS).skipped}
    assert "operators of a file" in reasons["torch"]
    assert reasons["attention"] == SPLIT_ATTENTION.reason
    experts = predict("mixtral-8x7b", workload="decode:1@16", **SETTINGS)
    assert experts.provenance.runtime == "engine"
    assert any("experts, of which the form in torch is not known" in one.reason for one in experts.skipped)


class Plain:
    """A module without a configuration."""

    def state_dict(self):
        return {"a.weight": np.ones((64, 64), np.float16)}


def test_a_module_without_a_configuration_says_that_only_its_matrices_count():
    (left,) = predict(Plain(), tokens=64, **SETTINGS).skipped
    assert left.layer == "Plain"
    assert "only the matrices are counted" in left.reason


@pytest.mark.parametrize(
    "asked",
    [
        {"pattern": "shuffled-block:64"},
        {"kernels": "tile-wise"},
        {"dtype": "fp8", "kernels": "dense"},
        {"pattern": "balanced:64", "kernels": "all"},
    ],
)
def test_what_runs_only_in_an_engine_is_predicted_there(asked):
    assert predict("bert-small", **{**SETTINGS, **asked}).provenance.runtime == "engine"


def test_large_models_in_torch_stand_for_each_of_their_layers(monkeypatch):
    asked = {"workload": "prefill:256", **SETTINGS}
    apart = predict("llama-3.2-1b", **asked).whole
    monkeypatch.setattr("prunecast.workload.graph.workloads.MOST_APART", 0)
    together = predict("llama-3.2-1b", **asked).whole
    assert together.dense.seconds == pytest.approx(apart.dense.seconds)
    for kind, seconds in apart.best.seconds_by_kind.items():
        assert together.best.seconds_by_kind[kind] == pytest.approx(seconds, rel=0.1)


def test_the_bound_is_the_time_of_what_no_launch_can_hide():
    (phase,) = predict("bert-small", **SETTINGS).whole.phases
    for side in (phase.dense, phase.best):
        of = side.time.seconds_by_kind
        assert side.fused_s == pytest.approx(of["gemm"] + of["attention"])
        assert side.fused_s < side.time.seconds


def test_joint_products_too_large_to_be_drawn_leave_a_model_to_an_engine():
    workload = load_workload("llama-3-70b", [Pass(1, 64)], runtime=None)
    assert workload.runtime == "engine"
    assert any("random weights have at most" in each.reason for each in workload.skipped)
    assert load_workload("llama-3-8b", [Pass(1, 64)], runtime=None).runtime == "torch"  # its head is larger
