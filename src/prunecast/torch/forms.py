"""Which kernel runs how many tokens of a layer, and which images of its weights that takes.

A layer is packed for one height of blocks of each kernel, since every height is another image: plans for
other numbers of tokens choose among the forms of that height.
"""

from collections.abc import Sequence

from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec
from prunecast.kernels import KernelPlan, plan_stspmm
from prunecast.kernels.small_n.planner import choose_small_n, plan_small_n
from prunecast.kernels.tile.stspmm import choose_stspmm
from prunecast.patterns import TileMap
from prunecast.torch.images import FRAGMENTS, STAGES, Layout

__all__ = ["FEW_TOKENS", "layouts_for", "plan_for", "planned_tokens"]

FEW_TOKENS = 64
"""Up to so many, the kernel of few tokens runs."""
_LINE_TOKENS = 64


def layouts_for(
    tiles: TileMap, dtype: str, gpu: GpuSpec, max_tokens: int, *, few_tokens: bool
) -> tuple[Layout, ...]:
    """The images of a layer.

    Parameters
    ----------
    few_tokens : also one for calls of up to 64 tokens, where more are planned for
    """
    found = []
    if max_tokens > FEW_TOKENS:
        found.append(Layout(STAGES, choose_stspmm(tiles, max_tokens, dtype, gpu)[0].config.shape.block_m))
    if few_tokens or max_tokens <= FEW_TOKENS:
        found.append(Layout(FRAGMENTS, choose_small_n(tiles, 1, dtype, gpu)[0].config.block_m))
    return tuple(found)


def planned_tokens(tokens: int) -> int:
    """Tokens of the plan that a call of so many runs: 1, whole groups of 8, above 64 whole lines of L2."""
    if tokens == 1:
        return 1
    group = 8 if tokens <= FEW_TOKENS else _LINE_TOKENS
    return -(-tokens // group) * group


def plan_for(
    tiles: TileMap, tokens: int, dtype: str, gpu: GpuSpec, layouts: Sequence[Layout]
) -> tuple[KernelPlan, int]:
    """The plan for `planned_tokens`, and which of the images it reads.

    Raises
    ------
    BadInput : no image is for so many tokens
    """
    kinds = [layout.kind for layout in layouts]
    if tokens <= FEW_TOKENS and FRAGMENTS in kinds:
        image = kinds.index(FRAGMENTS)
        small = next(
            c.config
            for c in choose_small_n(tiles, tokens, dtype, gpu)
            if c.config.block_m == layouts[image].block_m
        )
        return plan_small_n(tiles, tokens, dtype, gpu, config=small), image
    if STAGES not in kinds:
        raise BadInput(f"this layer is packed for at most {FEW_TOKENS} tokens, got {tokens}")
    image = kinds.index(STAGES)
    config = next(
        c.config
        for c in choose_stspmm(tiles, tokens, dtype, gpu)
        if c.config.shape.block_m == layouts[image].block_m
    )
    return plan_stspmm(tiles, tokens, dtype, gpu, config=config), image
