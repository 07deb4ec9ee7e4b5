"""`cusparselt`: products of 2:4 weights by NVIDIA's library cuSPARSELt; planner and record.

The source of the library is not public. Its kernels are modelled as those of cuBLAS with 2:4 weights: they
copy half of the values with two bits of metadata each, use sparse tensor instructions, and have as many
pipeline stages as fit. Users let the library search for its fastest algorithm, so the predicted config is the
one that the closed form predicts to be fastest.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from prunecast.errors import BadInput
from prunecast.hardware.occupancy import occupancy
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.kernel import ItemTimes, Kernel, LaunchTraits
from prunecast.kernels.libraries.cublas.configs import LibraryKernel, library_kernels
from prunecast.kernels.libraries.cublas.kernel import assigned_ctas
from prunecast.kernels.libraries.cublas.programs import cublas_programs
from prunecast.kernels.libraries.library_tables import Row, rows_for
from prunecast.kernels.tile.config import TileConfig, lone_block, warpgroup_part, weight_bytes
from prunecast.kernels.tile.item_cost import item_times
from prunecast.kernels.tile.tile_plan import check_tokens, items_of
from prunecast.patterns.element_map import ElementMap
from prunecast.patterns.tiling import dense_tile_map
from prunecast.plan.kernel_plan import KernelPlan
from prunecast.plan.tensor_rate import tensor_fma_per_clk
from prunecast.plan.tile_rows import check_two_of_four
from prunecast.plan.work_items import raster_items

WEIGHT_MULTIPLE, TOKEN_MULTIPLE = 16, 8
"""Multiples required for rows and columns of 2-byte 2:4 weights (16) and for tokens (8). Kind: definition,
cuSPARSELt documentation, `cusparseLtStructuredDescriptorInit` and `cusparseLtDenseDescriptorInit`."""
LEAST_STAGES = 2
"""Minimum number of pipeline stages. Kind: definition, one is copied while another is multiplied."""


def _cusparselt_configs(elements: ElementMap, n: int, dtype: str, gpu: GpuSpec) -> tuple[LibraryKernel, ...]:
    """Return the kernels that the library may choose.

    Raises
    ------
    BadInput : sizes that the library rejects; the GPU lacks sparse tensor cores or the dtype
    """
    check_tokens(n)
    for name, size, multiple in (
        ("rows", elements.m, WEIGHT_MULTIPLE),
        ("columns", elements.k, WEIGHT_MULTIPLE),
        ("tokens", n, TOKEN_MULTIPLE),
    ):
        if size % multiple:
            raise BadInput(f"cusparselt: {name} must be a multiple of {multiple}, got {size}")
    kernels = _kernels(gpu, dtype)
    return tuple(k._replace(config=lone_block(k.config, elements.m, gpu)) for k in kernels)


def _plan_cusparselt(
    elements: ElementMap, n: int, dtype: str, gpu: GpuSpec, config: LibraryKernel | None = None
) -> KernelPlan:
    """Return the plan of a product of 2:4 weights with `n` tokens.

    `config` is one of `_cusparselt_configs`; None for the first.

    Raises
    ------
    BadInput : in the same cases as `_cusparselt_configs`, or the elements are not 2:4
    """
    kernel = config or _cusparselt_configs(elements, n, dtype, gpu)[0]
    check_two_of_four(elements)
    tile = kernel.config
    tiles = dense_tile_map(elements.m, elements.k, tile.shape.block_m)
    if tile.tensor_path == "wgmma":
        items = items_of(tiles, tile, n, gpu)
    else:
        # Process all rows of a token range before the next range, however large A is: kernels of sm_80 read
        # weights that do not fit in L2 once per range. With 27648 x 5120 an A100 and an RTX 4090 are 1.2 and
        # 1.4 times faster than dense, with 7168 x 5120 1.6 and 2.1 times (cuSPARSELt of CUDA 12.9)
        items = raster_items(tiles.kept_per_tile, n=n, block_n=tile.shape.block_n)
    return KernelPlan(
        kernel="cusparselt",
        n=n,
        dtype=dtype,
        tiles=tiles,
        inner=elements,
        **assigned_ctas(items, tile, gpu)._asdict(),
        shape=tile.shape,
        resources=tile.resources,
        programs=cublas_programs(kernel, elements.m, elements.k, n, 1, gpu),
        tensor=tile.tensor,
        b_access="dense_tile",
        config=tile,
    )


def _times(
    kernels: Sequence[LibraryKernel], elements: ElementMap, n: int, dtype: str, gpu: GpuSpec
) -> list[ItemTimes]:
    tiles = dense_tile_map(elements.m, elements.k, elements.m)
    configs = [kernel.config for kernel in kernels]
    persistent = all(config.tensor_path == "wgmma" for config in configs)
    return item_times(configs, tiles, n, dtype, gpu, persistent=persistent)


def _family(gpu: GpuSpec) -> Row:
    """Return the table row of the GPU's architecture: the smallest tiles, and the time of additional
    launches.
    """
    return rows_for("cusparselt_families", gpu.compute_capability)[0]


CUSPARSELT = Kernel(
    name="cusparselt",
    meaning="two of every four weights are kept, by the vendor's library for sparse tensor cores; "
    "always 50 %",
    takes=ElementMap,
    natural_pattern="2:4",
    families=("2:4",),
    library=True,
    costs="prunecast.kernels.libraries.cublas",
    plan=_plan_cusparselt,
    configs=_cusparselt_configs,
    times=_times,
    traits=lambda _, gpu: LaunchTraits(other_launches_s=float(_family(gpu)["beside_s"])),
)


@lru_cache(maxsize=64)
def _kernels(gpu: GpuSpec, dtype: str) -> tuple[LibraryKernel, ...]:
    """Return the 2:4 kernels of the library: those of cuBLAS that `_family` allows, made sparse."""
    tensor_fma_per_clk(gpu, dtype, "sparse-mma")  # raises BadInput if the GPU cannot run it
    least_rows, least_tokens = (int(_family(gpu)[name]) for name in ("least_rows", "least_tokens"))
    # On sm_90 the 2:4 kernels for int8 have the tiles of fp8; those of dense int8 are older kernels
    tiles_of = "fp8" if dtype == "int8" and gpu.has_wgmma else dtype
    wanted = (
        kernel._replace(config=replace(kernel.config, dtype=dtype))
        for kernel in library_kernels(gpu, tiles_of)
        if not kernel.deals_out
        and kernel.config.shape.block_m >= least_rows
        and kernel.config.shape.block_n >= least_tokens
    )
    found = (_sparse(kernel, gpu) for kernel in wanted)
    return tuple(kernel for kernel in found if kernel is not None)


def _sparse(kernel: LibraryKernel, gpu: GpuSpec) -> LibraryKernel | None:
    """Return the 2:4 kernel with the tile of a dense kernel, with k-steps twice as long if they fit. Return
    None if no such kernel is possible.
    """
    dense = kernel.config
    rows, tokens = dense.part_m, dense.part_n
    if dense.tensor_path == "wgmma" and dense.pair == 1:
        # A warpgroup computes a multiple of 64 weight rows, the rows of one instruction
        part = warpgroup_part(dense.shape, dense.element_bytes, sparse=True)
        if part is None:
            return None
        rows, tokens = part.rows, part.tokens
    config = replace(dense, tensor=f"sparse-{dense.tensor}", part_m=rows, part_n=tokens)
    for factor in (2, 1):
        shape = dense.shape._replace(block_k=factor * dense.shape.block_k)
        fitted = _with_stages(replace(config, shape=shape), dense, gpu)
        if fitted is not None:
            return kernel._replace(config=fitted)
    return None


def _with_stages(config: TileConfig, dense: TileConfig, gpu: GpuSpec) -> TileConfig | None:
    """Return the config with as many stages as shared memory holds, at most those of the dense kernel.

    Return None if fewer than `LEAST_STAGES` fit.
    """
    shape, element = config.shape, config.element_bytes
    was = (shape.block_m + shape.block_n // config.pair) * dense.shape.block_k * element
    beside = dense.resources.shared_bytes - dense.resources.stages * was
    weights = weight_bytes(shape.block_m, shape.block_k, element, sparse=True)
    stage = weights + shape.block_n // config.pair * shape.block_k * element
    stages = min((gpu.shared_bytes_per_block - beside) // stage, dense.resources.stages)
    if stages < LEAST_STAGES:
        return None
    resources = dense.resources._replace(shared_bytes=beside + stages * stage, stages=stages)
    fitted = replace(config, resources=resources)
    return fitted if occupancy(resources, gpu).blocks_per_sm else None
