"""Time of a launch that multiplies in tiles: the model that fused experts and scaled fp8 products share.

Each CTA computes tiles of C. The launch needs

    t = ((SM time)^p + (L2 time)^p + (DRAM time)^p)^(1/p)

The SM time is the number of waves of tiles, times the k-steps of a tile, times the time of a k-step. A k-step
needs the longer of two times: its tensor instructions, and its shared-memory traffic. Both operands are
written to shared memory once and read once by each group of warps that multiplies with them. L2 delivers both
operands to every CTA. DRAM delivers only data that no other CTA has fetched before. The exponent p describes
the overlap of the three times; p = 1 means no overlap. The SM clock follows from the resulting tensor duty
and memory traffic.
"""

from collections.abc import Mapping
from typing import NamedTuple

from prunecast.hardware.clock import sm_clock_hz
from prunecast.hardware.costs import Costs
from prunecast.hardware.spec import GpuSpec
from prunecast.plan.kernel_plan import DTYPE_BYTES
from prunecast.plan.tensor_rate import tensor_fma_per_clk

WARPGROUP_ROWS = 64
"""Rows of the side of a tile that one warpgroup multiplies. Kind: definition, PTX ISA, wgmma."""
TCGEN05 = (100, 101, 103, 110)
"""Compute capabilities whose tensor instructions read a tile of 128 rows for a whole CTA; 11.0 is the later
name of 10.1. Kind: definition, PTX ISA, tcgen05."""
SECTOR_PAIR_BYTES = 64
"""Contiguous bytes of a row in a k-step at which DRAM is slower, `Rates.narrow_dram_share`. Kind: definition,
half of a line of L2."""


class Tile(NamedTuple):
    """Tile of C that a CTA computes, columns of a k-step, and warps."""

    rows: int
    """Rows of the weights."""
    tokens: int
    k: int
    warps: int
    """Warps that multiply."""
    multicast: int = 1
    """CTAs of a cluster that share one read of the rows."""


class Operands(NamedTuple):
    """Number of times that each operand of a k-step is read from shared memory."""

    rows: float
    tokens: float


class Rates(NamedTuple):
    """Fitted constants of one implementation (form) on a GPU architecture."""

    tensor_share: float
    """Rate of tensor instructions, as a fraction of the GPU's full rate."""
    shared_share: float
    """Rate of shared memory, as a fraction of `GpuSpec.shared_bytes_per_clk_per_sm`."""
    l2_share: float
    """Rate of L2, as a fraction of `GpuSpec.l2_bytes_per_s`."""
    dram_share: float
    """Rate of DRAM, as a fraction of `GpuSpec.dram_peak_bytes_per_s`."""
    narrow_dram_share: float
    """Further factor on the DRAM rate if a k-step has at most `SECTOR_PAIR_BYTES` of a row."""
    overlap: float
    """Exponent p of the module's formula; a larger p means more overlap."""
    start_cycles: float
    """Cycles of a launch in which no tile is multiplied: pipeline fill and the last epilogue."""


class TiledWork(NamedTuple):
    """Tiles, k-steps and bytes of the product (or grouped products) that a launch computes."""

    tiles: float
    """Number of tiles of all products."""
    tile: Tile
    reads: Operands
    """Number of times that each operand is read from shared memory, see `operand_reads`."""
    k: int
    dtype: str
    dram_bytes: float
    """Bytes that DRAM reads and writes."""
    is_persistent: bool
    """True if one CTA on each SM computes its tiles one after another, in whole rounds. Otherwise the next
    free SM gets a tile, so that SMs finish within one tile of each other."""


class TiledTime(NamedTuple):
    """Time of a launch without its launch overhead, and the limiting resource."""

    seconds: float
    bound: str
    """`tensor`, `shared`, `l2` or `dram`, the names that the closed-form model of plans uses, too."""


