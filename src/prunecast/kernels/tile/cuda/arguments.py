"""The launch argument of the wgmma tile kernel, byte by byte."""

import numpy as np

from prunecast.kernels.tile.cuda.work_image import MOST_BLOCKS_IN_ARGS

TILE_ARGS = np.dtype(
    [
        ("weights", "u8"),
        ("columns", "u8"),
        ("items", "u8"),
        ("splits", "u8"),
        ("rows", "u8"),
        ("b", "u8"),
        ("c", "u8"),
        ("bias", "u8"),
        ("partials", "u8"),
        ("counters", "u8"),
        ("clock", "u8"),
        ("b_row_bytes", "i8"),
        ("c_row_bytes", "i8"),
        ("tokens", "i4"),
        ("null_stage", "i4"),
        ("blocks_in_args", "i4"),
        ("c_tokens", "i4"),
        ("line_chunks", "i4"),
        ("pixel_chunks", "i4"),
        ("first", "i4", (MOST_BLOCKS_IN_ARGS, 4)),
        ("start", "i4", (MOST_BLOCKS_IN_ARGS + 4,)),
        ("strides", "i4", (4,)),
    ]
)
"""The bytes of `TileArgs`; `first` is 16-byte aligned there, and `strides` is read where there are some.
Kind: CUDA source, `tile_args.cuh`."""
