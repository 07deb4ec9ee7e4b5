"""The kernel for each number of tokens of a layer, and the images of its weights that it takes.

A layer is packed for one height of blocks of each kernel, since every height is another image: plans for
other numbers of tokens choose among the configs of that height.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from prunecast.choice import fastest_plan
from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec
from prunecast.kernels import KernelPlan
from prunecast.patterns import ElementMap, NestedMap, TileMap
from prunecast.torch.images import FRAGMENTS, HALVES, STAGES, Layout

FEW_TOKENS = 64
"""Up to so many, the kernel of few tokens runs."""
_LINE_TOKENS = 64


def layouts_for(
    tiles: TileMap, dtype: str, gpu: GpuSpec, max_tokens: int, *, few_tokens: bool, halved: bool = False
) -> tuple[Layout, ...]:
    """The images of a layer.

    Parameters
    ----------
    few_tokens : also one for calls of up to 64 tokens, where more are planned for
    halved : the weights in the tiles are 2:4, for which one kernel runs any number of tokens

    Raises
    ------
    BadInput : 2:4 or more than 64 tokens on a GPU without wgmma
    """
    if not gpu.has_wgmma and (halved or max_tokens > FEW_TOKENS):
        what = "2:4" if halved else f"calls of more than {FEW_TOKENS} tokens"
        other = "" if halved else "; TileSparseLinear runs there"
        raise BadInput(f"prunecast.torch.sparsify runs {what} on GPUs with wgmma, {gpu.name} has none{other}")
    if halved:
        kept = halved_map(tiles)
        return (Layout(HALVES, fastest_plan("2:4", kept, max_tokens, dtype, gpu).shape.block_m),)
    found = []
    if max_tokens > FEW_TOKENS:
        found.append(Layout(STAGES, fastest_plan("stspmm", tiles, max_tokens, dtype, gpu).shape.block_m))
    if few_tokens or max_tokens <= FEW_TOKENS:
        found.append(Layout(FRAGMENTS, fastest_plan("small-n", tiles, 1, dtype, gpu).shape.block_m))
    return tuple(found)


def halved_map(tiles: TileMap) -> NestedMap:
    """The tiles with 2:4 inside; which two of four stay matters to no plan, and so none are named."""
    none = np.zeros(0, np.int32)
    start = np.zeros(tiles.m + 1, np.int32)
    inner = ElementMap(m=tiles.m, k=tiles.k, row_start=start, column_index=none, pattern=tiles.pattern)
    return NestedMap(tiles=tiles, inner=inner)


def planned_tokens(tokens: int) -> int:
    """Tokens of the plan that a call of so many runs: 1, whole groups of 8, above 64 whole lines of L2."""
    if tokens == 1:
        return 1
    group = 8 if tokens <= FEW_TOKENS else _LINE_TOKENS
    return -(-tokens // group) * group


def plan_for(
    tiles: TileMap, tokens: int, dtype: str, gpu: GpuSpec, layouts: Sequence[Layout], *, glu: bool = False
) -> tuple[KernelPlan, int]:
    """The plan for `planned_tokens`, and which of the images it reads; `glu` for a gated unit as epilogue.

    Raises
    ------
    BadInput : no image is for so many tokens
    """
    kinds = [layout.kind for layout in layouts]
    if HALVES in kinds:
        rows = layouts[0].block_m
        same = fastest_plan(
            "2:4", halved_map(tiles), tokens, dtype, gpu, allowed=lambda config: config.shape.block_m == rows
        )
        return same, 0
    if tokens <= FEW_TOKENS and FRAGMENTS in kinds:
        kernel, image = "small-n", kinds.index(FRAGMENTS)
    elif STAGES in kinds:
        kernel, image = "stspmm", kinds.index(STAGES)
    else:
        raise BadInput(f"this layer is packed for at most {FEW_TOKENS} tokens, got {tokens}")
    rows = layouts[image].block_m

    def allowed(config: Any) -> bool:
        """Gate and up of 64 x 64 sums need more registers than 16 warps have."""
        is_large = (
            glu and layouts[image].kind == FRAGMENTS and config.warps == 16 and config.shape[:2] == (64, 64)
        )
        return bool(config.shape.block_m == rows and not is_large)

    return fastest_plan(kernel, tiles, tokens, dtype, gpu, allowed=allowed), image
