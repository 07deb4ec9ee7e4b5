"""Libraries of vendors and inference engines, whose kernels are predicted but not compiled.

The sources of these libraries are not public. They are modelled with general physics (roofline, warp
programs, occupancy) and with tables of their kernels. cuBLAS, cuSPARSE and cuSPARSELt have planners like any
kernel, so that the simulator and the performance models predict their time. Attention, fused experts, scaled
fp8 products and collectives are predicted as a `LibraryCall`, without a plan.

Read first: `library_tables.py`, then `cublas/kernel.py`.
"""

__all__: list[str] = []
