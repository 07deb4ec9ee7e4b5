"""The kernel for each number of tokens of a layer, and the layouts of its packed weights.

A layer is packed for one block height of each kernel, since every height needs another layout. Plans for
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
"""Most tokens of calls that run the kernel for few tokens."""
_LINE_TOKENS = 64


def layouts_for(
    tiles: TileMap, dtype: str, gpu: GpuSpec, max_tokens: int, *, few_tokens: bool, halved: bool = False
) -> tuple[Layout, ...]:
    """Return the layouts of the packed weights of a layer.

    Parameters
    ----------
    few_tokens : also return a layout for calls of up to 64 tokens if `max_tokens` is larger
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
    """Return the tiles with 2:4 inside. No plan depends on which two of four are kept, so the inner map is
    empty.
    """
    none = np.zeros(0, np.int32)
    start = np.zeros(tiles.m + 1, np.int32)
    inner = ElementMap(m=tiles.m, k=tiles.k, row_start=start, column_index=none, pattern=tiles.pattern)
    return NestedMap(tiles=tiles, inner=inner)


def planned_tokens(tokens: int) -> int:
    """Return the number of tokens of the plan for a call: 1, a multiple of 8, or above 64 whole L2 lines."""
    if tokens == 1:
        return 1
    group = 8 if tokens <= FEW_TOKENS else _LINE_TOKENS
    return -(-tokens // group) * group


def plan_for(
    tiles: TileMap, tokens: int, dtype: str, gpu: GpuSpec, layouts: Sequence[Layout], *, glu: bool = False
) -> tuple[KernelPlan, int]:
    """Return the plan for `tokens`, and the index of the packed weights that it reads.

    With `glu`, the epilogue is a gated unit.

    Raises
    ------
    BadInput : no packed weights support this number of tokens
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
        """Exclude 64 x 64 blocks of 16 warps with a gated unit: gate and up would need too many registers."""
        is_large = (
            glu and layouts[image].kind == FRAGMENTS and config.warps == 16 and config.shape[:2] == (64, 64)
        )
        return bool(config.shape.block_m == rows and not is_large)

    return fastest_plan(kernel, tiles, tokens, dtype, gpu, allowed=allowed), image
