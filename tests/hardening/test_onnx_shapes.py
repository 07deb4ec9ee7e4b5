"""ONNX models whose sizes make no product: one line each."""

import numpy as np
import onnx
import pytest

from prunecast.errors import BadInput
from prunecast.workload.onnx_model.read_model import read_onnx_model
from tests import onnx_files
from tests.onnx_files import node

NONE = np.zeros((64, 0), np.float32)
MODELS = {
    "scalar": ([node("MatMul", "x y", "z"), node("MatMul", "x w", "o")], {"x": [], "y": []}, {}),
    "no columns": ([node("MatMul", "x w", "o")], {"x": ["n", 64]}, {"w": NONE}),
    "no rows": ([node("Gemm", "x w", "o", transB=1)], {"x": ["n", 64]}, {"w": NONE.T}),
    "no filters": (
        [node("Conv", "x w", "o", kernel_shape=[3, 3])],
        {"x": ["n", 3, 8, 8]},
        {"w": np.zeros((0, 3, 3, 3), np.float32)},
    ),
    "2^33 tokens": ([node("MatMul", "x w", "o")], {"x": [2**33, 64]}, {}),
    "2^30 tokens": ([node("MatMul", "x w", "o")], {"x": [2**15, 2**15, 64]}, {}),
    "2^30 tokens of a filter": (
        [node("Conv", "x w", "o", kernel_shape=[1, 1])],
        {"x": [2**10, 3, 2**10, 2**10]},
        {"w": np.ones((64, 3, 1, 1), np.float32)},
    ),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("command", ["predict", "prune"])
def test_one_line_or_a_table(run, tmp_path, monkeypatch, name, command):
    monkeypatch.chdir(tmp_path)
    nodes, inputs, constants = MODELS[name]
    made = onnx_files.model(
        nodes, inputs, nodes[-1].output[0], {"w": onnx_files.weights(64, 64), **constants}
    )
    onnx.save(made, "m.onnx")
    options = {"predict": (), "prune": ("--latency", "90%", "-o", "out")}[command]
    code, out, err = run(command, "m.onnx", "--engine", "model", "-n", "64", *options)
    assert code in (0, 2), err
    assert (code == 0) == bool(out)
    assert err.count("\n") == code // 2


@pytest.mark.parametrize("dims", [[2**31], [2**30], [2**20, 2**20], [-1]])
def test_a_constant_that_says_more_than_it_holds(tmp_path, dims):
    """Inference of shapes would make room for all that it says."""
    model = onnx_files.gelu_mlp()
    model.graph.initializer[2].dims[:] = dims
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(BadInput, match="a constant must hold its elements"):
        read_onnx_model(tmp_path / "m.onnx", batch=1, tokens=1)


@pytest.mark.parametrize("lost", ["input", "output"])
def test_a_product_of_one_tensor(tmp_path, lost):
    model = onnx_files.gelu_mlp()
    product = next(node for node in model.graph.node if node.op_type in ("MatMul", "Gemm"))
    del getattr(product, lost)[-1:]
    if lost == "input":
        del product.input[1:]
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(BadInput):
        read_onnx_model(tmp_path / "m.onnx", batch=1, tokens=1)
