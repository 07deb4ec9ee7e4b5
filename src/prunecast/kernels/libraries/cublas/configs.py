"""Kernels of cuBLAS on each GPU, from `tables/cublas_families.csv` and `tables/cublas_kernels.csv`.

The kernels are identified by the names that profilers print. `nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NNT` on
sm_90 has a tile of C of 256 x 128, k-steps of 64 in 4 stages, and a cluster of two; such kernels launch one
CTA of 384 threads on each SM. `ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn` has one CTA for
each tile. Bulk copies need rows that are aligned to 16 bytes. If rows are less aligned, sm_90 runs kernels of
sm_80 and sm_75, which copy 4 or 2 bytes per lane
(`cutlass_80_tensorop_f16_s16816gemm_f16_64x128_64x3_nn_align2`).
"""

from collections.abc import Iterator
from functools import lru_cache
from math import gcd
from typing import NamedTuple

from prunecast.hardware.occupancy import BlockResources, occupancy
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.libraries.cublas.launches import cublas_costs
from prunecast.kernels.libraries.library_tables import Row, numbers, rows_for, table
from prunecast.kernels.tile.config import TileConfig, WarpPart, warpgroup_part
from prunecast.plan.kernel_plan import DTYPE_BYTES, OUTPUT_BYTES, BlockShape
from prunecast.plan.tensor_rate import fma_per_clk

VECTOR_BYTES, NARROW_BYTES = 16, 4
"""Alignment in bytes for bulk copies, and bytes of the narrowest `cp.async`. Kind: definition, PTX ISA."""
WARPGROUP_THREADS = 384
"""Threads of a CTA: one producer warpgroup and two consumer warpgroups. Kind: as-compiled, launches of
kernels whose names begin with nvjet."""
SIDE_STEP = 8
"""Granularity of the tokens of a tensor instruction. Kind: definition, PTX ISA, shapes of wgmma."""

FAMILY_RULES = ("align_bytes", "free_least_steps", "most_slices", "narrow_up_to", "overhang")
KERNEL_RULES = (
    *("copy_cycles", "heuristic_copy_cycles", "free_slices", "most_work"),
    *("split_waves", "split_most_waves", "split_least_k", "split_least_steps"),
)


class LibraryKernel(NamedTuple):
    """A kernel of cuBLAS, with the rules by which the library is assumed to use it."""

    config: TileConfig
    deals_out: bool
    """True if the library uses the kernel only when the number of tokens is no multiple of 64 and the
    kernel's tiles divide it evenly."""
    rules: dict[str, float]
    """Columns of the tables.

    `align_bytes`: bytes that a lane copies at once. `copy_cycles` and `heuristic_copy_cycles`: cycles of the
    path to shared memory per copy instruction of a warp with less than 16 bytes per lane, as measured and as
    the library's heuristic assumes. `split_waves` and `split_most_waves`: waves of CTAs that split-K fills if
    tiles leave SMs idle, with slices of at least `split_least_steps` k-steps of 64 columns, from
    `split_least_k` columns on. `free_slices`: maximum number of slices if tiles leave no SMs idle.
    `narrow_up_to`: up to this many rows or tokens of a product (the smaller of the two), tiles narrower than
    64 are used. `overhang`: a side of a tile exceeds that of the product by less than this. `most_work`:
    maximum of tiles times columns of A.
    """

    def __str__(self) -> str:
        """Return the short name of the kernel's tile."""
        return str(self.config)


def aligned_bytes(k: int, n: int, dtype: str) -> int:
    """Return the alignment in bytes that matrix rows of k and of n elements have in common.

    The result is 16, or otherwise at most 4. With one token (n = 1), only k determines if it is 16.
    """
    element = DTYPE_BYTES[dtype]
    if (k if n == 1 else gcd(k, n)) * element % VECTOR_BYTES == 0:
        return VECTOR_BYTES
    return min(gcd(k, n) * element, NARROW_BYTES) if gcd(k, n) % 2 == 0 else element


@lru_cache(maxsize=64)
def library_kernels(gpu: GpuSpec, dtype: str, row_bytes: int = VECTOR_BYTES) -> tuple[LibraryKernel, ...]:
    """Return cuBLAS's kernels for a dtype and a row alignment, without those whose CTA exceeds an SM.

    If the GPU has no kernels for this alignment, the kernels of its first kernel family are returned.

    Parameters
    ----------
    row_bytes : alignment of rows in bytes, see `aligned_bytes`

    Raises
    ------
    BadInput : unknown dtype, or the GPU has no tensor cores for it
    """
    families = rows_for("cublas_families", gpu.compute_capability)
    known = [family for family in families if any(_rows(family, dtype))] or families
    own = [f for f in known if int(f["align_bytes"]) == row_bytes] or known[:1]
    own = [family for family in own if family["version"] == own[0]["version"]]
    fma_per_clk(gpu, dtype, _tensor(own[0]))  # raises BadInput if the GPU cannot run it
    found = (kernel for family in own for kernel in _kernels(family, gpu, dtype))
    return tuple(k for k in found if occupancy(k.config.resources, gpu).blocks_per_sm > 0)


