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
    return ConvGrid(conv=conv, border=draw(st.integers(-(-padding // stride), 3)))


@settings(deadline=None)
@given(grid=grids(), seed=st.integers(0, 2**32))
def test_overlapping_rows_give_the_convolution(grid, seed):
    random, conv = np.random.default_rng(seed), grid.conv
    filters = random.normal(size=(2, conv.channels, conv.kernel_h, conv.kernel_w))
    images = random.normal(size=(conv.channels, conv.height, conv.width, conv.batch))
    b = grid.rows_of_input(grid.source_of(images))
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
    random, conv = np.random.default_rng(seed), grid.conv
    after = ConvShape(
        channels=2, height=conv.height_out, width=conv.width_out, kernel_h=1, kernel_w=1, batch=conv.batch
    )
    following = ConvGrid(conv=after, border=grid.border)
    images = random.normal(size=(2, conv.height_out, conv.width_out, conv.batch))
    source, c = following.source_of(images), np.zeros((2, conv.height_out, grid.line, conv.batch))
    c[:, :, : conv.width_out] = images
    written = np.zeros_like(source)
    for m in range(2):
        at = grid.first + m * grid.plane
        written[at : at + grid.n // conv.batch] = c[m].reshape(-1, conv.batch)
    assert following.source_pixels == grid.pixels(2)
    np.testing.assert_array_equal(written, source)


@pytest.mark.parametrize(
    ("changes", "border", "message"),
    [
        ({"padding": 0}, 1, "wanted odd filters with half of their size for padding, got 3x3 with padding 0"),
        ({"kernel_w": 1}, 1, "got 3x1 with padding 1"),
        ({}, 0, "filters of 3x3 with stride 1 reach across a border of 0"),
    ],
)
def test_convolutions_that_no_grid_holds(changes, border, message):
    usual = {"channels": 1, "height": 4, "width": 4, "kernel_h": 3, "kernel_w": 3, "padding": 1}
    with pytest.raises(BadInput, match=message):
        ConvGrid(conv=ConvShape(**{**usual, **changes}), border=border)
