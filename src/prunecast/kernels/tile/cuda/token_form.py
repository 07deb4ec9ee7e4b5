"""The token form of the tile kernel: which plans run it, and with which defines.

256 rows of weights by 128 tokens a block, tokens as the 64-row operand of wgmma (`tile_tokens_sm90.cu`),
alone or in clusters of two blocks that share their weights.
"""

from prunecast.errors import BadInput
from prunecast.plan.kernel_plan import KernelPlan

TOKEN_SOURCE = "tile_tokens_sm90.cu"
TOKEN_SHAPES = ((256, 128),)
"""Tiles of C whose first operand are the tokens. Kind: CUDA source, `tile_tokens_shape.cuh`."""
CLUSTERS = (1, 2)
"""CTAs of a cluster. Kind: choice, what the compile tests build."""


def check_cluster(plan: KernelPlan) -> None:
    """Refuse clusters that no form of the kernel has, with `BadInput`."""
    if plan.cluster != 1 and plan.shape[:2] not in TOKEN_SHAPES:
        raise BadInput(
            f"{plan.kernel}: blocks of {tuple(plan.shape)} run alone, the plan has {plan.cluster} together"
        )
    if plan.cluster not in CLUSTERS:
        raise BadInput(f"{plan.kernel}: clusters have 1 or 2 blocks, the plan's have {plan.cluster}")


def token_defines(cluster: int) -> dict[str, int]:
    """Preprocessor names that this form has besides those of every form."""
    return {"CLUSTER": cluster}
