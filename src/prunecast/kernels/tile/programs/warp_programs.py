"""The warp programs of a config of the tile kernel."""

from prunecast.errors import BadInput
from prunecast.kernels.tile.config import TileConfig
from prunecast.kernels.tile.programs.gather import gather_programs
from prunecast.kernels.tile.programs.mma import mma_programs, register_programs
from prunecast.kernels.tile.programs.wgmma import wgmma_programs
from prunecast.plan.program import WarpProgram

__all__ = ["K_ORDERS", "warp_programs"]

K_ORDERS = ("gather", "box")
"""Rows of B by index, or contiguous slabs of B; as `KernelPlan.k_order`."""


def warp_programs(
    config: TileConfig,
    k_order: str,
    *,
    multicast: int = 1,
    item_in_memory: bool = False,
    scattered: bool = False,
) -> tuple[WarpProgram, ...]:
    """What the warps of a block of `config` do; their warps add up to the block's threads.

    Parameters
    ----------
    k_order : one of `K_ORDERS`
    multicast : blocks of a cluster that share what all of them need, boxes of tokens or, in a kernel that
        gathers, the weights; only wgmma kernels have it
    item_in_memory : blocks of a wgmma kernel that gathers read their item first
    scattered : rows of its tiles do not follow one another in C
    """
    if k_order not in K_ORDERS:
        raise BadInput(f"k order must be one of {', '.join(K_ORDERS)}, got {k_order!r}")
    if multicast != 1 and config.tensor_path != "wgmma":
        raise BadInput(f"multicast {multicast} needs a wgmma kernel, got {config.tensor_path} {k_order}")
    if config.tensor_path == "wgmma":
        if k_order == "gather":
            return gather_programs(
                config, multicast=multicast, item_in_memory=item_in_memory, scattered=scattered
            )
        return wgmma_programs(config, multicast=multicast)
    if config.tensor_path == "mma":
        return mma_programs(config, k_order)
    return register_programs(config, k_order)
