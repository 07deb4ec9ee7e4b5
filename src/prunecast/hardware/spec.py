"""`GpuSpec`: the numbers of one GPU model, with the unit of each in its name."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

__all__ = ["KINDS", "GpuSpec", "Provenance", "quantity_units"]

KINDS = ("datasheet", "measured", "fitted", "guess")
"""Where a number comes from; `guess` is a value carried over from a related GPU."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where one number of a spec comes from.

    Parameters
    ----------
    unit : the unit the value is given in, equal to the unit of the field it fills
    kind : one of `KINDS`
    source : document, section and date, or the measurement and its date
    """

    unit: str
    kind: str
    source: str


def _quantity(unit: str) -> Any:
    return field(metadata={"unit": unit})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GpuSpec:
    """One GPU model. Every quantity has a row of the same name in `provenance`.

    Rates "per clk" are per SM clock cycle; "achieved" rates are what a good copy kernel reaches.
    """

    name: str
    """Name on the command line, e.g. `h200-sxm`."""
    title: str
    """The vendor's name, e.g. `NVIDIA H200 SXM`."""
    compute_capability: int
    """Ten times the major plus the minor number: 90 for 9.0."""
    provenance: Mapping[str, Provenance]
    fingerprint: str
    """First 16 hex digits of the SHA-256 of compute capability and values: equal numbers, equal text."""

    # Chip
    sm_count: int = _quantity("count")
    sub_partitions_per_sm: int = _quantity("count")
    max_clock_hz: float = _quantity("Hz")
    power_limit_w: float = _quantity("W")

    # What one SM holds
    warps_per_sm: int = _quantity("count")
    blocks_per_sm: int = _quantity("count")
    threads_per_block: int = _quantity("count")
    registers_per_sm: int = _quantity("count")
    registers_per_thread: int = _quantity("count")
    register_allocation_per_warp: int = _quantity("count")
    shared_bytes_per_sm: int = _quantity("byte")
    shared_bytes_per_block: int = _quantity("byte")
    shared_reserved_bytes_per_block: int = _quantity("byte")
    shared_allocation_bytes: int = _quantity("byte")

    # Arithmetic; FMA counts one multiply and one add, tensor rates are with fp32 accumulation
    tensor_fp16_fma_per_clk_per_sm: int = _quantity("FMA/clk")
    tensor_bf16_fma_per_clk_per_sm: int = _quantity("FMA/clk")
    """0 where there are no bf16 tensor instructions."""
    tensor_tf32_fma_per_clk_per_sm: int = _quantity("FMA/clk")
    """0 where there are no tf32 tensor instructions."""
    fp32_fma_per_clk_per_sm: int = _quantity("FMA/clk")
    mma_sync_share: float = _quantity("ratio")
    """Share of the tensor rate that warp-level mma.sync reaches (0.63 on Hopper, 1 before)."""
    sparse_tensor_factor: float = _quantity("ratio")
    """Rate of 2:4 sparse tensor instructions over dense ones; 0 where there are none."""
    tensor_latency_cycles: int = _quantity("cycle")
    """From the end of an instruction's time in the tensor pipe to its result being readable."""
    warpgroup_latency_cycles: int = _quantity("cycle")
    """The same for warpgroup instructions, the wait for them and the issue of the next included; equal to the
    other where there are none."""

    # Memory, from the SM outward
    shared_bytes_per_clk_per_sm: int = _quantity("byte/clk")
    shared_latency_cycles: int = _quantity("cycle")
    l1_latency_cycles: int = _quantity("cycle")
    l2_port_bytes_per_clk_per_sm: float = _quantity("byte/clk")
    gather_bytes_per_clk_per_sm: float = _quantity("byte/clk")
    """Rate at which the warps of an SM can copy into shared memory by cp.async, 16 bytes a lane."""
    gather_latency_cycles: int = _quantity("cycle")
    """From such a copy's turn to its end, L2 having the data, while all SMs copy."""
    store_bytes_per_clk_per_sm: float = _quantity("byte/clk")
    """Rate at which the warps of an SM can hand stores to L2."""
    l2_bytes: int = _quantity("byte")
    l2_usable_bytes: int = _quantity("byte")
    """What L2 keeps of bytes that many SMs read and of bytes written; the longest unused leave first."""
    l2_bytes_per_s: float = _quantity("byte/s")
    """Achieved read bandwidth of the whole L2 at `max_clock_hz`."""
    l2_store_bytes_per_s: float = _quantity("byte/s")
    """The same for stores of all SMs."""
    store_latency_cycles: int = _quantity("cycle")
    """From L2 having taken a block's last store to its SM knowing: a block keeps its place until then."""
    l2_latency_cycles: int = _quantity("cycle")
    l2_line_cycles: int = _quantity("cycle")
    """Of the slice of L2 that has a line, for each block or cluster that asks for it while others do."""
    l2_same_row_bytes: tuple[float, ...] = _quantity("byte")
    """Of rows that many blocks read in step; between these `l2_same_row_cycles` is taken as straight."""
    l2_same_row_cycles: tuple[float, ...] = _quantity("cycle")
    """That L2 takes for 512 rows of such a size for each of these blocks: at any moment they ask for few
    lines, which L2 hands out to one after the other."""
    l2_second_line_share: float = _quantity("ratio")
    """Of a line's time in L2, and of a piece's in the gather port of its SM, that a piece of 128 bytes takes
    longer which lies in two lines."""
    l2_split_sector_read_factor: float = _quantity("ratio")
    """On both, of a row of B that begins within a sector: no lane's 16 bytes have one to themselves."""
    l2_split_sector_store_factor: float = _quantity("ratio")
    """On a line's time in L2, of a row of C that begins within a sector: parts of sectors are merged."""
    l2_split_sector_fetched_share: float = _quantity("ratio")
    """Of the bytes of such a row of C, what L2 fetches from DRAM: the sectors that it has in parts, with the
    64 bytes that DRAM gives at least."""
    dram_bytes: int = _quantity("byte")
    dram_peak_bytes_per_s: float = _quantity("byte/s")
    dram_bytes_per_s: float = _quantity("byte/s")
    """Achieved bandwidth of reads, or of writes alone."""
    dram_write_bytes_per_s: float = _quantity("byte/s")
    """Achieved while reads go on."""
    dram_copy_bytes_per_s: float = _quantity("byte/s")
    """Achieved by a copy, reads and writes counted."""
    dram_latency_cycles: int = _quantity("cycle")
    """Of a read that misses L2, from issue to use."""
    dram_queue_bytes: float = _quantity("byte")
    """That all SMs may have asked for before what was asked for first is there: DRAM serves in no order."""

    # Waiting and starting
    barrier_latency_cycles: int = _quantity("cycle")
    """From the last arrival at a barrier to the first issue of a warp that slept on it."""
    sync_latency_cycles: int = _quantity("cycle")
    """The same for the barrier of all warps of a block or role."""
    signal_latency_cycles: int = _quantity("cycle")
    """From a block's stores being in L2 to a waiting block on another SM seeing the flag behind them."""
    block_start_cycles: int = _quantity("cycle")
    """From a free slot on an SM to the first instruction of the block that takes it."""
    block_interval_s: float = _quantity("s")
    """From the start of a block to that of the next one of the launch, where thousands have room."""
    stream_launch_s: float = _quantity("s")
    """Time per kernel of back-to-back empty kernels in a stream."""
    graph_launch_s: float = _quantity("s")
    """The same inside a CUDA graph."""
    overlapped_launch_s: float = _quantity("s")
    """What a launch adds in a CUDA graph that may begin while the one before it ends."""
    most_before_b_cycles: float = _quantity("cycle")
    """Of what blocks of such a launch do before they read B, that lie under the launch before where all SMs
    have blocks: what begins last there reads its list and columns behind the gathers of the others."""
    ends_apart_cycles: int = _quantity("cycle")
    """By which the last of equal blocks ends after the last that the next launch waits for, where the launch
    leaves some SMs without a block."""
    slow_sm_cycles: float = _quantity("cycle")
    """Scale of how late equal blocks end (Gumbel), for L2 and DRAM do not serve all SMs alike: the last of n
    ends so much x (log n + 0.2) after the middle one."""
    late_block_cycles: float = _quantity("cycle")
    """The same of blocks of few tokens, at most: those that are behind meet less traffic."""
    late_block_share: float = _quantity("ratio")
    """The same over what a block of few tokens takes, where that is less: each of its waits varies."""
    first_rows_s: float = _quantity("s")
    """Of `overlapped_launch_s`, the wait for first rows of B, late where many SMs ask DRAM for them at once:
    the simulator waits for them itself, while the closed form has them in what a launch adds."""
    let_go_s: float = _quantity("s")
    """From the last instruction of a launch to the first one behind the wait of the next, whose blocks are
    there by then."""

    # The SM clock against activity, see hardware/clock.py
    clock_activity: tuple[float, ...] = _quantity("ratio")
    clock_burst_hz: tuple[float, ...] = _quantity("Hz")
    clock_sustained_hz: tuple[float, ...] = _quantity("Hz")
    clock_activity_per_l2_byte_per_clk: float = _quantity("clk/byte")
    """Activity that moving one byte per clk and SM from L2 adds to the tensor duty."""
    clock_activity_per_dram_byte_per_clk: float = _quantity("clk/byte")
    """The same for DRAM, bytes per clk shared evenly by the SMs."""
    clock_bf16_duty: float = _quantity("ratio")
    """Activity of tensor work on bf16 over that of as much on fp16."""
    clock_sparse_duty: float = _quantity("ratio")
    """Activity of a cycle of the sparse tensor cores over that of one of the dense ones."""
    clock_zero_rows_duty: float = _quantity("ratio")
    """Activity of rows of A that are zeros, which a block multiplies where its tile has fewer rows than its
    form, over that of other rows: B still moves through the tensor cores, and all sums stay zero."""
    clock_in_step_l2: float = _quantity("ratio")
    """Activity of a byte of L2 that neighbouring blocks read at the same time over that of other bytes: L2
    serves together what they ask for together."""
    clock_follow_s: float = _quantity("s")
    """Time constant with which the clock follows activity that changes within a launch."""

    def __deepcopy__(self, memo: dict[int, object]) -> "GpuSpec":
        """Itself: nothing of it changes, and views of dicts cannot be copied."""
        return self

    @property
    def has_wgmma(self) -> bool:
        """Whether warpgroup tensor instructions and bulk copies exist (compute capability 9.0 only)."""
        return self.compute_capability == 90

    @property
    def has_async_copy(self) -> bool:
        """Whether cp.async exists (compute capability 8.0 and later)."""
        return self.compute_capability >= 80


def quantity_units() -> dict[str, str]:
    """Field name -> unit, for every quantity that a spec file must give."""
    return {f.name: f.metadata["unit"] for f in fields(GpuSpec) if "unit" in f.metadata}
