"""The wgmma tile kernel for sm_90a, and what packs a plan for it; `mma` has the form for other GPUs.

    from prunecast.kernels.tile.cuda.operator import TileOperator
    op = TileOperator.compile(plan, weights)
    c = op(b)

`work_image` and `images` lay out bytes with NumPy alone; `operator` touches a device.

Read first: `prunecast/plan/kernel_plan.py`, then `tile_sm90.cu` and, in this order, `tile_args.cuh`,
`tile_shape.cuh`, `tile_ring.cuh`, `tile_gather.cuh`, `tile_producer.cuh`,
`tile_consumer.cuh`, `tile_epilogue.cuh` and `tile_sums.cuh`. `tile_tokens_*` are the same parts of the form
of 256 x 128, which alone runs in clusters.
"""

__all__: list[str] = []
