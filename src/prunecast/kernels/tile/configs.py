"""Configs of the tile kernel on a GPU.

One tile of C per block, kept columns in k-steps through a ring of slots in shared memory. Three tensor paths:

    wgmma      sm_90: a warpgroup copies, two warpgroups multiply
    mma        sm_80 and later: eight warps copy (cp.async) and multiply (mma.sync)
    registers  sm_70, sm_75: eight warps; copies go through registers, two slots

Our own kernels have wgmma on sm_90 alone; later GPUs dropped it and run them as `mma`.
"""

from collections.abc import Sequence

from prunecast.errors import BadInput
from prunecast.hardware.occupancy import occupancy
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.tile.config import TileConfig
from prunecast.kernels.tile.mma_configs import mma_configs, register_configs
from prunecast.kernels.tile.tile_plan import check_tokens, height_of
from prunecast.kernels.tile.wgmma_configs import wgmma_configs
from prunecast.patterns.tile_map import TileMap
from prunecast.plan.tensor_rate import tensor_fma_per_clk

__all__ = ["OWN_WGMMA_SHAPES", "sparse_configs", "tile_configs", "tile_map_configs"]

OWN_WGMMA_SHAPES = ((128, 256), (128, 192), (128, 128), (128, 64), (64, 256), (64, 128), (256, 128))
"""block_m x block_n of compiled kernels. Kind: choice, those that the compile tests build without spills."""


def tile_map_configs(tiles: TileMap, n: int, dtype: str, gpu: GpuSpec) -> tuple[TileConfig, ...]:
    """Configs for a tile map and `n` tokens. BadInput: n below 1; else as `tile_configs`."""
    check_tokens(n)
    return tile_configs(gpu, dtype, height_of(tiles))


def tile_configs(gpu: GpuSpec, dtype: str, height: int) -> tuple[TileConfig, ...]:
    """Configs of our own tile kernel on `gpu` for tiles of up to `height` rows, none taller than they need.

    TF32 wgmma reads only K-contiguous operands, and rows of B are token-contiguous: fp32 uses mma.sync.

    Raises
    ------
    BadInput : unknown dtype, or the GPU has no tensor cores for it
    """
    if gpu.has_wgmma and dtype != "fp32":
        return _fitting(gpu, dtype, "wgmma", height, OWN_WGMMA_SHAPES)
    return _fitting(gpu, dtype, "mma", height)


def sparse_configs(gpu: GpuSpec, dtype: str, height: int) -> tuple[TileConfig, ...]:
    """Configs for 2:4 weights on sparse tensor cores. BadInput where the GPU has none."""
    native = gpu.has_wgmma and dtype != "fp32"
    return _fitting(gpu, dtype, "sparse-wgmma" if native else "sparse-mma", height)


def _fitting(
    gpu: GpuSpec, dtype: str, tensor: str, height: int, shapes: Sequence[tuple[int, int]] | None = None
) -> tuple[TileConfig, ...]:
    """Configs of which a block fits on an SM, up to the lowest that takes a tile of `height` rows whole."""
    if height <= 0:
        raise BadInput(f"tile height must be at least 1, got {height}")
    tensor_fma_per_clk(gpu, dtype, tensor)  # refuses what the GPU cannot run
    offered = [v for v in _all(gpu, dtype, tensor) if shapes is None or v.shape[:2] in shapes]
    found = [v for v in offered if occupancy(v.resources, gpu).blocks_per_sm > 0]
    heights = [v.shape.block_m for v in found]
    tallest = min((h for h in heights if h >= height), default=max(heights, default=0))
    return tuple(v for v in found if v.shape.block_m <= tallest)


def _all(gpu: GpuSpec, dtype: str, tensor: str) -> list[TileConfig]:
    if tensor.endswith("wgmma"):
        return list(wgmma_configs(gpu, dtype, tensor))
    if gpu.has_async_copy:
        return list(mma_configs(gpu, dtype, tensor))
    return list(register_configs(gpu, dtype, tensor))
