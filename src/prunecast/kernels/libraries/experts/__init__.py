"""Fused mixtures of experts of inference engines: grouped products over the experts of a layer.

Read first: `call.py`; `routing.py` has the tokens of each expert.
"""

__all__: list[str] = []
