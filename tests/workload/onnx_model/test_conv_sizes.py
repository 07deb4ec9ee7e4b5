"""Output pixels of ONNX convolutions, with and without `--input`, against a count of filter positions."""

import math

import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prunecast.codesign import predict
from prunecast.errors import BadInput
from prunecast.workload import ConvSettings
from tests import onnx_files

FILTERS = 16


def positions(size, kernel, stride, dilation, pads):
    """Count the places of a filter along one axis: start at the first zero, step while its end still fits.

    `pads` are the zeros before and after, or `SAME`: as many as give every step of the input one place.
    """
    if pads == "SAME":
        return len(range(0, size, stride))
    start, count = -pads[0], 0
    while start + (kernel - 1) * dilation < size + pads[1]:
        start, count = start + stride, count + 1
    return count


@st.composite
def convolutions(draw):
    """Attributes of a Conv, its filters, and an image that it fits."""
    two = st.tuples(st.integers(1, 3), st.integers(1, 3))
    kernel, strides, dilations = draw(st.tuples(st.integers(1, 4), st.integers(1, 4))), draw(two), draw(two)
    padding = draw(st.sampled_from(("none", "pads", "equal", "SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET")))
    pads = draw(st.tuples(*4 * [st.integers(0, 2)])) if padding in ("pads", "NOTSET") else (0, 0, 0, 0)
    if padding == "equal":
        pads = 4 * (draw(st.integers(1, 2)),)
    least = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    image = tuple(draw(st.integers(size, size + 9)) for size in least)
    attributes = {"strides": strides, "dilations": dilations}
    attributes = {
        name: list(value) for name, value in attributes.items() if draw(st.booleans()) or max(value) > 1
    }
    if padding.startswith(("SAME", "VALID", "NOTSET")):
        attributes["auto_pad"] = padding
    if any(pads):
        attributes["pads"] = list(pads)
    sides = 2 * ["SAME"] if padding.startswith("SAME") else [(pads[0], pads[2]), (pads[1], pads[3])]
    out = [positions(*numbers) for numbers in zip(image, kernel, strides, dilations, sides, strict=True)]
    return attributes, kernel, image, out


def saved(folder, attributes, kernel, image, *, channels=8, groups=1):
    node = onnx_files.node("Conv", "x w", "y", **attributes, **({"group": groups} if groups > 1 else {}))
    weights = {"w": onnx_files.weights(FILTERS, channels // groups, *kernel)}
    path = folder / "conv.onnx"
    onnx.save(onnx_files.model([node], {"x": ["n", channels, *image]}, "y", weights), path)
    return path


def row(path, *, input_size=(), batch=2):
    asked = ConvSettings(input_size=input_size, batch=batch)
    options = {"gpu": "h200-sxm", "engine": "model", "kernels": "dense", "crossovers": False}
    return predict(path, convolutions=asked, **options)[0]


@settings(max_examples=40, deadline=None)
@given(convolutions())
def test_pixels_are_the_places_of_the_filter_whoever_states_the_image(tmp_path_factory, drawn):
    attributes, kernel, image, out = drawn
    folder, text = tmp_path_factory.mktemp("conv"), "x".join(str(size) for size in image)
    wanted = (FILTERS, 8 * math.prod(kernel), 2 * math.prod(out))
    fixed = row(saved(folder, attributes, kernel, image))
    assert (fixed.m, fixed.k, fixed.n) == wanted
    assert row(saved(folder, attributes, kernel, image), input_size=(text,)).seconds == fixed.seconds
    for other in ((size + 5 for size in image), ("h", "w")):
        given_by_user = row(saved(folder, attributes, kernel, other), input_size=(text,))
        assert (given_by_user.m, given_by_user.k, given_by_user.n) == wanted
        assert given_by_user.seconds == fixed.seconds


@pytest.mark.parametrize("input_size", [(), ("8x8",)])
@pytest.mark.parametrize("groups", [2, 8])
def test_a_grouped_convolution_is_not_timed_as_a_dense_one(tmp_path, groups, input_size):
    path = saved(tmp_path, {}, (3, 3), (8, 8), groups=groups)
    with pytest.raises(BadInput, match=f"w: groups are not timed: a convolution of {groups} groups"):
        row(path, input_size=input_size)


@pytest.mark.parametrize("input_size", [(), ("8x8",)])
def test_an_auto_pad_that_onnx_does_not_define_is_refused(tmp_path, input_size):
    path = saved(tmp_path, {"auto_pad": "SAME"}, (3, 3), (8, 8))
    with pytest.raises(BadInput, match=r"w: auto_pad must be one of NOTSET, VALID, .*, got 'SAME'"):
        row(path, input_size=input_size)


def test_padding_that_differs_between_sides_is_noted(tmp_path):
    """A stride of 2 with SAME pads one pixel, after the last one."""
    path = saved(tmp_path, {"auto_pad": "SAME_UPPER", "strides": [2, 2]}, (3, 3), (8, 8))
    found = row(path)
    assert found.n == 2 * 4 * 4
    assert "a stride or padding that differs between sides" in found.note
    assert "no input size" not in found.note


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            {"input_size": ("w=8x8",)},
            r"input 'w=8x8': wanted HxW or NAME=HxW with an input of the file \(x\)",
        ),
        ({"input_size": ("8",)}, "input: wanted HxW or SELECTOR=HxW, got '8'"),
        ({"stride": ("2",)}, "says its strides and pads: leave out --stride 2"),
        ({"padding": ("0",)}, "says its strides and pads: leave out --padding 0"),
        ({"input_size": ("2x2",)}, "sizes"),
    ],
)
def test_options_that_contradict_the_file_are_refused(tmp_path, asked, message):
    path = saved(tmp_path, {}, (3, 3), (8, 8))
    with pytest.raises(BadInput, match=message):
        predict(path, gpu="h200-sxm", engine="model", convolutions=ConvSettings(**asked))


def test_an_image_that_a_later_product_does_not_fit_is_refused(tmp_path):
    """Flattened pixels are inputs of the classifier, whose number its weight fixes."""
    nodes = [
        onnx_files.node("Conv", "x c", "a"),
        onnx_files.node("Flatten", "a", "b"),
        onnx_files.node("Gemm", "b w", "y"),
    ]
    constants = {"c": onnx_files.weights(8, 8, 3, 3), "w": onnx_files.weights(8 * 36, 16)}
    path = tmp_path / "net.onnx"
    onnx.save(onnx_files.model(nodes, {"x": ["n", 8, 8, 8]}, "y", constants), path)
    assert row(path, input_size=("8x8",)).n == 2 * 36
    with pytest.raises(BadInput, match=r"\.onnx: w: sizes of its input and output cannot be told"):
        row(path, input_size=("10x10",))
