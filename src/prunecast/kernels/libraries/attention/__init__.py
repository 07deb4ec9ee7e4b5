"""Fused attention of vendors and engines: FlashAttention, FlashInfer and cuDNN, and torch's unfused path.

Read first: `shape.py` (what is computed), `work.py` (tiles and bytes), `seconds.py` (their time), `call.py`.
"""

__all__: list[str] = []
