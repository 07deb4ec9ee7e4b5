"""The warp programs of a config of the tile kernel."""

from prunecast.errors import BadInput
from prunecast.kernels.tile.config import TileConfig
from prunecast.kernels.tile.programs.gather import gather_programs
from prunecast.kernels.tile.programs.mma import mma_programs, register_programs
from prunecast.kernels.tile.programs.wgmma import wgmma_programs
from prunecast.plan.program import WarpProgram

__all__ = ["B_ACCESSES", "warp_programs"]

B_ACCESSES = ("gather", "dense_tile")
"""Rows of B by index, or contiguous slabs of B; as `KernelPlan.b_access`."""


def warp_programs(
    config: TileConfig,
    b_access: str,
    *,
    multicast: int = 1,
    item_in_memory: bool = False,
    scattered: bool = False,
) -> tuple[WarpProgram, ...]:
    """What the warps of a block of `config` do; their warps add up to the block's threads.

    Parameters
    ----------
    b_access : one of `B_ACCESSES`
    multicast : blocks of a cluster that share what all of them need, boxes of tokens or, in a kernel that
        gathers, the weights; only wgmma kernels have it
    item_in_memory : blocks of a wgmma kernel that gathers read their item first
    scattered : rows of its tiles do not follow one another in C
    """
    if b_access not in B_ACCESSES:
        raise BadInput(f"B access must be one of {', '.join(B_ACCESSES)}, got {b_access!r}")
    if multicast != 1 and config.tensor_path != "wgmma":
        raise BadInput(f"multicast {multicast} needs a wgmma kernel, got {config.tensor_path} {b_access}")
    if config.tensor_path == "wgmma":
        if b_access == "gather":
            return gather_programs(
                config, multicast=multicast, item_in_memory=item_in_memory, scattered=scattered
            )
        return wgmma_programs(config, multicast=multicast)
    if config.tensor_path == "mma":
        return mma_programs(config, b_access)
    return register_programs(config, b_access)
