"""Libraries of vendors and inference engines, whose kernels are predicted but not compiled.

cuBLAS, cuSPARSE and cuSPARSELt are a `Surrogate` each, with tables, and make plans. Attention, fused experts,
scaled fp8 products and collectives are predicted as a `LibraryCall`, without a plan.

Read first: `surrogate.py`.
"""

__all__: list[str] = []
