"""The wgmma tile kernel for sm_90a and the packing of its plans; `mma` contains the kernel for other GPUs.

`prunecast.kernels.compile(plan, weights)` runs it. `work_image` lays out bytes with NumPy only; `operator`
uses a device.

Read first: `prunecast/plan/kernel_plan.py`, then `tile_sm90.cu` and, in this order, `tile_args.cuh`,
`tile_shape.cuh`, `tile_ring.cuh`, `tile_gather.cuh`, `tile_producer.cuh`, `tile_consumer.cuh`,
`tile_epilogue.cuh` and `tile_sums.cuh`. For blocks of 256 x 128, the only blocks that run in clusters, the
headers `tile_tokens_*` replace the headers without `tokens`.
"""

__all__: list[str] = []
