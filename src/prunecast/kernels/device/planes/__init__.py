"""Passes over planes of images: from another layout into planes, pooling and upsampling."""

__all__: list[str] = []