def _kernels(family: Row, gpu: GpuSpec, dtype: str) -> Iterator[LibraryKernel]:
    """Yield the kernels of a family of cuBLAS, of the rows of the table and all widths that a row names."""
    for row in _rows(family, dtype):
        sides = numbers(row["block_n"])
        for side in sides if len(sides) == 1 else range(sides[0], sides[1] + 1, SIDE_STEP):
            config = _config(family, row, side, gpu, dtype)
            if config is not None:
                rules = {name: float(family[name]) for name in FAMILY_RULES}
                rules |= {name: float(row[name]) for name in KERNEL_RULES}
                yield LibraryKernel(config, len(sides) > 1, rules)


def _rows(family: Row, dtype: str) -> Iterator[Row]:
    """Yield the rows of the kernels of a family for a dtype."""
    for row in table("cublas_kernels"):
        if row["family"] == family["family"] and dtype in row["dtypes"].split():
            yield row


def _tensor(family: Row) -> str:
    return {"wgmma": "wgmma", "mma": "mma", "registers": "mma", "cuda cores": "none"}[family["path"]]


def _config(family: Row, row: Row, block_n: int, gpu: GpuSpec, dtype: str) -> TileConfig | None:
    """Return the config of a kernel in the tables.

    Return None if its stages exceed shared memory, or no tensor instruction fits the tile.
    """
    block_m, element = int(row["block_m"]), DTYPE_BYTES[dtype]
    part = _part(family, row, block_m, block_n, element)
    step_bytes = int(row["step_bytes"])
    resources = _resources(family, row, (block_m, block_n, step_bytes), part, gpu, dtype)
    if resources is None and family["path"] == "mma":
        # Halve the k-step if fewer than the minimum number of stages fit
        step_bytes //= 2
        resources = _resources(family, row, (block_m, block_n, step_bytes), part, gpu, dtype)
    if part is None or resources is None:
        return None
    return TileConfig(
        tensor_path="registers" if family["path"] == "cuda cores" else family["path"],
        tensor=_tensor(family),
        dtype=dtype,
        shape=BlockShape(block_m, block_n, step_bytes // element),
        part_m=part.rows,
        part_n=part.tokens,
        fma_per_instruction=part.fma,
        resources=resources,
        pair=int(family["pair"]),
    )


def _part(family: Row, row: Row, block_m: int, block_n: int, element: int) -> WarpPart | None:
    """Return the part of a tile (rows, tokens) of a warp or warpgroup, with the FMA of an instruction.

    Return None if no instruction fits. `element` are the bytes of an element of A and B.
    """
    if family["path"] != "wgmma":
        # The table is for elements of 2 bytes; an instruction on CUDA cores performs one FMA per lane
        fma = int(family["instruction_fma"])
        fma = fma if family["path"] == "cuda cores" else fma * 2 // element
        return WarpPart(int(row["part_m"]), int(row["part_n"]), fma)
    if int(family["pair"]) > 1:
        return WarpPart(block_m // 2, block_n, block_m * block_n * 32 // element)
    # If no instruction fits halves of the tile, one warpgroup computes the whole tile
    tile = BlockShape(block_m, block_n, 0)
    return warpgroup_part(tile, element) or warpgroup_part(tile, element, is_whole=True)


def _resources(
    family: Row, row: Row, tile: tuple[int, int, int], part: WarpPart | None, gpu: GpuSpec, dtype: str
) -> BlockResources | None:
    """Return the resources of a CTA with as many stages as fit, at most the maximum in the row.

    Return None if fewer stages than the row's minimum fit.
    """
    block_m, block_n, step_bytes = tile
    least, most = numbers(row["stages"])
    stage = (block_m + block_n // int(family["pair"])) * step_bytes
    other, registers = int(family["beside_bytes"]), int(row["registers"])
    if family["path"] == "wgmma":
        most_staging_bytes = cublas_costs(gpu.compute_capability).whole("most_staging_bytes")
        other += min(block_m * block_n * OUTPUT_BYTES[dtype] // 2, most_staging_bytes)
        threads = WARPGROUP_THREADS
    elif part is None:
        return None
    else:
        threads = 32 * (block_m // part.rows) * (block_n // part.tokens)
    shared_bytes = int(row["shared_bytes"])
    stages = most if shared_bytes else min((gpu.shared_bytes_per_block - other) // stage, most)
    if stages < least:
        return None
    return BlockResources(threads, registers, shared_bytes or other + stages * stage, stages)
