"""`TileConfig`: one compiled variant of the tile kernel, and its work per 16 kept columns of A (a k16).

The wgmma variants have one producer warpgroup and two consumer warpgroups. Their 168 registers, stages of 48
KB and shared memory outside the stages are those of such a kernel, compiled for sm_90a and measured on an
H200 (2026-11-20).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

from prunecast.errors import BadInput
from prunecast.hardware.occupancy import BlockResources
from prunecast.hardware.spec import GpuSpec
from prunecast.plan.kernel_plan import DTYPE_BYTES, OUTPUT_BYTES, BlockShape, KernelPlan

CONSUMER_WARPGROUPS = 2
"""Number of consumer warpgroups. Kind: CUDA source, `tile_shape.cuh`."""
WGMMA_ROWS, WGMMA_MOST_COLUMNS = 64, 256
"""Number of rows, and maximum number of columns, of the result of one wgmma instruction. Kind: definition,
PTX ISA, wgmma.mma_async m64nNk16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TileConfig:
    """One compiled variant of the tile kernel.

    Parameters
    ----------
    tensor_path : `wgmma`, `mma` or `registers`, see `prunecast.kernels.tile.configs`
    tensor : tensor instruction, as `KernelPlan.tensor`
    dtype : as `KernelPlan.dtype`
    shape : tile of C and k-step; `block_k` counts columns of A before 2:4 compression
    part_m, part_n : rows and tokens of the part of the tile of C that one warpgroup (wgmma) or one warp
        (other paths) computes
    fma_per_instruction : FMA of one tensor instruction of a warpgroup (wgmma) or of a warp (other paths)
    resources : resources that a block occupies on an SM
    pair : number of blocks on neighbouring SMs that execute tensor instructions together (CTA pair): 1, or 2
        on sm_100. Each block holds its own weights and its share of the tokens in shared memory
    lone : True if a block of a pair has no neighbour and holds all tokens of its tile, see `lone_block`
    warpgroups : number of warpgroups of a wgmma kernel that multiply an item together
    two_sets : True if registers hold two sets of operand fragments, see `TileForm.two_sets`
    tensor_limited : True if the tensor cores limit k-steps, see `TileForm.tensor_limited`
    element_bytes, output_bytes : bytes of one element of A and B, and of one element of C
    is_sparse : True if the weights are 2:4
    tokens_copied : tokens of the tile that the block itself copies into shared memory
    tokens_first : True if tokens are the first operand of wgmma, see `TOKEN_FORM`
    consumer_warps : number of warps that multiply
    warps_per_part : number of warps that compute one part of C together: a warpgroup for wgmma, else one
    weight_bytes_per_k16 : bytes of packed weights of the tile per 16 kept columns, including the metadata of
        2:4
    share_bytes_per_k16 : bytes of weights and B that the block copies into its own shared memory per 16 kept
        columns
    """

    tensor_path: str
    tensor: str
    dtype: str
    shape: BlockShape
    part_m: int
    part_n: int
    fma_per_instruction: int
    resources: BlockResources
    pair: int = 1
    lone: bool = False
    warpgroups: int = CONSUMER_WARPGROUPS
    two_sets: bool = False
    tensor_limited: bool = False
    element_bytes: int = field(init=False, repr=False, compare=False)
    output_bytes: int = field(init=False, repr=False, compare=False)
    is_sparse: bool = field(init=False, repr=False, compare=False)
    tokens_copied: int = field(init=False, repr=False, compare=False)
    tokens_first: bool = field(init=False, repr=False, compare=False)
    consumer_warps: int = field(init=False, repr=False, compare=False)
    warps_per_part: int = field(init=False, repr=False, compare=False)
    weight_bytes_per_k16: int = field(init=False, repr=False, compare=False)
    share_bytes_per_k16: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Computed once: heuristics of libraries rank hundreds of configs by these numbers
        element_bytes, sparse = DTYPE_BYTES[self.dtype], self.tensor.startswith("sparse-")
        in_groups = self.tensor_path == "wgmma"
        copied = self.shape.block_n // (1 if self.lone else self.pair)
        packed = weight_bytes(self.shape.block_m, 16, element_bytes, sparse=sparse)
        for name, value in {
            "element_bytes": element_bytes,
            "output_bytes": OUTPUT_BYTES[self.dtype],
            "is_sparse": sparse,
            "tokens_copied": copied,
            "tokens_first": self.tensor == "wgmma" and self.shape[:2] == TOKEN_FORM,
            "consumer_warps": 4 * self.warpgroups if in_groups else self.resources.threads // 32,
            "warps_per_part": 4 if in_groups else 1,
            "weight_bytes_per_k16": packed,
            "share_bytes_per_k16": packed + copied * 16 * element_bytes,
        }.items():
            object.__setattr__(self, name, value)

    def __str__(self) -> str:
        """Return the short name, e.g. `128x256x64 s4`: tile of C, k-step and number of stages."""
        return f"{'x'.join(map(str, self.shape))} s{self.resources.stages}"

    @property
    def fma_per_warp_per_k16(self) -> int:
        """FMA of one consumer warp per 16 kept columns. With 2:4 weights only FMA of kept weights count."""
        dense = self.shape.block_m * self.shape.block_n * 16 // self.consumer_warps
        return dense // 2 if self.is_sparse else dense

    @property
    def instructions_per_k16(self) -> int:
        """Number of tensor (or FMA) instructions that one consumer warp issues per 16 kept columns."""
        fma = self.fma_per_warp_per_k16 * self.warps_per_part
        return max(fma // self.fma_per_instruction, 1)

    @property
    def operand_bytes_per_warp_per_k16(self) -> int:
        """Bytes of shared memory that one consumer warp reads per 16 kept columns. Reads of a warpgroup are
        divided evenly among its four warps.
        """
        if self.pair > 1:
            return self.share_bytes_per_k16 // self.consumer_warps
        if self.tensor_path == "wgmma":
            use = wgmma_use(self.part_m, self.part_n, self.element_bytes, sparse=self.is_sparse)
            return use.operand_bytes // 4 if use else 0
        if self.tensor == "none":
            # The lanes of a warp, 4 along the rows and 8 along the tokens, read four elements at a time. Each
            # such read occupies the port for four cycles, even if lanes read the same address.
            return 16 * (self.part_m // 4 // 4 + self.part_n // 8 // 4) * 4 * 128
        weights = weight_bytes(self.part_m, 16, self.element_bytes, sparse=self.is_sparse)
        return weights + self.part_n * 16 * self.element_bytes


def lone_block(config: TileConfig, m: int, gpu: GpuSpec) -> TileConfig:
    """Return the config as it runs for `m` rows.

    The two blocks of a pair are neighbours along the rows. If one block covers all rows, it has no neighbour
    that copies a part of its tokens. It copies all of them, and has as many stages as then fit, at most those
    of the pair.
    """
    if config.pair == 1 or m > config.shape.block_m:
        return config
    lone, was = replace(config, lone=True), config.resources
    groups = config.shape.block_k // 16
    other_bytes = was.shared_bytes - was.stages * groups * config.share_bytes_per_k16
    stage_bytes = groups * lone.share_bytes_per_k16
    stages = min((gpu.shared_bytes_per_block - other_bytes) // stage_bytes, was.stages)
    shared_bytes = other_bytes + stages * stage_bytes
    return replace(lone, resources=was._replace(shared_bytes=shared_bytes, stages=stages))


def weight_bytes(rows: int, columns: int, element_bytes: int, *, sparse: bool) -> int:
    """Return the bytes of packed weights. With 2:4, half of the values are stored, and two bits of metadata
    for each of them.
    """
    if not sparse:
        return rows * columns * element_bytes
    return rows * columns // 2 * element_bytes + rows * columns // 8


class _WgmmaUse(NamedTuple):
    """Shared-memory reads and instruction shape with which a warpgroup multiplies 16 columns for the part of
    C that it computes.
    """

    operand_bytes: int
    """Bytes of shared memory that all its instructions read."""
    instruction_rows: int
    """N of the instruction m64nN: rows of its second operand, the tokens if weights are the 64 rows, else the
    weights."""


@lru_cache(maxsize=256)
def wgmma_use(part_m: int, part_n: int, element_bytes: int, *, sparse: bool) -> _WgmmaUse | None:
    """Return the use of wgmma that reads the fewest bytes of shared memory for 16 columns of a part of C;
    None if no instruction fits.

    An instruction m64nN reads 64 rows of one operand and N of the other. Weights or tokens may be the 64
    rows; the choice with fewer bytes is returned. 2:4 weights must be the 64 rows; their metadata are read
    from registers.
    """
    weights = element_bytes * (8 if sparse else 16)
    tokens = element_bytes * 16
    ways = []
    if part_m % WGMMA_ROWS == 0 and part_n <= WGMMA_MOST_COLUMNS:
        ways.append(_WgmmaUse(part_m // WGMMA_ROWS * (WGMMA_ROWS * weights + part_n * tokens), part_n))
    if part_n % WGMMA_ROWS == 0 and part_m <= WGMMA_MOST_COLUMNS and not sparse:
        ways.append(_WgmmaUse(part_n // WGMMA_ROWS * (WGMMA_ROWS * tokens + part_m * weights), part_m))
    return min(ways, default=None)


THREADS, REGISTERS_AT_ENTRY = 384, 168
"""Threads of a block, and registers of each thread when the block starts. Kind: as-compiled, sm_90a."""
BARRIER_BYTES = 1024
"""Bytes of barriers and alignment in addition to the pipeline stages. Kind: CUDA source, `tile_shape.cuh`."""
STAGING_BYTES = (32 * 1024, 16 * 1024)
"""Sizes in bytes of the staging buffer of C, largest first. The buffer has the first size that is at most
half a tile of C; if half a tile is smaller than both, it has that size. Kind: CUDA source,
`tile_shape.cuh`."""
COLUMN_BYTES, RUN_BYTES = 2 * 64 * 4, 2 * 4 * 4
"""Bytes of column indices per slot of the circular buffer of stages (`RUN_BYTES`: indices of the first
columns of runs, in fp8). A slot holds the indices of its current stage and of the next stage that uses it.
Kind: CUDA source, `tile_shape.cuh`, `tile_tokens_shape.cuh`."""
SPARSE_STAGING_BYTES = 16 * 1024
"""Bytes of the staging buffer of C in the 2:4 kernel: 16 rows of 64 tokens for each of eight warps. Kind:
CUDA source, `sparse_shape.cuh`."""
MOST_STAGES = 8
"""Maximum number of pipeline stages. Kind: choice, no config that more stages would make faster has shared
memory for them."""
STEP_ROW_BYTES = 128
"""Bytes of a row of weights in a k-step, the width of the widest swizzle. Kind: CUDA source,
`tile_shape.cuh`."""


class TileForm(NamedTuple):
    """Size of a compiled tile of C, and of the part that each of eight warps computes."""

    block_m: int
    block_n: int
    part_m: int = 0
    """Rows of a warp's part; 0 for wgmma, where each consumer warpgroup computes half of the tile."""
    part_n: int = 0
    two_sets: bool = False
    """True if registers hold two sets of operand fragments, so that a warp reads one set while it multiplies
    the other."""
    tensor_limited: bool = False
    """True if the tensor cores limit the k-steps of a wgmma tile: the producer keeps up with them, since
    products of this tile need as long as all bytes at the port of shared memory. False if the port limits
    them. The costs of copies differ (`programs.gather.copy_overhead`)."""


_MMA = (
    TileForm(128, 256, 64, 64, two_sets=True),
    TileForm(256, 128, 64, 64, two_sets=True),
    TileForm(128, 128, 64, 32),
    TileForm(64, 256, 32, 64),
    TileForm(64, 128, 32, 32, two_sets=True),
    TileForm(128, 64, 32, 32, two_sets=True),
    TileForm(64, 64, 16, 32),
    TileForm(32, 256, 32, 32, two_sets=True),
    TileForm(32, 128, 16, 32),
    TileForm(16, 256, 16, 32),
)
"""Compiled tiles of C of the mma.sync kernels. Kind: choice, the compile tests build these sizes without
spills."""
TILE_FORMS = {
    "wgmma": (
        TileForm(128, 256, tensor_limited=True),
        TileForm(256, 128, tensor_limited=True),
        *(TileForm(*sides) for sides in ((128, 192), (128, 128), (64, 256), (64, 128), (128, 64))),
    ),
    "sparse-wgmma": tuple(
        TileForm(*sides) for sides in ((256, 128), (128, 256), (256, 64), (128, 128), (128, 64))
    ),
    "mma": _MMA,
    "sparse-mma": _MMA,
    "none": (
        TileForm(128, 128, 32, 64),
        TileForm(64, 128, 32, 32),
        TileForm(128, 64, 32, 32),
        TileForm(64, 64, 16, 32),
        TileForm(32, 128, 16, 32),
    ),
}
"""Tensor instruction -> compiled tiles of C. Kind: choice, the compile tests build these sizes without
spills."""
TOKEN_FORM = (256, 128)
"""Rows and tokens of the tile of C for which tokens are the first operand of wgmma. Only the kernel with this
tile runs in clusters and in fp8. Kind: CUDA source, `tile_tokens_shape.cuh`."""
RUN = 32
"""Number of neighbouring columns that tiles keep or remove together in fp8. Kind: definition, K of wgmma
m64nNk32."""


def compiled_config(plan: KernelPlan) -> TileConfig:
    """Return the config of a plan. Raise BadInput if no kernel is compiled for its block."""
    config, forms = plan.config, TILE_FORMS.get(plan.tensor, ())
    known_tile = plan.shape[:2] in [form[:2] for form in forms]
    if not (isinstance(config, TileConfig) and known_tile and config.shape == plan.shape):
        known = ", ".join(f"{form.block_m} x {form.block_n}" for form in forms)
        raise BadInput(f"{plan.kernel}: blocks are {known}, the plan has {tuple(plan.shape)} of {config}")
    return config


def wgmma_configs(gpu: GpuSpec, dtype: str, tensor: str) -> Iterator[TileConfig]:
    """Yield the wgmma configs for sm_90: each consumer warpgroup computes half of the tile of C."""
    for form in TILE_FORMS[tensor]:
        if dtype == "fp8" and form[:2] != TOKEN_FORM:
            continue
        shape = BlockShape(form.block_m, form.block_n, STEP_ROW_BYTES // DTYPE_BYTES[dtype])
        part = warpgroup_part(shape, DTYPE_BYTES[dtype], sparse=tensor.startswith("sparse-"))
        resources = _resources(gpu, shape, dtype, tensor)
        if part is None or resources.stages < 2:
            continue
        yield TileConfig(
            tensor_path="wgmma",
            tensor=tensor,
            dtype=dtype,
            shape=shape,
            part_m=part.rows,
            part_n=part.tokens,
            fma_per_instruction=part.fma,
            resources=resources,
            tensor_limited=form.tensor_limited,
        )


class WarpPart(NamedTuple):
    """Part of a tile of C that a warp or warpgroup computes, and FMA of one of its tensor instructions."""

    rows: int
    tokens: int
    fma: int


@lru_cache(maxsize=256)
def warpgroup_part(
    shape: BlockShape, element_bytes: int, *, sparse: bool = False, is_whole: bool = False
) -> WarpPart | None:
    """Return the part of C of one of two consumer warpgroups: half of the rows or half of the tokens,
    whichever reads fewer bytes of shared memory. Return None if no wgmma instruction fits either half.

    If `is_whole` is True, the warpgroup computes the whole tile.
    """
    block_m, block_n, _ = shape
    halves = ((block_m // 2, block_n), (block_m, block_n // 2))
    sides = [(m, n) for m, n in ((shape[:2],) if is_whole else halves) if m % 8 == n % 8 == 0]
    uses = [(m, n, wgmma_use(m, n, element_bytes, sparse=sparse)) for m, n in sides]
    # m64nNk16, m64nNk8 for TF32; the sparse forms do as many kept FMA (PTX ISA, wgmma)
    parts = [
        (use.operand_bytes, WarpPart(m, n, 64 * use.instruction_rows * 32 // element_bytes))
        for m, n, use in uses
        if use is not None
    ]
    return min(parts, key=lambda part: part[0])[1] if parts else None


def _resources(gpu: GpuSpec, shape: BlockShape, dtype: str, tensor: str) -> BlockResources:
    """Return the resources of a block with as many pipeline stages as fit into shared memory, at most
    `MOST_STAGES`.
    """
    element = DTYPE_BYTES[dtype]
    weights = weight_bytes(shape.block_m, shape.block_k, element, sparse=tensor.startswith("sparse-"))
    columns = RUN_BYTES if dtype == "fp8" else COLUMN_BYTES
    stage = weights + shape.block_n * shape.block_k * element + columns
    sparse = tensor.startswith("sparse-")
    staging = SPARSE_STAGING_BYTES if sparse else staging_bytes(shape, OUTPUT_BYTES[dtype])
    other = BARRIER_BYTES + staging
    stages = max(min((gpu.shared_bytes_per_block - other) // stage, MOST_STAGES), 0)
    return BlockResources(THREADS, REGISTERS_AT_ENTRY, other + stages * stage, stages)


def staging_bytes(shape: BlockShape, output_bytes: int) -> int:
    """Return the bytes of the staging buffer through which a block of the tile kernel stores C."""
    half_tile = shape.block_m * shape.block_n * output_bytes // 2
    return next((staging for staging in STAGING_BYTES if staging <= half_tile), half_tile)
