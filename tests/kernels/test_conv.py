import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prunecast.choice import fastest_plan
from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.kernels import (
    ConvShape,
    compile,
    im2col_bytes,
    implicit_plan,
    plan_dense,
    run_reference,
)
from prunecast.patterns import parse_pattern
from prunecast.plan.program import Op
from tests.naive.convolution import convolve, pixels_read

H200, T4 = load_gpu("h200-sxm"), load_gpu("t4")
PATTERNS = {"tile-wise": "tile-wise:16", "stspmm": "atp:16", "2:4": "2:4", "csr": "unstructured"}


@st.composite
def convolutions(draw):
    kernel_h, kernel_w = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    padding = draw(st.integers(0, 2))
    return ConvShape(
        channels=draw(st.integers(1, 5)),
        height=draw(st.integers(kernel_h, 6)),
        width=draw(st.integers(kernel_w, 6)),
        kernel_h=kernel_h,
        kernel_w=kernel_w,
        stride=draw(st.integers(1, 3)),
        padding=padding,
        batch=draw(st.integers(1, 3)),
    )


def source_of(conv, random):
    return random.normal(size=(conv.channels, conv.height, conv.width, conv.batch))


@settings(deadline=None)
@given(conv=convolutions(), seed=st.integers(0, 2**32))
def test_b_written_out_gives_the_convolution(conv, seed):
    random = np.random.default_rng(seed)
    filters = random.normal(size=(2, conv.channels, conv.kernel_h, conv.kernel_w))
    source = source_of(conv, random)
    wanted = convolve(filters, source, conv.stride, conv.padding)
    product = filters.reshape(2, conv.k) @ conv.rows_of_input(source)
    np.testing.assert_allclose(product.reshape(wanted.shape), wanted, rtol=1e-12, atol=1e-12)


@given(conv=convolutions())
def test_pixels_that_are_read_are_counted_once(conv):
    assert conv.source_tokens == pixels_read(conv) * conv.batch


@pytest.mark.parametrize("gpu", [H200, T4], ids=lambda gpu: gpu.name)
@pytest.mark.parametrize("kernel", ["dense", *PATTERNS])
def test_an_implicit_plan_means_the_convolution(gpu, kernel):
    if kernel == "2:4" and gpu is T4:
        pytest.skip("no sparse tensor cores")
    conv = ConvShape(channels=8, height=9, width=7, kernel_h=3, kernel_w=3, stride=2, padding=1, batch=4)
    random = np.random.default_rng(0)
    filters = random.normal(size=(48, 8, 3, 3))
    matrix = filters.reshape(48, conv.k)
    if kernel == "dense":
        mask = np.ones(matrix.shape, bool)
        plan = plan_dense(48, conv.k, conv.n, "fp16", gpu)
    else:
        pattern = parse_pattern(PATTERNS[kernel])
        mask = pattern.prune({"w": np.abs(matrix)}, None if kernel == "2:4" else 0.5)["w"]
        plan = fastest_plan(kernel, pattern.map(mask), conv.n, "fp16", gpu)
    source = source_of(conv, random)
    kept = np.where(mask, matrix, 0.0).reshape(filters.shape)
    wanted = convolve(kept, source, 2, 1).reshape(48, conv.n)
    result = run_reference(implicit_plan(plan, conv), matrix, source)
    np.testing.assert_allclose(result, wanted, rtol=1e-10, atol=1e-10)


def plan_and_conv(batch):
    conv = ConvShape(channels=16, height=8, width=8, kernel_h=3, kernel_w=3, padding=1, batch=batch)
    pattern = parse_pattern("tile-wise:64")
    importance = np.random.default_rng(0).random((64, conv.k))
    tiles = pattern.map(pattern.prune({"w": importance}, 0.5)["w"])
    return fastest_plan("tile-wise", tiles, conv.n, "fp16", H200), conv


def gathers(plan):
    (gather,) = (ins for program in plan.programs for ins in program.step if ins.op is Op.GATHER_B)
    return gather.issue


