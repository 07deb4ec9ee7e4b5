"""Fused mixture-of-experts layers of inference engines: grouped products over the experts of a layer.

Read first: `call.py`; `routing.py` computes the number of tokens of each expert.
"""

__all__: list[str] = []
