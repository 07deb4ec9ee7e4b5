"""Attention of encoders whose keys have a mask, which frameworks run slower than without one."""

__all__: list[str] = []