@pytest.mark.parametrize(
    ("batch", "factor"), [(8, 1), (24, 1), (12, 2 * 4), (4, 2 * 4), (2, 4 * 4), (1, 8 * 4 * 2)]
)
def test_short_runs_of_images_take_more_copies(batch, factor):
    """Of 16 bytes, 8, 4; short ones take the load and store units, one cycle of the SM each.

    A single fp16 pixel is 2 bytes, loaded and stored instead of copied.
    """
    plan, conv = plan_and_conv(batch)
    assert gathers(implicit_plan(plan, conv)) == factor * gathers(plan)


@pytest.mark.parametrize(("batch", "copies"), [(8, 1), (12, 2), (2, 4), (1, 8)])
def test_every_copy_computes_its_address(batch, copies):
    def addresses(batch):
        plan, conv = plan_and_conv(batch)
        programs = zip(plan.programs, implicit_plan(plan, conv).programs, strict=True)
        return sum(sum(i.issue for i in own.step if i.op is Op.ISSUE) for _, own in programs) - sum(
            i.issue for program in plan.programs for i in program.step if i.op is Op.ISSUE
        )

    # The offset of the pixel, and a check whether it is in the image
    assert addresses(8) == 2 * gathers(plan_and_conv(8)[0])
    assert addresses(batch) == copies * addresses(8)


def test_a_convolution_is_of_one_image_with_stride_one_unless_it_says_otherwise():
    conv = ConvShape(channels=16, height=8, width=6, kernel_h=3, kernel_w=3)
    assert (conv.batch, conv.stride, conv.padding) == (1, 1, 0)
    assert conv.n == 6 * 4


def test_an_implicit_plan_is_another_plan():
    plan, conv = plan_and_conv(8)
    implicit = implicit_plan(plan, conv)
    assert implicit.source == conv
    assert implicit.fingerprint() != plan.fingerprint()
    with pytest.raises(BadInput, match="no kernel reads the input of a convolution"):
        compile(implicit, np.zeros((64, conv.k)))


def test_single_pixels_at_every_place_are_the_product():
    conv = ConvShape(channels=64, height=4, width=4, kernel_h=1, kernel_w=1, batch=8)
    plan = plan_dense(64, 64, 128, "fp16", H200)
    assert implicit_plan(plan, conv) is plan
    assert im2col_bytes(conv, "fp16") == 0


def test_writing_b_out_reads_the_input_and_writes_nine_times_as_much():
    conv = ConvShape(channels=64, height=56, width=56, kernel_h=3, kernel_w=3, padding=1, batch=2)
    assert im2col_bytes(conv, "fp16") == (1 + 9) * 64 * 56 * 56 * 2 * 2


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"height": 0}, "wanted sizes from 1 and a padding from 0"),
        ({"padding": -1}, "wanted sizes from 1 and a padding from 0"),
        ({"kernel_h": 5}, "filters of 5x3 do not fit an input of 4x4 with padding 0"),
    ],
)
def test_convolutions_that_are_none(sizes, message):
    usual = {"channels": 1, "height": 4, "width": 4, "kernel_h": 3, "kernel_w": 3}
    with pytest.raises(BadInput, match=message):
        ConvShape(**{**usual, **sizes})


def test_a_plan_of_another_size_is_refused():
    plan, _ = plan_and_conv(8)
    with pytest.raises(BadInput, match="a plan for K = 144 and N = 512 is none for 8 channels"):
        implicit_plan(plan, ConvShape(channels=8, height=8, width=8, kernel_h=3, kernel_w=3, batch=8))


def test_an_input_of_another_shape_is_refused():
    plan, conv = plan_and_conv(8)
    with pytest.raises(BadInput, match=r"wanted an input of shape \(16, 8, 8, 8\), got \(144, 512\)"):
        run_reference(implicit_plan(plan, conv), np.zeros((64, 144)), np.zeros((144, 512)))
