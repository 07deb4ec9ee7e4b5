"""Kernels for images in the plane layout of `ConvGrid`: conversion into it, pooling and upsampling."""

__all__: list[str] = []
