"""Code that the operators of all kernels share: compilation, launches, arrays of the caller, copies to
aligned rows.

`build` compiles without a GPU, and `tile_stages` lays out bytes with NumPy only. `operator`, `arrays` and
`transpose` use a device. `ptx.cuh` contains inline PTX for instructions without a C++ equivalent;
`activation.cuh` contains the epilogue (bias and activation). The CUDA sources of each kernel are in the
folder `cuda` next to its planner. CuPy is imported only here, in those folders and in
`prunecast.validation.measure`.
"""

__all__: list[str] = []
