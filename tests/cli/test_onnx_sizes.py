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
    _, out, _ = run("predict", "conv.onnx", *FAST, "--no-crossovers")
    assert "skipped: c2: no product" in out


def test_rows_of_activations_are_tokens(run):
    wanted = {"up": (256, 64, 4096), "down": (64, 256, 4096)}
    assert sizes(run, "predict", "mlp.onnx", "-n", "4096", "--no-crossovers") == wanted
    assert sizes(run, "prune", "mlp.onnx", "-n", "4096", "--latency", "100%", "-o", "out") == wanted


def test_tokens_without_effect_are_refused(run):
    code, _, err = run("prune", "conv.onnx", "-n", "4096", "--latency", "100%", "-o", "out", *FAST)
    assert code == 2
    assert "tokens have no effect" in err


def test_what_a_user_says_of_convolutions_counts(run):
    predicted = sizes(run, "predict", "conv.onnx", "--target", "c1", "--input", "32x32", "--no-crossovers")
    assert predicted == {"c1": (32, 144, 32 * 32)}
