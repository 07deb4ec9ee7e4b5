"""The closed room for CUDA C++ and CuPy: a plan made to run on a GPU.

    from prunecast.kernels.cuda.operator import compile
    op = compile(plan, weights)
    c = op(b)

`build` compiles without a GPU, `pack` and `work_image` lay out bytes with NumPy alone; only `images`,
`launch` and `operator` touch a device. Nothing here predicts, and nothing outside this room may import CuPy
except `prunecast.validation.measure`. Same floor as `prunecast.kernels`.

Read first: `prunecast/plan/kernel_plan.py`, then `tile_sm90.cu` and, in this order, `tile_args.cuh`,
`tile_shape.cuh`, `tile_ring.cuh`, `tile_gather.cuh`, `tile_producer.cuh`,
`tile_consumer.cuh`, `tile_epilogue.cuh` and `tile_sums.cuh`. `tile_tokens_*` are the same parts of the form
of 256 x 128, which alone runs in clusters.
"""

__all__: list[str] = []
