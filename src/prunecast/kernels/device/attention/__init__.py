"""Attention of encoders with a padding mask of keys, which frameworks run slower than without a mask."""

__all__: list[str] = []
