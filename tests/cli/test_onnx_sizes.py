"""Sizes of ONNX files are those of their graphs in `predict` and `prune`; no option is ignored."""

import json

import onnx
import pytest

from tests import onnx_files

FAST = ("--engine", "model")


@pytest.fixture(autouse=True)
def models(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    onnx.save(onnx_files.conv_net(), "conv.onnx")
    onnx.save(onnx_files.gelu_mlp(), "mlp.onnx")


def sizes(run, *arguments):
    code, out, err = run(*arguments, *FAST, "--json")
    assert code == 0, err
    document = json.loads(out)
    return {
        row["layer"]: (row["m"], row["k"], row["n"])
        for row in document.get("predictions", document.get("layers"))
    }


def test_convolutions_have_the_pixels_of_the_graph(run):
    predicted = sizes(run, "predict", "conv.onnx", "--batch", "8", "--no-crossovers")
    assert predicted == {"c1": (32, 144, 8 * 8 * 8), "w": (100, 32, 8)}
    assert predicted == sizes(run, "prune", "conv.onnx", "--batch", "8", "--latency", "100%", "-o", "out")


def test_a_depthwise_convolution_is_no_product(run):
    for size in ((), ("--input", "16x16")):
        _, out, _ = run("predict", "conv.onnx", *size, *FAST, "--no-crossovers")
        assert "skipped: c2: groups are not timed: a convolution of 32 groups" in out


def test_rows_of_activations_are_tokens(run):
    wanted = {"up": (256, 64, 4096), "down": (64, 256, 4096)}
    assert sizes(run, "predict", "mlp.onnx", "-n", "4096", "--no-crossovers") == wanted
    assert sizes(run, "prune", "mlp.onnx", "-n", "4096", "--latency", "100%", "-o", "out") == wanted


@pytest.mark.parametrize("command", [("predict",), ("prune", "--latency", "100%", "-o", "out"), ("explain",)])
@pytest.mark.parametrize(
    ("model", "option", "message"),
    [
        (
            "conv.onnx",
            ("-n", "64"),
            "tokens have no effect, the file fixes these sizes: leave out --tokens 64",
        ),
        (
            "mlp.onnx",
            ("--batch", "4"),
            "batch has no effect, the file fixes these sizes: leave out --batch 4",
        ),
    ],
)
def test_sizes_without_effect_are_refused(run, command, model, option, message):
    name, *more = command
    code, _, err = run(name, model, *more, *option, *FAST)
    assert code == 2
    assert message in err


def test_an_image_of_another_size_has_the_strides_of_the_file(run):
    predicted = sizes(run, "predict", "conv.onnx", "--target", "c1", "--input", "32x32", "--no-crossovers")
    assert predicted == {"c1": (32, 144, 8 * 16 * 16)}  # 8 images
