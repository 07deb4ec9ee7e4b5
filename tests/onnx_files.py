"""Small ONNX models for tests."""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["ATTENTION", "attention", "conv_net", "gelu_mlp", "model", "node", "weights"]

ATTENTION = ("layer.q.MatMul", "wk", "wv", "wo")


def weights(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def node(kind: str, read: str, written: str, **more) -> onnx.NodeProto:
    return helper.make_node(kind, read.split(), written.split(), **more)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[int | str]],
    output: str,
    constants: Mapping[str, np.ndarray],
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("odd", 1)], ir_version=9
    )


def attention(width: int = 64) -> onnx.ModelProto:
    """Attention over (batch, seq, width), an operator that nobody knows, a residual sum and a norm."""
    nodes = [
        node("MatMul", "x onnx::MatMul_1", "q0", name="/layer/q/MatMul"),
        node("Add", "q0 bias", "q"),
        node("MatMul", "x wk", "k"),
        node("MatMul", "x wv", "v"),
        node("Transpose", "k", "kt", perm=[0, 2, 1]),
        node("MatMul", "q kt", "scores"),
        node("Softmax", "scores", "p", axis=-1),
        node("MatMul", "p v", "mixed"),
        node("Odd", "mixed", "odd", domain="odd"),
        node("MatMul", "mixed wo", "o"),
        node("Add", "o x", "sum"),
        node("LayerNormalization", "sum scale", "y"),
    ]
    constants = {
        name: weights(width, width, seed=seed)
        for seed, name in enumerate(("onnx::MatMul_1", "wk", "wv", "wo"))
    }
    constants |= {"bias": weights(width), "scale": weights(width)}
    return model(nodes, {"x": ["batch", "seq", width]}, "y", constants)


def gelu_mlp(width: int = 64) -> onnx.ModelProto:
    """Two products with a GELU out of five operators between them."""
    nodes = [
        node("Gemm", "x up bias", "u", transB=1),
        node("Div", "u root", "d"),
        node("Erf", "d", "e"),
        node("Add", "e one", "f"),
        node("Mul", "u f", "g"),
        node("Mul", "g half", "h"),
        node("MatMul", "h down", "y"),
    ]
    numbers = {name: np.float32(value) for name, value in (("root", 2**0.5), ("one", 1.0), ("half", 0.5))}
    constants = {
        "up": weights(4 * width, width),
        "down": weights(4 * width, width),
        "bias": weights(4 * width),
    }
    return model(nodes, {"x": ["n", width]}, "y", constants | {k: np.array(v) for k, v in numbers.items()})


def conv_net() -> onnx.ModelProto:
    """A strided convolution, a depthwise one, a pool, a classifier behind a reshape of computed size."""
    nodes = [
        node("Conv", "x c1", "a", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Relu", "a", "b"),
        node("Conv", "b c2", "c", kernel_shape=[3, 3], pads=[1, 1, 1, 1], group=32),
        node("GlobalAveragePool", "c", "d"),
        node("Shape", "d", "s"),
        node("Gather", "s zero", "s0"),
        node("Unsqueeze", "s0 axes", "s1"),
        node("Concat", "s1 rest", "shape", axis=0),
        node("Reshape", "d shape", "flat"),
        node("Gemm", "flat w", "y", transB=1),
    ]
    constants = {"c1": weights(32, 16, 3, 3), "c2": weights(32, 1, 3, 3), "w": weights(100, 32)}
    sizes = {"zero": np.array(0), "axes": np.array([0]), "rest": np.array([-1])}
    return model(nodes, {"x": ["n", 16, 16, 16]}, "y", constants | sizes)