def tiled_time(work: TiledWork, rates: Rates, gpu: GpuSpec, *, state: str = "burst") -> TiledTime:
    """Return the time of a launch; the module's docstring describes the model.

    Parameters
    ----------
    state : `burst` or `sustained`, which selects the clocks

    Raises
    ------
    BadInput : the GPU has no tensor cores for the format
    """
    tile, element = work.tile, DTYPE_BYTES[work.dtype]
    fma = tensor_fma_per_clk(gpu, work.dtype, "wgmma")  # the GPU's full rate, whatever its instruction
    tensor = tile.rows * tile.tokens * tile.k / (fma * rates.tensor_share)
    # Each operand is written once and then read
    accesses = tile.rows * (1.0 + work.reads.rows) + tile.tokens * (1.0 + work.reads.tokens)
    shared = accesses * tile.k * element / (gpu.shared_bytes_per_clk_per_sm * rates.shared_share)
    waves = work.tiles / gpu.sm_count
    rounds = -(-work.tiles // gpu.sm_count) if work.is_persistent else max(waves, 1.0) + 0.5 * (waves > 1.0)
    cycles = rounds * -(-work.k // tile.k) * max(tensor, shared) + rates.start_cycles
    l2_bytes = work.tiles * (tile.rows / tile.multicast + tile.tokens) * work.k * element
    l2_s = l2_bytes / (rates.l2_share * gpu.l2_bytes_per_s)
    is_narrow = tile.k * element <= SECTOR_PAIR_BYTES
    dram_share = rates.dram_share * (rates.narrow_dram_share if is_narrow else 1.0)
    dram_s = work.dram_bytes / (dram_share * gpu.dram_peak_bytes_per_s)

    def at(clock_hz: float) -> float:
        limits = (cycles / clock_hz, l2_s, dram_s)
        largest = max(limits)
        shares = sum((limit / largest) ** rates.overlap for limit in limits)
        return float(largest * shares ** (1.0 / rates.overlap))

    # Compute the duty at the highest clock under tensor load; it determines the actual clock
    loaded_hz = gpu.clock_burst_hz[0]
    per_sm = at(loaded_hz) * loaded_hz * gpu.sm_count
    clock_hz = sm_clock_hz(
        gpu,
        tensor_duty=min(work.tiles * tile.rows * tile.tokens * work.k / fma / per_sm, 1.0),
        l2_bytes_per_clk_per_sm=l2_bytes / per_sm,
        dram_bytes_per_clk_per_sm=work.dram_bytes / per_sm,
        state=state,
        dtype=work.dtype,
    )
    limits = {
        "tensor" if tensor >= shared else "shared": cycles / clock_hz,
        "l2": l2_s,
        "dram": dram_s,
    }
    return TiledTime(at(clock_hz), max(limits, key=limits.__getitem__))


def operand_reads(tile: Tile, gpu: GpuSpec, *, swaps: bool) -> Operands:
    """Return the number of times that each operand of a k-step is read from shared memory.

    A warpgroup instruction (wgmma) multiplies 64 tokens with all rows of the tile, so that rows are read once
    for every 64 tokens. A tcgen05 instruction reads both operands once for the whole CTA. In other kernels
    each warp multiplies an approximately square part of the tile.

    Parameters
    ----------
    swaps : True if tiles with fewer than 64 tokens also use these instructions, with the weights on the side
        of 64; False if such tiles are multiplied by warps
    """
    if swaps or tile.tokens >= WARPGROUP_ROWS:
        if gpu.compute_capability in TCGEN05:
            return Operands(1.0, 1.0)
        if gpu.has_wgmma:
            return Operands(max(tile.tokens / WARPGROUP_ROWS, 1.0), 1.0)
    along_tokens = 1
    while (2 * along_tokens) ** 2 * tile.rows <= tile.warps * tile.tokens:
        along_tokens *= 2
    return Operands(float(along_tokens), tile.warps / along_tokens)


def rates_of(numbers: Costs | Mapping[str, float], form: str) -> Rates:
    """Return the rates of an implementation from costs whose names begin with `form` and an underscore."""
    return Rates(**{field: numbers[f"{form}_{field}"] for field in Rates._fields})
