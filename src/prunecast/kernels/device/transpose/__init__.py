"""Transposing copy from token-major to feature-major rows, which torch layers need once per input.

It is not part of any plan; predictions account for the copy by its bytes.
"""

__all__: list[str] = []
