"""Pooling and upsampling by their definition, window by window."""

import numpy as np


def pooled(images, window):
    """(channels, rows, columns, batch) of images (channels, height, width, batch) in float64."""
    channels, height, width, batch = images.shape
    if window.mode == "nearest":
        return images.astype(np.float64).repeat(window.size, 1).repeat(window.size, 2)
    height_out, width_out = window.sides(height, width)
    found = np.zeros((channels, height_out, width_out, batch))
    for y in range(height_out):
        for x in range(width_out):
            top, left = y * window.stride - window.padding, x * window.stride - window.padding
            rows = [r for r in range(top, top + window.size) if 0 <= r < height]
            columns = [c for c in range(left, left + window.size) if 0 <= c < width]
            pixels = images[:, rows][:, :, columns].astype(np.float64)
            if window.mode == "max":
                found[:, y, x] = pixels.max((1, 2))
            else:
                found[:, y, x] = pixels.sum((1, 2)) / window.size**2
    return found
