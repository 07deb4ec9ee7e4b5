"""Convolutions as the tile kernel runs them: rows of B that overlap, zeros between images."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prunecast.errors import BadInput
from prunecast.kernels import ConvGrid, ConvShape
from tests.naive.convolution import convolve


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
    b = grid.rows_of_input(grid.source.of_images(images))
    wanted = convolve(filters, images, conv.stride, conv.padding)
    np.testing.assert_allclose(grid.images_of(filters.reshape(2, -1) @ b), wanted, rtol=1e-12, atol=1e-12)


@given(grid=grids())
def test_columns_of_the_border_are_those_that_images_leave_out(grid):
    conv = grid.conv
    assert grid.in_border().sum() == conv.height_out * grid.border * conv.batch
    assert not grid.images_of(grid.in_border()[None]).any()


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
    np.testing.assert_array_equal(written, output.of_images(images))


@given(grid=grids())
def test_with_a_stride_of_one_rows_lie_in_one_run(grid):
    """Its kernel adds nothing to the place of a token but that of the row."""
    inside = ~grid.in_border()[:: grid.conv.batch]
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
