"""Damaged ONNX files as whole models: a graph, or one line that says why not."""

import pytest
from hypothesis import given

from prunecast.workload.onnx_model.read_model import OnnxModel, read_onnx_model
from tests import onnx_files
from tests.hardening.test_fuzz_weights import MUCH, damage, damaged

MADE = {"attention": onnx_files.attention(8), "gelu": onnx_files.gelu_mlp(8), "conv": onnx_files.conv_net()}


@pytest.mark.parametrize("name", MADE)
@MUCH
@given(changes=damage())
def test_damage(tmp_path, name, changes, usable_or_refused):
    (tmp_path / "m.onnx").write_bytes(damaged(MADE[name].SerializeToString(), changes))
    found = usable_or_refused(lambda: read_onnx_model(tmp_path / "m.onnx", batch=2, tokens=16))
    if isinstance(found, OnnxModel):
        assert found.graph.products


def test_text_that_is_none_is_one_line(tmp_path, usable_or_refused):
    """Wherever it stands: the parser takes it, and refuses only to show it."""
    content = MADE["attention"].SerializeToString()
    for name in {node.op_type.encode() for node in MADE["attention"].graph.node} | {b"batch", b"ai.onnx"}:
        (tmp_path / "m.onnx").write_bytes(content.replace(name, b"\xff" * len(name)))
        usable_or_refused(lambda: read_onnx_model(tmp_path / "m.onnx", batch=2, tokens=16))
