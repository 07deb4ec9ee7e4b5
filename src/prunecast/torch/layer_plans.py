"""Choose the kernel for each number of tokens of a layer, and the layouts of its packed weights.

Every block height needs its own layout. A layer is therefore packed for one block height per kernel, and
plans for other numbers of tokens choose among the configs of that height.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from prunecast.choice import fastest_plan
from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec
from prunecast.kernels import KERNELS, ConvGrid, KernelPlan
from prunecast.kernels.libraries.experts.routing import expert_loads
from prunecast.kernels.small_n.cuda.records import GROUP
from prunecast.kernels.small_n.kernel import SMALL_N
from prunecast.patterns import ElementMap, NestedMap, TileMap
from prunecast.plan.misaligned import FEW_TOKENS
from prunecast.torch.layer_table import DTYPES
from prunecast.torch.weight_layouts import FRAGMENTS, STAGES, Layout


def layouts_for(
    tiles: TileMap, dtype: str, gpu: GpuSpec, max_tokens: int, *, few_tokens: bool, two_of_four: bool = False
) -> tuple[Layout, ...]:
    """Return the layouts of the packed weights of a layer.

    Parameters
    ----------
    few_tokens : whether to return also a layout for calls of up to 64 tokens if `max_tokens` is larger
    two_of_four : whether the weights in the tiles are 2:4; one kernel then runs any number of tokens

    Raises
    ------
    BadInput : no kernel runs the dtype on the GPU
    """
    kept = two_of_four_map(tiles) if two_of_four else tiles
    name = "2:4" if two_of_four else "stspmm"
    entries = KERNELS[name].compilers.values()
    runs = [other for other in DTYPES.values() if any(entry.runs(other, gpu) for entry in entries)]
    if two_of_four and runs and dtype not in runs:
        raise BadInput(
            f"2:4 kernels run {' and '.join(runs)} on {gpu.name}, these weights are {dtype}: cast the model, "
            "or load it with dtype='auto'"
        )
    few = not two_of_four and SMALL_N.compilers["mma"].runs(dtype, gpu)
    found = []
    if max_tokens > FEW_TOKENS or not few:
        found.append(layout_of_plan(fastest_plan(name, kept, max_tokens, dtype, gpu), gpu))
    if few and (few_tokens or max_tokens <= FEW_TOKENS):
        found.append(layout_of_plan(fastest_plan("small-n", tiles, 1, dtype, gpu), gpu))
    return tuple(found)


def layout_of_plan(plan: KernelPlan, gpu: GpuSpec) -> Layout:
    """Return the layout of packed weights that the kernel of a plan reads.

    Raise BadInput if no kernel runs the plan on the GPU.
    """
    entry = KERNELS[plan.kernel].compilers.get(plan.tensor)
    if entry is None or not entry.runs(plan.dtype, gpu):
        raise BadInput(f"no kernel runs {plan.dtype} weights on {gpu.name}: cast the model to another dtype")
    if plan.kernel == SMALL_N.name:
        return Layout(FRAGMENTS, plan.shape.block_m, GROUP)
    return Layout(plan.tensor, plan.shape.block_m, plan.shape.block_k)


def two_of_four_map(tiles: TileMap) -> NestedMap:
    """Return a map of 2:4 weights inside the tiles.

    Its inner map is empty, since no plan depends on which two of four weights are kept.
    """
    none = np.zeros((tiles.m, -(-tiles.k // 8)), np.uint8)
    inner = ElementMap(m=tiles.m, k=tiles.k, kept_bits=none, pattern=tiles.pattern)
    return NestedMap(tiles=tiles, inner=inner)


def plan_for(
    tiles: TileMap, tokens: int, dtype: str, gpu: GpuSpec, layouts: Sequence[Layout], *, glu: bool
) -> tuple[KernelPlan, int]:
    """Return the plan for `tokens` tokens, and the index in `layouts` of the packed weights that it reads.

    `glu` states whether the epilogue is a gated unit.

    Raises
    ------
    BadInput : no packed weights support this number of tokens
    """
    few = [index for index, layout in enumerate(layouts) if layout.kind == FRAGMENTS]
    whole = [index for index, layout in enumerate(layouts) if layout.kind != FRAGMENTS]
    if not whole and tokens > FEW_TOKENS:
        raise BadInput(f"this layer is packed for at most {FEW_TOKENS} tokens, got {tokens}")
    image = (few or whole)[0] if tokens <= FEW_TOKENS else whole[0]
    layout = layouts[image]

    def allowed(config: Any) -> bool:
        """Exclude 64 x 64 blocks of 16 warps with a gated unit: gate and up would need too many registers."""
        if layout.kind == FRAGMENTS:
            is_large = glu and config.warps == 16 and config.shape[:2] == (64, 64)
            return bool(config.shape.block_m == layout.block_m and not is_large)
        return bool((config.shape.block_m, config.shape.block_k) == layout[1:])

    kept = two_of_four_map(tiles) if layout.is_two_of_four else tiles
    return fastest_plan(layout.kernel, kept, tokens, dtype, gpu, allowed=allowed), image


def conv_plan(
    tiles: TileMap, grid: ConvGrid, dtype: str, gpu: GpuSpec, layouts: Sequence[Layout]
) -> tuple[KernelPlan, int]:
    """Return the plan of a convolution, and the index in `layouts` of the packed weights that it reads."""
    blocks = [layout[1:] for layout in layouts]

    def allowed(config: Any) -> bool:
        return (config.shape.block_m, config.shape.block_k) in blocks

    plan = fastest_plan("stspmm", tiles, grid.n, dtype, gpu, allowed=allowed, source=grid)
    return plan, blocks.index((plan.shape.block_m, plan.shape.block_k))


FEW_PLANNED = 16
"""Largest number of tokens for which the few-token layout of experts is optimised. Kind: choice, decoding of
16 sequences.
"""


class ExpertTokens(NamedTuple):
    """Number of tokens of a layer of experts, experts per token, and number of experts."""

    tokens: int
    per_token: int
    experts: int

    @property
    def loads(self) -> tuple[int, ...]:
        """Number of tokens of each expert for random routing, in ascending order, (experts,)."""
        loads = expert_loads(self.experts, self.per_token, self.tokens, "random")
        return tuple(int(load) for load in loads)

    def plan(self, kernel: str, tiles: TileMap, dtype: str, gpu: GpuSpec, **options: Any) -> KernelPlan:
        """Return the fastest plan of a grouped launch for the tiles of all experts."""
        loads = self.loads
        mean = -(-sum(loads) // max(sum(load > 0 for load in loads), 1))
        return fastest_plan(kernel, tiles, mean, dtype, gpu, loads=loads, **options)


def expert_layouts(
    tiles: TileMap, dtype: str, gpu: GpuSpec, most: ExpertTokens, *, few_tokens: bool
) -> tuple[Layout, ...]:
    """Return the layouts of the packed weights of a layer of experts.

    There is one for calls of `most.tokens` tokens, and one for few tokens if `few_tokens` is set or
    `most.tokens` is small. GPUs without a grouped launch, and fp32, get the layout of a single matrix.
    """
    if not gpu.has_wgmma or dtype == "fp32":
        return layouts_for(tiles, dtype, gpu, most.tokens, few_tokens=False)
    found = []
    if most.tokens > FEW_TOKENS:
        found.append(layout_of_plan(most.plan("stspmm", tiles, dtype, gpu), gpu))
    if few_tokens or most.tokens <= FEW_TOKENS:
        few = most._replace(tokens=min(most.tokens, FEW_PLANNED))
        found.append(layout_of_plan(few.plan("small-n", tiles, dtype, gpu), gpu))
    return tuple(found)


def expert_plans(
    maps: Sequence[TileMap],
    sizes: ExpertTokens,
    dtype: str,
    gpu: GpuSpec,
    layouts: Sequence[Sequence[Layout]],
) -> list[tuple[KernelPlan, int]]:
    """Return, for each product of a layer of experts, its plan and the index of its packed weights.

    All plans have blocks with the same number of tokens, since the products share the columns of the experts.

    Raises
    ------
    BadInput : the weights are not packed for a grouped launch
    """
    found: list[tuple[KernelPlan, int]] = []
    for tiles, packed in zip(maps, layouts, strict=True):
        few = [index for index, layout in enumerate(packed) if layout.kind == FRAGMENTS]
        image = few[0] if few and sizes.tokens <= FEW_TOKENS else 0
        layout = packed[image]
        if layout.kind not in (STAGES, FRAGMENTS):
            raise BadInput(
                f"experts run on Hopper GPUs in fp16 and bf16, this layer is packed for {gpu.name}"
            )
        width = found[0][0].shape.block_n if found else 0

        def allowed(config: Any, layout: Layout = layout, width: int = width) -> bool:
            return config.shape.block_m == layout.block_m and width in (0, config.shape.block_n)

        found.append((sizes.plan(layout.kernel, tiles, dtype, gpu, allowed=allowed), image))
    return found
