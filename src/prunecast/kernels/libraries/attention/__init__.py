"""Attention kernels of libraries: FlashAttention, FlashInfer and cuDNN (fused), and torch's unfused path.

Read first: `shape.py` (sizes of a call), `work.py` (tiles and bytes), `seconds.py` (their time), `call.py`.
"""

__all__: list[str] = []
