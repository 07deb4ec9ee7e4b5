"""Code that the operators of all kernels share: compilation, launches, checks and copies of arrays.

`build` compiles without a GPU, and `tile_stages` needs only NumPy. `operator`, `arrays` and `transpose` use a
GPU. `ptx.cuh` contains inline PTX for instructions without a C++ equivalent; `activation.cuh` contains the
epilogue (bias and activation). The CUDA sources of each kernel are in the folder `cuda` next to its planner.
CuPy is imported only here, in those folders and in `prunecast.validation.measure`.
"""

__all__: list[str] = []
