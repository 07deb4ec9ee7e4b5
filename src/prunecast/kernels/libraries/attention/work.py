"""`CallWork`: CTAs, pipeline steps and bytes of one call of attention, from the tiles of a kernel.

A CTA processes a tile of query rows, and loops over the key tiles that its rows attend to. With grouped
queries, some kernels pack the query heads of one key head into the rows of a tile. If there are too few tiles
for all SMs, some kernels split the keys of a tile among CTAs, and a second kernel adds the partial sums.

`tables/attention_tiles.csv` contains the tile sizes. Its first matching row applies.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from prunecast.errors import BadInput
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.libraries.attention.shape import Attention
from prunecast.kernels.libraries.library_tables import Row, nearest_rows, table

ELEMENT_BYTES, SUM_BYTES = 2, 4
"""Bytes of queries, keys, values and outputs, and of partial sums. Kind: definition, half and fp32."""


WIDTH_STEP = 64
"""Multiple to which head widths are padded if the table contains no narrower width of the kernel. Kind:
definition, 128 bytes of swizzled rows in shared memory."""


class Tiles(NamedTuple):
    """Tile sizes of a kernel for one head width."""

    rows: int
    """Query rows of a CTA."""
    keys: int
    """Keys of a pipeline step."""
    width: int
    """Head width to which the kernel pads."""
    packs: bool
    """True if the query heads of one key head share a tile."""
    split_keys: int
    """Minimum number of keys of a sequence for which a tile's keys are split among CTAs if tiles leave SMs
    idle; 0 if keys are never split."""
    whole_keys: int
    """Steps need no extra time if the number of keys is a multiple of this number, see `CallWork.ragged`."""


class CallWork(NamedTuple):
    """Counts of one call, or arrays of them with one entry for each call."""

    ctas: float
    """Number of thread blocks of the attention kernel. If the keys of a tile are split, each part has its own
    block."""
    steps: float
    """Pipeline steps of all CTAs together."""
    longest: float
    """Steps of the longest CTA."""
    rows: float
    """Query rows of a CTA that are used, on average."""
    tile_rows: float
    """Query rows of a full tile."""
    tile_keys: float
    """Keys of a step."""
    width: float
    """Head width to which the kernel pads."""
    splits: float
    """Number of CTAs that share the keys of a tile; 1 if keys are not split."""
    query_bytes: float
    """Bytes of queries and outputs."""
    key_bytes: float
    """Bytes of keys and values that are read at least once."""
    new_key_bytes: float
    """Bytes of keys and values of new tokens, which are written to the cache."""
    cached_key_bytes: float
    """Part of `key_bytes` that this pass did not write: keys and values of earlier tokens or of another
    sequence."""
    partial_bytes: float
    """Bytes of partial sums that are written and read again."""
    ragged: float
    """1 if the number of keys is no multiple of `Tiles.whole_keys`, so that steps need more time; else 0."""


def tiles_of(kernel: str, shape: Attention, gpu: GpuSpec) -> Tiles:
    """Return the tile sizes of a kernel for a call.

    Raises
    ------
    BadInput : the kernel does not support the head width
    """
    sm, phase, width = gpu.compute_capability, shape.phase, shape.head_width
    rows = rows_of("attention_tiles", kernel, phase, sm)
    windowed = "yes" if shape.window else "no"
    for row in rows:
        if width <= int(row["width_to"]) and row["window"] in ("any", windowed):
            packs = row["packs"] == "yes" and shape.heads > shape.key_heads
            padded = min(int(row["width_to"]), -(-width // WIDTH_STEP) * WIDTH_STEP)
            counts = (int(row[name]) for name in ("split_keys", "whole_keys"))
            return Tiles(int(row["tile_rows"]), int(row["tile_keys"]), padded, packs, *counts)
    widest = max((int(row["width_to"]) for row in rows), default=0)
    raise BadInput(f"attention: {kernel} has head widths up to {widest} on {gpu.name}, got {width}")


@lru_cache(maxsize=256)
def rows_of(name: str, kernel: str, phase: str, sm: int) -> tuple[Row, ...]:
    """Return the rows of `tables/NAME.csv` for a kernel and phase, of the nearest compute capability to `sm`.

    The result is empty if no row has this kernel and phase.
    """
    own = (row for row in table(name) if row["kernel"] == kernel and phase in row["phases"].split())
    return nearest_rows(own, sm)


def work_of(kernel: str, shape: Attention, gpu: GpuSpec) -> CallWork:
    """Return the counts of CTAs, pipeline steps and bytes of one call.

    Raises
    ------
    BadInput : in the same cases as `tiles_of`
    """
    tiles = tiles_of(kernel, shape, gpu)
    group = shape.heads // shape.key_heads if tiles.packs else 1
    heads = shape.sequences * (shape.key_heads if tiles.packs else shape.heads)
    window = shape.window if shape.window < shape.keys else 0
    steps = _steps(shape.queries, shape.keys, shape.cached, tiles, shape.is_causal, window, group)
    ctas, splits = heads * steps.tiles, 1
    # Split the keys until CTAs fill the SMs, but into no more parts than an average tile has steps
    if 0 < tiles.split_keys <= shape.keys and ctas < FILLED_SHARE * gpu.sm_count:
        splits = max(1, min(gpu.sm_count // ctas, -(-steps.total // steps.tiles)))
    rows = shape.sequences * shape.queries * shape.heads
    row_bytes = shape.head_width * ELEMENT_BYTES
    seen = min(shape.keys, window + shape.queries) if window else shape.keys
    new = shape.queries if shape.is_causal else 0
    cached = max(seen - shape.queries, 0) if shape.is_causal else seen * (shape.keys != shape.queries)
    token_bytes = 2.0 * shape.sequences * shape.key_heads * row_bytes
    return CallWork(
        ctas=float(ctas * splits),
        steps=float(heads * steps.total),
        longest=float(-(-steps.longest // splits)),
        rows=shape.queries * group / steps.tiles,
        tile_rows=float(tiles.rows),
        tile_keys=float(tiles.keys),
        width=float(tiles.width),
        splits=float(splits),
        query_bytes=2.0 * rows * row_bytes,
        key_bytes=token_bytes * seen,
        new_key_bytes=token_bytes * new,
        cached_key_bytes=token_bytes * cached,
        partial_bytes=2.0 * splits * rows * shape.head_width * SUM_BYTES if splits > 1 else 0.0,
        ragged=float(shape.keys % tiles.whole_keys > 0),
    )


FILLED_SHARE = 0.8
"""Number of tiles per SM from which on keys are not split. Kind: definition, num_splits heuristic of
FlashAttention 2 and 3."""


class _HeadSteps(NamedTuple):
    """Pipeline steps of the query tiles of one head, before the keys of a tile are split among CTAs.

    A step multiplies a query tile with `Tiles.keys` keys. With `Tiles.packs`, a head is a key head.
    """

    total: int
    """Steps of all query tiles together."""
    longest: int
    """Steps of the query tile with the most steps."""
    tiles: int
    """Number of query tiles."""


@lru_cache(maxsize=4096)
def _steps(
    queries: int, keys: int, cached: int, tiles: Tiles, causal: bool, window: int, group: int
) -> _HeadSteps:
    """Count the key tiles that the query tiles of one head process.

    If `causal`, query i attends to the keys up to its own, number cached + i, or to the last `window` of
    them; otherwise to all keys.

    Parameters
    ----------
    queries, keys, cached : query rows, all keys, and keys of earlier tokens, as in `Attention`
    causal, window : True for a causal mask; its width in keys, 0 for no window
    group : number of query heads that share the rows of a tile
    """
    count = -(-queries * group // tiles.rows)
    if not causal:
        each = -(-keys // tiles.keys)
        return _HeadSteps(count * each, each, count)
    starts = np.arange(count, dtype=np.int64) * tiles.rows
    first = starts // group
    last = np.minimum((starts + tiles.rows - 1) // group, queries - 1)
    stop = np.minimum(cached + last + 1, keys)
    start = np.maximum(cached + first - window, 0) if window else np.zeros_like(first)
    visited = -(-stop // tiles.keys) - start // tiles.keys
    return _HeadSteps(int(visited.sum()), int(visited.max()), count)
