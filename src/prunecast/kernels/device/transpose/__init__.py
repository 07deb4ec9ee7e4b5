"""Transposing copy of X from token-major to feature-major layout, which torch layers need once per input.

It is not part of any plan; predictions account for the copy by the bytes that it moves.
"""

__all__: list[str] = []
