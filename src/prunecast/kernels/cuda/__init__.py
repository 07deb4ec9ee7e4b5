"""The closed room for CUDA C++ and CuPy launches: empty until the first kernel lands.

Kernels will lie here as `.cu` files, compiled by NVRTC and launched by CuPy, each reading the columns of a
`KernelPlan` as they are. Nothing outside this room may import CuPy except `prunecast.validation.measure`, and
nothing here is needed to predict. Same floor as `prunecast.kernels`; read `prunecast/kernels/plan.py` first.
"""

__all__: list[str] = []
