"""Kernel that quantises activations to fp8 (e4m3), with one scale per token."""

__all__: list[str] = []
