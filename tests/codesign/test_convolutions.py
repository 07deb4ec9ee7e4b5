"""Layers of filters: from what a user says about them to predictions."""

from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import save_file

from prunecast.codesign import explain, predict
from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.kernels import ConvGrid, ConvShape
from prunecast.launch import USUAL
from prunecast.models import estimate
from prunecast.workload import ConvSettings
from prunecast.workload.conv_settings import conv_shapes
from prunecast.workload.layer_launches import im2col_seconds
from prunecast.workload.layers import load_layers

RANDOM = np.random.default_rng(0)
NET = {
    "stem": RANDOM.standard_normal((64, 3, 7, 7)).astype(np.float16),
    "layer1.conv": RANDOM.standard_normal((128, 64, 3, 3)).astype(np.float16),
    "layer2.conv": RANDOM.standard_normal((128, 128, 3, 3)).astype(np.float16),
    "layer2.down": RANDOM.standard_normal((128, 64, 1, 1)).astype(np.float16),
    "fc": RANDOM.standard_normal((128, 512)).astype(np.float16),
}
LAYERS = tuple(load_layers(NET).layers.values())


def shapes(**settings):
    return conv_shapes(LAYERS, ConvSettings(**settings))


def quick(**options):
    return predict(
        NET, **{"gpu": "h200-sxm", "tokens": 512, "engine": "model", "crossovers": False, **options}
    )


def test_filters_of_files_and_arrays_are_layers(tmp_path):
    save_file(NET, tmp_path / "net.safetensors")
    np.savez(tmp_path / "net.npz", **NET)
    for source in (NET, tmp_path / "net.safetensors", tmp_path / "net.npz"):
        layers = load_layers(source).layers
        assert layers["layer1.conv"].weights.shape == (128, 64 * 9)
        assert tuple(layers["stem"].filters) == (3, 7, 7)
        assert layers["fc"].filters is None
        assert layers["layer1.conv"].note == "conv 128x64x3x3 reshaped to 128x576"


def test_sizes_strides_and_padding_go_to_the_layers_that_are_named():
    found = shapes(
        input_size=("56x48", "stem=224x192", "re:layer2=28x28"),
        stride=("re:stem|down=2",),
        padding=("layer2.down=0",),
        batch=4,
    )
    assert list(found) == ["stem", "layer1.conv", "layer2.conv", "layer2.down"]
    stem = found["stem"]
    assert (stem.height, stem.width, stem.stride, stem.padding) == (224, 192, 2, 3)
    assert (stem.height_out, stem.width_out, stem.n) == (112, 96, 112 * 96 * 4)
    assert (found["layer1.conv"].height, found["layer1.conv"].width_out) == (56, 48)
    down = found["layer2.down"]
    assert (down.height_out, down.padding) == (14, 0)


def test_without_a_size_filters_are_matrices_and_say_so():
    assert shapes() == {}
    row = quick(target=["layer1.conv"])[0]
    assert row.n == 512
    assert "product with 512 tokens: no input size given" in row.note


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"input_size": ("56",)}, "input: wanted HxW or SELECTOR=HxW, got '56'"),
        ({"input_size": ("1x2", "stem=ax2")}, "input: wanted HxW or SELECTOR=HxW, got 'stem=ax2'"),
        ({"stride": ("two",)}, "stride: wanted a whole number or SELECTOR=a whole number, got 'two'"),
        ({"input_size": ("fc=7x7",)}, "target 'fc' matches no tensor"),
        ({"input_size": ("2x2",), "padding": ("0",)}, "stem: convolution: filters of 7x7 do not fit"),
        ({"input_size": ("9x9",), "stride": ("0",)}, "stem: convolution: wanted sizes from 1"),
        ({"batch": 0}, "batch must be at least 1, got 0"),
        ({"product": "winograd"}, "convolution must be one of best, implicit, im2col, got 'winograd'"),
    ],
)
def test_what_cannot_be_used_is_refused(settings, message):
    with pytest.raises(BadInput, match=message):
        shapes(**settings)


def test_a_size_without_any_convolution_is_refused():
    with pytest.raises(BadInput, match="input '7x7': no layer is a convolution"):
        predict(NET["fc"], gpu="h200-sxm", tokens=16, convolutions=ConvSettings(input_size=("7x7",)))


def test_the_best_product_is_the_faster_of_the_two():
    rows = {}
    for product in ("best", "implicit", "im2col"):
        settings = ConvSettings(input_size=("28x28",), batch=32, product=product)
        rows[product] = quick(target=["layer1.conv"], convolutions=settings)
    for best, implicit, written in zip(*rows.values(), strict=True):
        assert best.n == 28 * 28 * 32
        assert best.seconds == min(implicit.seconds, written.seconds)
        assert implicit.plan.source is not None
        assert written.plan.source is None
        assert "with im2col, its time included" in written.note
        assert "without im2col" in implicit.note


