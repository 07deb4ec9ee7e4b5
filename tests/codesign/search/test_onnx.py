"""A whole ONNX file, pruned to a time."""

import json

import numpy as np
import onnx
import pytest
from safetensors.numpy import load_file

from prunecast.codesign.search import Targets, prune_model
from prunecast.errors import BadInput
from tests import onnx_files


def test_a_file_is_pruned_to_a_share_of_its_time(tmp_path):
    onnx.save(onnx_files.gelu_mlp(1024), tmp_path / "m.onnx")
    asked = {"gpu": "h200-sxm", "tokens": 4096, "engine": "model"}
    pruned = prune_model(tmp_path / "m.onnx", Targets(latency_share=0.7), out=tmp_path / "out", **asked)
    assert pruned.result.seconds <= 0.7 * pruned.result.dense_seconds
    assert pruned.result.time is not None
    arrays = load_file(tmp_path / "out" / "weights.safetensors")
    assert {layer.layer for layer in pruned.result.layers} == {"up", "down"}
    for layer in pruned.result.layers:
        assert np.mean(arrays[layer.layer] == 0) == pytest.approx(layer.removed, abs=1e-6)
    assert json.loads((tmp_path / "out" / "recipe.json").read_text())["source"].endswith("m.onnx")


def test_selected_weights_must_be_those_of_products(tmp_path):
    onnx.save(onnx_files.conv_net(), tmp_path / "m.onnx")
    with pytest.raises(BadInput, match="none of the selected weights"):
        prune_model(tmp_path / "m.onnx", Targets(latency_share=0.7), gpu="h200-sxm", target=["c2"])
