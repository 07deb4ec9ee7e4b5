"""A convolution by its definition: filters times channels, for every pixel and every place in the filters."""

import numpy as np


def convolve(filters, source, stride, padding):
    """(out, rows, columns, batch) from filters (out, in, kh, kw) and source (in, height, width, batch)."""
    out, _, kernel_h, kernel_w = filters.shape
    _, height, width, batch = source.shape
    height_out = (height + 2 * padding - kernel_h) // stride + 1
    width_out = (width + 2 * padding - kernel_w) // stride + 1
    filters, source = filters.astype(np.float64), source.astype(np.float64)
    result = np.zeros((out, height_out, width_out, batch))
    for y in range(height_out):
        for x in range(width_out):
            for r in range(kernel_h):
                for s in range(kernel_w):
                    row, column = y * stride + r - padding, x * stride + s - padding
                    if 0 <= row < height and 0 <= column < width:
                        result[:, y, x] += filters[:, :, r, s] @ source[:, row, column]
    return result


def pixels_read(conv):
    """Input pixels of one channel and image that some output pixel reads."""
    read = set()
    for y in range(conv.height_out):
        for x in range(conv.width_out):
            for r in range(conv.kernel_h):
                for s in range(conv.kernel_w):
                    row, column = y * conv.stride + r - conv.padding, x * conv.stride + s - conv.padding
                    if 0 <= row < conv.height and 0 <= column < conv.width:
                        read.add((row, column))
    return len(read)


def in_border(grid):
    """(N,): whether a column of C is no pixel."""
    pixel = np.arange(grid.n) // grid.conv.batch % grid.line
    return pixel >= grid.conv.width_out


def images_of(grid, c):
    """Images (M, height, width, batch) of C (M, N), without the border."""
    conv = grid.conv
    return c.reshape(-1, conv.height_out, grid.line, conv.batch)[:, :, : conv.width_out]


def planes_of_images(layout, images):
    """(pixels, batch) float64 of images (planes, height, width, batch), with zeros in the borders."""
    batch = images.shape[3]
    planes = np.zeros((layout.planes, layout.height + layout.border, layout.line, batch))
    planes[:, : layout.height, : layout.width] = images
    found = np.zeros((layout.pixels, batch))
    found[layout.first : layout.first + layout.planes * layout.plane] = planes.reshape(-1, batch)
    return found
