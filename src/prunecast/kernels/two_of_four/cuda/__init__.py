"""2:4 weights on the sparse tensor cores of sm_90a: whole matrices, or inside the tiles of a map (TVW).

`prunecast.kernels.compile(plan, weights)` runs a plan of `plan_sparse_tensor`.

Pruning and planning are done elsewhere. The kernel shares its pipeline, item list and producer with
`prunecast.kernels.tile.cuda`.

Read first: `kernels/tile/cuda/__init__.py`, then `sparse_sm90.cu` and, in this order, `sparse_args.cuh`,
`sparse_shape.cuh`, the tile kernel's `tile_ring.cuh`, `tile_gather.cuh` and `tile_producer.cuh`, and
`sparse_multiply.cuh`, `sparse_consumer.cuh` and `sparse_epilogue.cuh`.
"""

__all__: list[str] = []
