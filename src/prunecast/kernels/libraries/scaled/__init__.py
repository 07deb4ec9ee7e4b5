"""fp8 products of inference engines: x is quantised and multiplied, and the epilogue applies the scales.

Read first: `call.py`.
"""

__all__: list[str] = []
