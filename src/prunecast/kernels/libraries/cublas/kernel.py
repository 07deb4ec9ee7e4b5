"""`dense`: products by cuBLAS, with the kernel that it is predicted to choose; planner and record."""

from dataclasses import replace

import numpy as np

from prunecast.errors import BadInput
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.kernel import Kernel, LaunchTraits
from prunecast.kernels.libraries.cublas.configs import LibraryKernel, aligned_bytes
from prunecast.kernels.libraries.cublas.launches import cublas_costs, reduction_seconds
from prunecast.kernels.libraries.cublas.programs import cublas_programs
from prunecast.kernels.libraries.cublas.rank import Ranked, rank
from prunecast.kernels.libraries.library_tables import numbers, table
from prunecast.kernels.tile.config import TileConfig, lone_block
from prunecast.kernels.tile.tile_plan import check_tokens, items_of, resident_blocks
from prunecast.patterns.tiling import dense_tile_map
from prunecast.plan.assignment import Assigned, assign_hardware, assign_longest_first, split_items
from prunecast.plan.kernel_plan import KernelPlan, PlanDoesNotFit, WorkList


def _dense_configs(
    m: int,
    k: int,
    n: int,
    dtype: str,
    gpu: GpuSpec,
    *,
    tokens_lie_together: bool = False,
    is_padded: bool = True,
) -> list[Ranked]:
    """Return the kernels that cuBLAS may choose, with split-K slices, the predicted choice first.

    Parameters
    ----------
    tokens_lie_together : True if C is row-major; k and n then determine the alignment of rows
    is_padded : used only if C is column-major, as in torch. True if rows of A and columns of B (k elements)
        and columns of C (m elements) are aligned to 16 bytes for any k and m, as in convolutions; False if
        k and m determine the alignment

    Raises
    ------
    BadInput : a size below 1, or a dtype that the GPU has no tensor cores for
    """
    if m <= 0 or k <= 0:
        raise BadInput(f"A must have at least one row and one column, got {m} x {k}")
    check_tokens(n)
    row_bytes = 16
    if tokens_lie_together or not is_padded:
        row_bytes = aligned_bytes(k, n if tokens_lie_together or n == 1 else m, dtype)
    found = rank(m, k, n, dtype, gpu, row_bytes)
    named = _named_tile(m, k, n, gpu)
    return sorted(found, key=lambda ranked: ranked.kernel.config.shape[:2] != named) if named else found


def plan_dense(
    m: int,
    k: int,
    n: int,
    dtype: str,
    gpu: GpuSpec,
    *,
    config: Ranked | None = None,
    tokens_lie_together: bool = False,
    is_padded: bool = True,
) -> KernelPlan:
    """Return the plan of the dense product C (m, n) = A (m, k) @ B (k, n).

    On sm_90 and sm_100 the grid is persistent, and clusters share their reads from L2 by multicast. On other
    GPUs the hardware dispatches one CTA per tile of C. A second kernel adds the partial sums of split-K.

    Parameters
    ----------
    config : kernel and split-K slices, from `DENSE.configs`; None for the predicted choice of the library
    tokens_lie_together : True if C is row-major; k and n then determine the alignment of rows
    is_padded : used if C is column-major, as in torch. True if rows of k and m elements are aligned to 16
        bytes whatever their lengths are; False if their lengths determine the alignment

    Raises
    ------
    BadInput : a size is below 1, or the GPU has no tensor cores for the dtype
    PlanDoesNotFit : no kernel of cuBLAS fits on an SM
    """
    if config is None:
        found = _dense_configs(
            m, k, n, dtype, gpu, tokens_lie_together=tokens_lie_together, is_padded=is_padded
        )
        if not found:
            raise PlanDoesNotFit(f"dense: no kernel of cuBLAS fits on an SM of {gpu.name}")
        config = found[0]
    kernel = _as_launched(config, m, n, gpu)
    tile, slices = kernel.config, config.slices
    tiles = dense_tile_map(m, k, tile.shape.block_m)
    items = items_of(tiles, tile, n, gpu)
    parts = split_items(items, np.full(items.tile.size, slices), tile.shape.block_k)
    return KernelPlan(
        kernel="dense",
        n=n,
        dtype=dtype,
        tiles=tiles,
        **assigned_ctas(parts, tile, gpu)._asdict(),
        shape=tile.shape,
        resources=tile.resources,
        programs=cublas_programs(kernel, m, k, n, slices, gpu),
        tensor=tile.tensor,
        b_access="dense_tile",
    )


def _dense_traits(plan: KernelPlan, gpu: GpuSpec) -> LaunchTraits:
    """Return the launch traits: the seconds of the split-K reduction and of the fill that clears the tile
    counter.
    """
    slices = int(plan.work.parts.max(initial=1))
    sums_s = float(reduction_seconds(plan.m, plan.n, slices, gpu))
    return LaunchTraits(other_launches_s=sums_s + _counter_seconds(plan.item_count, gpu))


def _counter_seconds(tiles: float, gpu: GpuSpec) -> float:
    """Return the seconds of the launch that clears the tile counter of persistent CTAs; 0 if not needed."""
    most = cublas_costs(gpu.compute_capability)["counter_tiles_per_sm"] * gpu.sm_count
    return gpu.graph_launch_s if gpu.has_wgmma and tiles > most else 0.0


DENSE = Kernel(
    name="dense",
    meaning="all weights, pruned or not, by the vendor's library: what the others are compared with",
    is_baseline=True,
    takes=None,
    natural_pattern="dense",
    families=("dense",),
    in_torch=True,
    library=True,
    costs=__package__,
    plan=plan_dense,
    configs=_dense_configs,
    traits=_dense_traits,
)


def _named_tile(m: int, k: int, n: int, gpu: GpuSpec) -> tuple[int, int] | None:
    """Return (rows, tokens) of the tile in `tables/cublas_choices.csv` for a product; None if not listed."""
    for row in table("cublas_choices"):
        if gpu.compute_capability not in numbers(row["sm"]):
            continue
        if m <= int(row["m_to"]) and k <= int(row["k_to"]) and int(row["n_from"]) <= n <= int(row["n_to"]):
            return int(row["block_m"]), int(row["block_n"])
    return None


def _as_launched(config: Ranked, m: int, n: int, gpu: GpuSpec) -> LibraryKernel:
    """Return the kernel as it runs in this product.

    With small tiles, the two warpgroups of a CTA compute different tiles in alternation. If an SM has only
    one tile, only one warpgroup is active. A CTA of a pair has no neighbour if it covers all rows.
    """
    kernel = config.kernel._replace(config=lone_block(config.kernel.config, m, gpu))
    tile = kernel.config
    block_m, block_n, _ = tile.shape
    ctas = -(-m // block_m) * -(-n // block_n) * config.slices
    most = cublas_costs(gpu.compute_capability)["lone_warpgroup_elements"]
    in_turn = gpu.has_wgmma and tile.tensor_path == "wgmma" and block_m * block_n <= most
    if not in_turn or ctas > gpu.sm_count:
        return kernel
    return kernel._replace(config=replace(tile, warpgroups=1, part_m=block_m, part_n=block_n))


def assigned_ctas(items: WorkList, config: TileConfig, gpu: GpuSpec) -> Assigned:
    """Return the assignment of work items to CTAs: persistent ones with wgmma, else one CTA per item."""
    if config.tensor_path != "wgmma":
        return assign_hardware(items)
    blocks = resident_blocks(config, gpu, items.tile.size)
    return assign_longest_first(items, items.k_stop - items.k_start, blocks)
