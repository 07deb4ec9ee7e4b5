"""Pass that quantises activations to fp8, with a scale per token."""

__all__: list[str] = []