def test_the_time_of_im2col_is_added():
    settings = ConvSettings(input_size=("28x28",), batch=32, product="im2col")
    gpu = load_gpu("h200-sxm")
    row = quick(target=["layer1.conv"], kernels=["stspmm"], convolutions=settings)[-1]
    conv = conv_shapes(LAYERS, settings)["layer1.conv"]
    before_s = im2col_seconds(conv, "fp16", gpu, USUAL)
    assert row.seconds == pytest.approx(estimate(row.plan, gpu).seconds + before_s, rel=1e-12)


@pytest.mark.parametrize("channels", [3, 64])
@pytest.mark.parametrize("side", [1, 2, 8])
def test_kernels_for_few_tokens_run_convolutions_after_im2col(channels, side):
    """They copy rows of B, which are there only once B is written."""
    filters = {"filters": RANDOM.standard_normal((64, channels, 3, 3)).astype(np.float16)}
    options = {"gpu": "h200-sxm", "engine": "model", "crossovers": False, "kernels": "small-n"}
    asked = {"input_size": (f"{side}x{side}",)}
    row = predict(filters, convolutions=ConvSettings(**asked), **options)[-1]
    conv = ConvShape.square(channels, side, 3, batch=1)
    before_s = im2col_seconds(conv, "fp16", load_gpu("h200-sxm"), USUAL)
    assert (row.kernel, row.n, row.plan.source) == ("small-n", side * side, None)
    assert row.seconds == pytest.approx(
        estimate(row.plan, load_gpu("h200-sxm")).seconds + before_s, rel=1e-12
    )
    with pytest.raises(
        BadInput, match="filters: small-n copies rows of B: it runs convolutions only after im2col"
    ):
        predict(filters, convolutions=ConvSettings(**asked, product="implicit"), **options)


def test_the_implicit_product_gains_most_with_many_images():
    """One fp16 pixel is 2 bytes, too short for an asynchronous copy; 64 images are 128."""
    share = {}
    for batch in (1, 64):
        seconds = {}
        for product in ("implicit", "im2col"):
            settings = ConvSettings(input_size=("56x56",), batch=batch, product=product)
            row = quick(target=["layer1.conv"], kernels=["tile-wise"], convolutions=settings)[-1]
            seconds[product] = row.seconds
        share[batch] = seconds["implicit"] / seconds["im2col"]
    assert share[64] < share[1] < 1.0


def test_crossovers_and_other_layers_go_along():
    settings = ConvSettings(input_size=("re:layer=14x14",), batch=16)
    table = quick(convolutions=settings, crossovers=True, ignore=["stem"])
    assert {row.layer: row.n for row in table} == {
        "layer1.conv": 14 * 14 * 16,
        "layer2.conv": 14 * 14 * 16,
        "layer2.down": 14 * 14 * 16,
        "fc": 512,
    }
    assert {crossover.layer for crossover in table.crossovers} == {
        "layer1.conv",
        "layer2.conv",
        "layer2.down",
        "fc",
    }


def test_explain_takes_a_convolution():
    settings = ConvSettings(input_size=("28x28",), batch=32, product="implicit")
    told = explain(
        NET, gpu="h200-sxm", tokens=1, engine="model", target=["layer1.conv"], convolutions=settings
    )
    assert told.prediction.plan.source is not None
    assert told.sections
    assert told.advice == ()


@pytest.mark.parametrize(("batch", "stride", "runs"), [(32, 1, True), (32, 2, True), (12, 1, False)])
def test_tile_kernels_are_predicted_as_they_run(batch, stride, runs):
    """Whole groups of 8 images lie among zeros, of which those behind a line are computed too."""
    settings = ConvSettings(input_size=("28x28",), stride=(str(stride),), batch=batch, product="implicit")
    row = quick(target=["layer1.conv"], kernels=["stspmm"], convolutions=settings)[-1]
    size = 28 // stride
    assert row.n == size * size * batch
    assert isinstance(row.plan.source, ConvGrid if runs else ConvShape)
    assert row.plan.n == size * (size + runs) * batch


def test_im2col_reads_and_writes_every_element_through_l2():
    """With a very fast DRAM, B is moved twice at the rate of L2."""
    gpu = replace(load_gpu("h200-sxm"), dram_copy_bytes_per_s=1e18)
    conv = ConvShape.square(64, 56, 3, batch=16)
    moving_s = im2col_seconds(conv, "fp16", gpu, USUAL) - USUAL.launch_s(gpu)
    assert moving_s == pytest.approx(2 * (2 * conv.k * conv.n) / gpu.l2_bytes_per_s)


def test_kernels_for_few_tokens_are_tried_where_a_layer_has_few() -> None:
    """The pass of an image has 512 columns by default, the last layers of a network one per image."""
    asked = {"gpu": "h200-sxm", "engine": "model", "crossovers": False}
    few = predict("vgg16", target="fc7", convolutions=ConvSettings(batch=1), runtime="engine", **asked)
    assert "small-n" in {row.kernel for row in few}
    weights = np.random.default_rng(0).standard_normal((64, 32, 3, 3), np.float32)
    for size, tried in (("4x4", True), ("16x16", False)):
        table = predict({"c": weights}, convolutions=ConvSettings(input_size=size), **asked)
        assert ("small-n" in {row.kernel for row in table}) == tried
