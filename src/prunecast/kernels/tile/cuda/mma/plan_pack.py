"""The weights of a plan as the mma tile kernel reads them, plain or 2:4."""

from prunecast.kernels.device.tile_stages import PackedStages
from prunecast.kernels.device.weights import Bits
from prunecast.kernels.tile.cuda.mma.pack import pack_mma
from prunecast.kernels.tile.cuda.mma.sparse_pack import pack_sparse_mma
from prunecast.plan.kernel_plan import KernelPlan


def pack_bits(plan: KernelPlan, bits: Bits) -> PackedStages:
    """The images of `bits` (M, K), the weights of a plan that `check_mma` takes.

    Raises
    ------
    BadInput : as `pack_mma` and `pack_sparse_mma`
    """
    if plan.inner is None:
        return pack_mma(plan.tiles, bits, plan.shape)
    return pack_sparse_mma(plan.tiles, plan.inner, bits, plan.shape)
