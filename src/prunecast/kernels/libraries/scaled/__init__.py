"""fp8 products as inference engines call them: x is quantised, multiplied, and scaled in the epilogue.

Read first: `call.py`.
"""

__all__: list[str] = []
