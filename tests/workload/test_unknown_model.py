"""A folder whose model type is not known: no weight is left out of the time."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from prunecast.codesign import predict
from prunecast.patterns.sources.readers import open_tensors
from prunecast.workload.graph import Pass
from prunecast.workload.unknown_model import parts_skipped, unknown_graph, unknown_parts

HIDDEN, INNER, STATE, RANK = 128, 256, 16, 8
SETTINGS = {"gpu": "h200-sxm", "engine": "model", "crossovers": False, "kernels": ["stspmm"]}


def shapes(layers):
    found = {"backbone.embeddings.weight": (500, HIDDEN), "backbone.norm_f.weight": (HIDDEN,)}
    found["lm_head.weight"] = (500, HIDDEN)
    for layer in range(layers):
        own = {
            "norm.weight": (HIDDEN,),
            "mixer.A_log": (INNER, STATE),
            "mixer.D": (INNER,),
            "mixer.conv1d.weight": (INNER, 1, 4),
            "mixer.conv1d.bias": (INNER,),
            "mixer.in_proj.weight": (2 * INNER, HIDDEN),
            "mixer.x_proj.weight": (RANK + 2 * STATE, INNER),
            "mixer.dt_proj.weight": (INNER, RANK),
            "mixer.dt_proj.bias": (INNER,),
            "mixer.out_proj.weight": (HIDDEN, INNER),
        }
        found |= {f"backbone.layers.{layer}.{name}": shape for name, shape in own.items()}
    return found


@pytest.fixture
def mamba(tmp_path):
    rng = np.random.default_rng(0)
    tensors = {name: rng.standard_normal(shape).astype(np.float16) for name, shape in shapes(2).items()}
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mamba"}))
    return tmp_path


def test_every_weight_is_in_one_place(mamba):
    stored = open_tensors(mamba)
    graph = unknown_graph("mamba", stored, Pass(1, 64, all_logits=False))
    biases = sum(tensor.elements for name, tensor in stored.items() if name.endswith("dt_proj.bias"))
    parts = sum(unknown_parts(stored).values())
    total = sum(tensor.elements for tensor in stored.values())
    assert graph.weights + graph.looked_up + parts + biases == total
    assert {o.name for o in graph if o.kind == "unknown"} == set(unknown_parts(stored))
    assert graph["lm_head.weight"].n == 1
    assert graph["backbone.layers.0.mixer.in_proj.weight"].n == 64


def test_unknown_parts_cost_time_and_are_listed(mamba):
    table = predict(mamba, workload="decode:4@64", **SETTINGS)
    assert table.whole.dense.seconds_by_kind["unknown"] > 0
    assert table.whole.best.seconds_by_kind["unknown"] == table.whole.dense.seconds_by_kind["unknown"]
    lines = {each.layer: each.reason for each in table.skipped}
    assert lines["config.json"].startswith("model_type 'mamba' is not known: its matrices count")
    mixer = lines["backbone.layers.*.mixer"]
    assert mixer.endswith(f"memory of its {INNER * STATE + INNER:,} weights (2 alike)")
    assert lines["backbone.norm_f"].endswith(f"{HIDDEN} weights")
    assert {part.layer for part in parts_skipped(open_tensors(mamba))} <= lines.keys()


def test_without_a_type_only_matrices_count(mamba):
    (mamba / "config.json").write_text("{}")
    table = predict(mamba, workload="decode:4@64", **SETTINGS)
    assert table.whole is None
    assert any("only the matrices are counted" in each.reason for each in table.skipped)
