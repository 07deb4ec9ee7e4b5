"""What the CUDA of all kernels shares: compiling, launching, arrays of the caller, rows that are copied.

`build` compiles without a GPU, and `packed` lays out bytes with NumPy alone; only
`operator`, `row_copies` and `transpose` touch a device. `ptx.cuh` has the PTX that
C++ has no words for, `activation.cuh` what becomes of sums. Each kernel's own CUDA lies in the folder `cuda`
beside its planner. CuPy is imported here, in those folders and in `prunecast.validation.measure` alone.
"""

__all__: list[str] = []
