"""ONNX files as graphs: sizes, kinds, and what runs as one kernel."""

import onnx
import pytest

from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.workload.graph import Pass, load_pass, model_time
from prunecast.workload.onnx_model.read_model import read_onnx_model
from tests import onnx_files


@pytest.fixture
def read(tmp_path):
    def read(made, *, batch=2, tokens=128):
        onnx.save(made, tmp_path / "m.onnx")
        return read_onnx_model(tmp_path / "m.onnx", batch=batch, tokens=tokens)

    return read


def kinds(model):
    return {operation.name: operation.kind for operation in model.graph}


def test_attention_is_products_mixing_and_one_pass_of_sum_and_norm(read):
    model = read(onnx_files.attention())
    assert kinds(model) == {
        "x": "input",
        **dict.fromkeys(onnx_files.ATTENTION, "gemm"),
        "scores": "attention",
        "p": "normalise",
        "mixed": "attention",
        "odd": "unknown",
        "sum": "normalise",
    }
    assert model.unknown == {"Odd": 1}
    product = model.graph["wk"]
    assert (product.m, product.k, product.n) == (64, 64, 2 * 128)
    assert model.graph["scores"].flops == 2 * 2 * 128 * 128 * 64
    assert model.graph["sum"].elements_in == 2 * 2 * 128 * 64
    assert set(model.graph.graph.predecessors("sum")) == {"wo", "x"}


def test_an_activation_of_five_operators_belongs_to_its_product(read):
    model = read(onnx_files.gelu_mlp())
    assert kinds(model) == {"x": "input", "up": "gemm", "down": "gemm"}
    assert list(model.graph.graph.predecessors("down")) == ["up"]
    assert (model.graph["up"].m, model.graph["up"].k, model.graph["up"].n) == (256, 64, 128)


def test_convolutions_know_their_pixels_and_sizes_cost_nothing(read):
    model = read(onnx_files.conv_net(), batch=4)
    assert kinds(model) == {"x": "input", "c1": "gemm", "c2": "unknown", "d": "pool", "w": "gemm"}
    first = model.graph["c1"]
    assert (first.m, first.k, first.n) == (32, 16 * 9, 4 * 8 * 8)
    assert first.convolution is not None
    assert first.n == 4 * first.convolution.height_out * first.convolution.width_out
    assert (model.graph["w"].m, model.graph["w"].k, model.graph["w"].n) == (100, 32, 4)
    assert model.unknown == {"Conv": 1}  # depthwise


def test_a_layer_of_bert_takes_the_time_that_the_standard_model_says(read):
    """The same layer, once out of single operators and once as `bert-base` has it."""
    width, wide = 768, 3072
    nodes = [
        *(onnx_files.node("MatMul", f"x w{part}", part) for part in "qkv"),
        onnx_files.node("Transpose", "k", "kt", perm=[0, 2, 1]),
        onnx_files.node("MatMul", "q kt", "s"),
        onnx_files.node("Softmax", "s", "p", axis=-1),
        onnx_files.node("MatMul", "p v", "m"),
        onnx_files.node("MatMul", "m wo", "o"),
        onnx_files.node("Add", "o x", "r"),
        onnx_files.node("LayerNormalization", "r g", "n"),
        onnx_files.node("MatMul", "n wu", "u"),
        onnx_files.node("Gelu", "u", "a"),
        onnx_files.node("MatMul", "a wd", "d"),
        onnx_files.node("Add", "d n", "t"),
        onnx_files.node("LayerNormalization", "t g", "y"),
    ]
    constants = {f"w{part}": onnx_files.weights(width, width) for part in "qkvo"}
    constants |= {"wu": onnx_files.weights(width, wide), "wd": onnx_files.weights(wide, width)}
    made = onnx_files.model(
        nodes, {"x": ["b", "s", width]}, "y", constants | {"g": onnx_files.weights(width)}
    )
    made.opset_import[0].version = 20
    graph = read(made, batch=8, tokens=512).graph
    gpu = load_gpu("h200-sxm")
    ours = model_time(graph, gpu, dict.fromkeys(graph.products, 0.0))
    whole = load_pass("bert-base", Pass(8, 512))
    theirs = model_time(whole, gpu, dict.fromkeys(whole.products, 0.0))
    by_kind = {kind: seconds / 12 for kind, seconds in theirs.seconds_by_kind.items()}
    assert ours.seconds_by_kind["normalise"] > by_kind["normalise"]  # softmax is a kernel of its own here
    sums = [ours.seconds_of[name] for name in ("r", "t")]
    assert sum(sums) == pytest.approx(by_kind["normalise"])
    standard = [(p.m, p.k) for name, p in whole.products.items() if name.startswith("layer.0.")]
    standard.remove((3 * width, width))  # a file's products stay those of its weights
    assert sorted((p.m, p.k) for p in graph.products.values()) == sorted(standard + 3 * [(width, width)])


def test_a_weight_that_two_products_share_is_pruned_for_the_first(read):
    nodes = [onnx_files.node("MatMul", "x w", "a"), onnx_files.node("MatMul", "a w", "y")]
    made = onnx_files.model(nodes, {"x": ["n", 64]}, "y", {"w": onnx_files.weights(64, 64)})
    assert set(read(made).graph.products) == {"w", "w#2"}


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (onnx_files.model([onnx_files.node("Relu", "x", "y")], {"x": [4, 4]}, "y", {}), "wanted a MatMul"),
        (
            onnx_files.model(
                [onnx_files.node("Conv", "x w", "y")],
                {"x": ["n", 3, "h", "w"]},
                "y",
                {"w": onnx_files.weights(8, 3, 3, 3)},
            ),
            "no fixed height and width",
        ),
        (
            onnx_files.model(
                [onnx_files.node("MatMul", "x w", "y")], {"x": ["n", 5]}, "y", {"w": onnx_files.weights(8, 8)}
            ),
            "cannot be told|do not fit",
        ),
    ],
)
def test_what_cannot_be_costed_is_refused(read, made, said):
    with pytest.raises(BadInput, match=said):
        read(made)


@pytest.mark.parametrize(("batch", "tokens"), [(0, 1), (1, 0)])
def test_sizes_start_at_one(read, batch, tokens):
    with pytest.raises(BadInput, match="at least 1"):
        read(onnx_files.attention(), batch=batch, tokens=tokens)
