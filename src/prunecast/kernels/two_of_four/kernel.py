"""`2:4`: planner and record of the kernel on sparse tensor cores, for all columns of A or for the columns
that a tile map keeps (TVW).
"""

from collections.abc import Sequence

from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.kernel import Entry, ItemTimes, Kernel, Sources
from prunecast.kernels.tile.config import TileConfig
from prunecast.kernels.tile.configs import sparse_configs
from prunecast.kernels.tile.item_cost import item_cost, item_times
from prunecast.kernels.tile.tile_plan import check_tokens, height_of, items_of, tile_plan, tile_traits
from prunecast.patterns.element_map import ElementMap
from prunecast.patterns.tile_map import TileMap
from prunecast.patterns.tiling import dense_tile_map
from prunecast.plan.assignment import Assigned, assign_hardware, assign_lists
from prunecast.plan.kernel_plan import KernelPlan
from prunecast.plan.tile_rows import check_two_of_four, cut_rows

_TALL = 256
"""Rows of the tallest block of the wgmma kernel. Kind: CUDA source, `sparse_shape.cuh`."""


def plan_sparse_tensor(
    elements: ElementMap,
    n: int,
    dtype: str,
    gpu: GpuSpec,
    config: TileConfig,
    *,
    tiles: TileMap | None = None,
) -> KernelPlan:
    """Return the plan of a product of 2:4 weights with `n` tokens.

    Parameters
    ----------
    elements : kept elements; a row keeps at most two of every four neighbouring columns
    config : one of `_sparse_tensor_configs`
    tiles : None, or the tiles inside which the pattern is 2:4. Then columns are neighbours if they are
        neighbours in a tile's list of kept columns

    Raises
    ------
    BadInput : elements are not 2:4; n below 1
    """
    check_tokens(n)
    check_two_of_four(elements, tiles)
    height = config.shape.block_m
    whole = dense_tile_map(elements.m, elements.k, height) if tiles is None else cut_rows(tiles, height)
    # Only the wgmma kernel is persistent, to overlap storing C with the next item
    if config.tensor_path == "wgmma":
        assigned = _lists(whole, config, n, gpu)
    else:
        assigned = assign_hardware(items_of(whole, config, n, gpu))
    # Both kernels (`kernels/two_of_four/cuda`, `kernels/tile/cuda/mma`) always gather rows of B by index
    return tile_plan("2:4", whole, n, config, assigned, gpu, b_access="gather", inner=elements)


def _split_plans(plan: KernelPlan, config: TileConfig, gpu: GpuSpec) -> list[KernelPlan]:
    """Return the plans with heavy tiles split along K and their slices redistributed, as STSpMM does.

    The planner's cost of adding partial sums is a guess except with wgmma. For small layers on an A100, both
    engines predict less. Other kernels therefore also get the split that is best if it costs nothing, and the
    closed form compares the plans: 13 layers that are then split need 0.73 to 1.01 times as long as before
    (measured by mma.sp, H200, 2026-12-01). The list is empty if no split shortens the makespan.
    """
    priced = (True,) if config.tensor_path == "wgmma" else (True, False)
    plans = [split_plan(plan, config, gpu, priced=one) for one in priced]
    return list({one.timing_key(): one for one in plans if one.work.parts.max(initial=1) > 1}.values())


def split_plan(plan: KernelPlan, config: TileConfig, gpu: GpuSpec, *, priced: bool) -> KernelPlan:
    """Return the plan with the split that the planner finds best, which can be none.

    Parameters
    ----------
    priced : False to split as if adding partial sums cost nothing
    """
    cut = _lists(plan.tiles, config, plan.n, gpu, split="auto", priced=priced)
    return tile_plan("2:4", plan.tiles, plan.n, config, cut, gpu, b_access="gather", inner=plan.inner)


def _sparse_tensor_configs(
    elements: ElementMap, n: int, dtype: str, gpu: GpuSpec, *, tiles: TileMap | None = None
) -> tuple[TileConfig, ...]:
    """Return the configs of the kernel. Blocks of 128 x 256 are left out if a tile fills 256 rows, because
    then 256 x 128 needs as many k-steps and is faster.

    Measured on an H200 (2026-11-20): a k-step of 256 x 128 needs 749 cycles, one of 128 x 256 needs 778. Only
    256 x 128 overlaps the epilogue of an item with multiplications.

    Raises
    ------
    BadInput : n below 1; the GPU lacks sparse tensor cores or the dtype
    """
    check_tokens(n)
    height = height_of(_tiles_of(elements, tiles))
    configs = sparse_configs(gpu, dtype, height)
    tall = any(c.tensor_path == "wgmma" and c.shape.block_m == _TALL for c in configs)
    hidden = height >= _TALL and tall
    return tuple(c for c in configs if not (hidden and c.shape[:2] == (128, 256)))


def _sparse_tensor_times(
    configs: Sequence[TileConfig],
    elements: ElementMap,
    n: int,
    dtype: str,
    gpu: GpuSpec,
    *,
    tiles: TileMap | None = None,
) -> list[ItemTimes]:
    """Return the estimated times of the items of each config. Without splits along K, only the wgmma kernel
    uses a persistent grid.
    """
    own = all(config.tensor_path == "wgmma" for config in configs)
    return item_times(configs, _tiles_of(elements, tiles), n, dtype, gpu, persistent=own, splits=True)


TWO_OF_FOUR = Kernel(
    name="2:4",
    in_torch=True,
    fuses_in_torch=False,
    meaning="two of every four weights are kept, this project's kernel for sparse tensor cores; always 50 %",
    takes=ElementMap,
    natural_pattern="2:4",
    keeps=("elements in tiles",),
    families=("2:4",),
    costs="prunecast.kernels.tile",
    plan=plan_sparse_tensor,
    configs=_sparse_tensor_configs,
    times=_sparse_tensor_times,
    other_plans=_split_plans,
    compilers={
        "sparse-wgmma": Entry("prunecast.kernels.two_of_four.cuda.operator", "SparseOperator"),
        "sparse-mma": Entry("prunecast.kernels.tile.cuda.mma.operator", "MmaOperator", 80),
    },
    sources=Sources("sparse", ("device", "tile/cuda", "two_of_four/cuda")),
    traits=tile_traits,
)


def _tiles_of(elements: ElementMap, tiles: TileMap | None) -> TileMap:
    return dense_tile_map(elements.m, elements.k, elements.m) if tiles is None else tiles


def _lists(
    tiles: TileMap, config: TileConfig, n: int, gpu: GpuSpec, *, split: str | None = None, priced: bool = True
) -> Assigned:
    """Assign items, longest first, to the blocks of a persistent grid.

    Parameters
    ----------
    split : argument of `plan_stspmm`
    priced : argument of `split_plan`
    """
    items = items_of(tiles, config, n, gpu)
    cost = item_cost(config, tiles.kept_per_tile, tiles.row_index.size, n, gpu)
    cost = cost if priced else cost._replace(fix_up=0.0)
    return assign_lists(items, gpu.sm_count * cost.slots, config.shape.block_k, cost, split=split)
