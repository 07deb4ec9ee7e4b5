"""Which form of the project's tile kernel to run on a tile map: the fastest by `form_time`."""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.tile.choose import (
    FEWEST_STEPS_PER_PIECE,
    Candidate,
    candidates,
    reads_per_element,
)
from prunecast.kernels.tile.clusters import CLUSTERED_SHAPE, cluster_size
from prunecast.kernels.tile.config import TileConfig
from prunecast.kernels.tile.form_items import form_load
from prunecast.kernels.tile.form_time import form_time
from prunecast.kernels.tile.splitting import even_pieces, tile_item_cost
from prunecast.kernels.tile.tile_plan import demand_of, items_of, resident_blocks
from prunecast.patterns.tile_map import TileMap
from prunecast.plan.tile_rows import cut_rows

__all__ = ["tile_candidates"]

UNEVEN = 1.1
"""Longest tile over the mean one from which lists of items are made to choose a form."""
FEW_WAVES = 2
"""Of items, whose lists are made too: whether cuts pay for a few of them is no matter of means."""


def tile_candidates(
    configs: Iterable[TileConfig],
    tiles: TileMap,
    n: int,
    gpu: GpuSpec,
    *,
    persistent: bool = False,
    divisible: bool = False,
) -> list[Candidate]:
    """One candidate for each config that fits on the GPU, fastest first; of equals the one that reads less.

    Parameters
    ----------
    persistent : blocks stay and walk a list of items; else each item is a block of its own
    divisible : the kernel cuts heavy tiles and evens out the waves by itself

    `Candidate.cycles` is the launch at the GPU's highest clock, whatever clock it will run at.
    """
    uneven, longest = _uneven(tiles), int(tiles.kept_per_tile.max(initial=0))
    found = []
    for candidate in candidates(configs, demand_of(tiles, n), gpu, divisible=divisible):
        config = candidate.config
        multicast = _cluster(config, tiles, n, gpu) if persistent else 1
        cut = _Cut(divisible and -(-longest // config.shape.block_k) >= 2 * FEWEST_STEPS_PER_PIECE, None)
        few = cut.divisible and candidate.items <= FEW_WAVES * gpu.sm_count
        if persistent and divisible and (uneven or few):
            cut = _cut(candidate, tiles, n, gpu, multicast, uneven=uneven)
        seconds = form_time(
            config,
            tiles,
            n,
            gpu,
            persistent=persistent,
            divisible=cut.divisible,
            multicast=multicast,
            block_loads=cut.block_loads,
        )
        found.append(replace(candidate, cycles=seconds * gpu.max_clock_hz))
    return sorted(found, key=lambda c: (c.cycles, reads_per_element(c.config), c.config.shape.block_n))


def _cluster(config: TileConfig, tiles: TileMap, n: int, gpu: GpuSpec) -> int:
    if (config.shape.block_m, config.shape.block_n) != CLUSTERED_SHAPE:
        return 1
    return cluster_size(config, cut_rows(tiles, config.shape.block_m), n, gpu)


def _uneven(tiles: TileMap) -> bool:
    kept = tiles.kept_per_tile
    return kept.size > 0 and int(kept.max()) > UNEVEN * float(kept.mean())


class _Cut(NamedTuple):
    divisible: bool
    """Whether cuts may even blocks out."""
    block_loads: npt.NDArray[np.float64] | None
    """(blocks,) cycles of the items of each block, most first; None where the means say enough."""


def _cut(candidate: Candidate, tiles: TileMap, n: int, gpu: GpuSpec, cluster: int, *, uneven: bool) -> _Cut:
    """What the planner would cut, and what blocks have to do then."""
    config = candidate.config
    if config.tensor_path != "wgmma":
        return _Cut(True, None)
    cut = cut_rows(tiles, config.shape.block_m)
    items = items_of(cut, config, n, gpu, cluster=cluster)
    steps = int(np.maximum(-(-items.k_stop // config.shape.block_k), 1).sum())
    cost = tile_item_cost(config, form_load(config, cut, n), gpu)
    blocks = resident_blocks(config, gpu, steps, cluster=cluster)
    found = even_pieces(items, blocks, config.shape.block_k, cost)
    if not uneven and int(found.pieces.max(initial=1)) == 1:
        return _Cut(False, None)
    loads = -np.sort(-found.loads)
    loads[:1] = found.cycles  # which an owner that waits for its parts may have
    return _Cut(True, np.repeat(loads, cluster))
