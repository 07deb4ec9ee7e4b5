"""Convolutions as the tile kernel runs them: rows of B that overlap, zeros between images."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prunecast.choice import fastest_plan
from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.kernels import ConvGrid, ConvShape, compile, grid_plan
from prunecast.kernels.device.conv_input import ConvOperator
from prunecast.kernels.device.launch import Place
from prunecast.patterns import parse_pattern
from tests.naive.convolution import convolve, images_of, in_border, planes_of_images

H200 = load_gpu("h200-sxm")


@st.composite
def grids(draw):
    padding, stride = draw(st.integers(0, 2)), draw(st.integers(1, 3))
    size = 2 * padding + 1
    conv = ConvShape(
        channels=draw(st.integers(1, 3)),
        height=draw(st.integers(1, 7)),
        width=draw(st.integers(1, 7)),
        kernel_h=size,
        kernel_w=size,
        stride=stride,
        padding=padding,
        batch=draw(st.integers(1, 3)),
    )
    return ConvGrid(conv=conv, border=draw(st.integers(padding, 3)))


@settings(deadline=None)
@given(grid=grids(), seed=st.integers(0, 2**32))
def test_overlapping_rows_give_the_convolution(grid, seed):
    random, conv = np.random.default_rng(seed), grid.conv
    filters = random.normal(size=(2, conv.channels, conv.kernel_h, conv.kernel_w))
    images = random.normal(size=(conv.channels, conv.height, conv.width, conv.batch))
    b = grid.rows_of_input(planes_of_images(grid.source, images))
    wanted = convolve(filters, images, conv.stride, conv.padding)
    np.testing.assert_allclose(images_of(grid, filters.reshape(2, -1) @ b), wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("size", "border"), [(1, 1), (3, 1), (5, 2), (7, 3)])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("images", "stored"), [(1, 8), (8, 8), (9, 16)])
def test_images_of_a_network_have_the_narrowest_border_that_filters_and_readers_need(
    size, border, stride, images, stored
):
    """Readers of the output need one pixel; eight images of fp16 fill a copy of 16 bytes."""
    conv = ConvShape.square(4, 14, size, stride=stride, batch=images)
    grid = ConvGrid.of_network(conv)
    assert (grid.border, grid.output_border) == (border, border if stride == 1 else 1)
    assert grid.conv == replace(conv, batch=stored)
    if border > 1:
        with pytest.raises(BadInput, match="reach across a border"):
            ConvGrid(conv=conv, border=border - 1)


@given(grid=grids())
def test_columns_of_the_border_are_those_that_images_leave_out(grid):
    conv = grid.conv
    assert in_border(grid).sum() == conv.height_out * grid.border * conv.batch
    assert not images_of(grid, in_border(grid)[None]).any()


@settings(deadline=None)
@given(grid=grids(), seed=st.integers(0, 2**32))
def test_c_with_zeros_in_its_border_is_an_input_again(grid, seed):
    """Where C lies among the planes, and that nothing else than zeros is around it."""
    random, conv, output = np.random.default_rng(seed), grid.conv, grid.output(2)
    images = random.normal(size=(2, conv.height_out, conv.width_out, conv.batch))
    c = np.zeros((2, conv.height_out, grid.line, conv.batch))
    c[:, :, : conv.width_out] = images
    written = np.zeros((output.pixels, conv.batch))
    for m in range(2):
        at = output.first + m * output.plane
        written[at : at + grid.n // conv.batch] = c[m].reshape(-1, conv.batch)
    np.testing.assert_array_equal(written, planes_of_images(output, images))


@given(grid=grids())
def test_with_a_stride_of_one_rows_lie_in_one_run(grid):
    """Its kernel adds nothing to the place of a token but that of the row."""
    inside = ~in_border(grid)[:: grid.conv.batch]
    if grid.conv.stride == 1:
        np.testing.assert_array_equal(grid.places()[inside], np.arange(inside.size)[inside])


@pytest.mark.parametrize(
    ("changes", "border", "message"),
    [
        ({"padding": 0}, 1, "wanted odd filters with half of their size for padding, got 3x3 with padding 0"),
        ({"kernel_w": 1}, 1, "got 3x1 with padding 1"),
        ({}, 0, "filters of 3x3 reach across a border of 0"),
    ],
)
def test_convolutions_that_no_grid_holds(changes, border, message):
    usual = {"channels": 1, "height": 4, "width": 4, "kernel_h": 3, "kernel_w": 3, "padding": 1}
    with pytest.raises(BadInput, match=message):
        ConvGrid(conv=ConvShape(**{**usual, **changes}), border=border)


class Recorder:
    """An operator of a product that keeps what it is asked for."""

    def __init__(self, plan):
        self.plan, self.clock, self.asked, self.device = plan, None, [], -1

    def enqueue(self, b, c, stream, *, second):
        assert second == 0
        self.asked.append((b, c, stream))


def planned(batch=8, filters=32, **sizes):
    conv = ConvShape(channels=4, height=6, width=5, kernel_h=3, kernel_w=3, padding=1, batch=batch, **sizes)
    grid, pattern = ConvGrid(conv=conv), parse_pattern("tile-wise:16")
    kept = np.random.default_rng(0).random((filters, grid.k))
    tiles = pattern.map(pattern.prune({"w": kept}, 0.5)["w"])
    return fastest_plan("tile-wise", tiles, grid.n, "fp16", H200, source=grid), grid


def test_the_product_is_told_where_planes_begin():
    """Rows of B are a pixel of all images apart, rows of C a plane."""
    plan, grid = planned()
    product = Recorder(plan)
    ConvOperator(product, grid).enqueue(Place(4096, 16), Place(1 << 20, 16), 7)
    line, plane = 6 * 8 * 2, 7 * 6 * 8 * 2
    assert product.asked == [(Place(4096, 16), Place((1 << 20) + line + 16, plane), 7)]


def test_inputs_that_are_none():
    torch = pytest.importorskip("torch")
    plan, grid = planned()
    operator, pixels = ConvOperator(Recorder(plan), grid), grid.source.pixels
    for shape, dtype, message in (
        ((pixels, 16), torch.float16, rf"B must have shape \({pixels}, 8\)"),
        ((pixels, 8), torch.float32, "B must be float16, got float32"),
    ):
        with pytest.raises(BadInput, match=message):
            operator(torch.zeros(shape, dtype=dtype))
    with pytest.raises(BadInput, match="B must lie without gaps from a multiple of 16 bytes on"):
        operator(torch.zeros(pixels, 16).half()[:, :8])
    operator._operator.device = 0
    with pytest.raises(BadInput, match="B must lie on device 0, where the weights are, got the host"):
        operator(torch.zeros(pixels, 8).half())


def test_plans_that_no_kernel_runs():
    with pytest.raises(BadInput, match="wanted a multiple of 8 images, got 12"):
        compile(planned(batch=12)[0], np.zeros((32, 36)))
    plan, _ = planned()
    with pytest.raises(BadInput, match="a plan for K = 36 and N = 288 is none for K = 36 and N = 96"):
        grid_plan(plan, planned(stride=2)[1], H200)
    alone = replace(plan.tiles, row_index=plan.tiles.row_index[:-1], row_start=np.array([0, 16, 31]))
    missing = fastest_plan("tile-wise", alone, plan.n, "fp16", H200, source=plan.source)
    with pytest.raises(BadInput, match="wanted every filter of a convolution in a tile"):
        compile(missing, np.zeros((32, 36)))
