"""`GpuSpec`: the quantities of one GPU model, with the unit of each in its name."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

SECTOR_BYTES = 32
"""Bytes of an L2 sector, the smallest transfer of a request."""
LINE_BYTES = 4 * SECTOR_BYTES
"""Bytes of an L2 line, which has one tag for four sectors."""


KINDS = ("datasheet", "measured", "fitted", "guess")
"""Kinds of sources of a number; `guess` is a value carried over from a related GPU."""


@dataclass(frozen=True, slots=True)
class QuantitySource:
    """Unit, kind and source of one number of a spec.

    Parameters
    ----------
    unit : unit of the value, equal to the unit of its field
    kind : one of `KINDS`
    source : document, section and date, or the measurement and its date
    """

    unit: str
    kind: str
    source: str


def _quantity(unit: str, *, optional: bool = False, may_be_zero: bool = False) -> Any:
    """Return the dataclass field of a quantity; an `optional` quantity is 0 if a GPU file omits it."""
    return field(metadata={"unit": unit, "optional": optional, "may_be_zero": may_be_zero or optional})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GpuSpec:
    """One GPU model. Every quantity has an entry of the same name in `provenance`.

    Rates "per clk" are per SM clock cycle. "Achieved" rates are those that a good copy kernel reaches.
    """

    name: str
    """Name on the command line, e.g. `h200-sxm`."""
    title: str
    """The vendor's name, e.g. `NVIDIA H200 SXM`."""
    compute_capability: int
    """Ten times the major plus the minor number: 90 for 9.0."""
    provenance: Mapping[str, QuantitySource]
    fingerprint: str
    """First 16 hex digits of the SHA-256 of compute capability and values; equal for equal numbers."""

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
    shared_reserved_bytes_per_block: int = _quantity("byte", may_be_zero=True)
    shared_allocation_bytes: int = _quantity("byte")

    # Arithmetic; FMA counts one multiply and one add, tensor rates are with fp32 accumulation
    tensor_fp16_fma_per_clk_per_sm: int = _quantity("FMA/clk", may_be_zero=True)
    tensor_bf16_fma_per_clk_per_sm: int = _quantity("FMA/clk", may_be_zero=True)
    """0 if the GPU has no bf16 tensor instructions."""
    tensor_tf32_fma_per_clk_per_sm: int = _quantity("FMA/clk", may_be_zero=True)
    """0 if the GPU has no tf32 tensor instructions."""
    tensor_fp8_fma_per_clk_per_sm: int = _quantity("FMA/clk", optional=True)
    """FMAs of e4m3 with fp32 accumulation; 0 if the GPU has no fp8 tensor instructions."""
    tensor_int8_fma_per_clk_per_sm: int = _quantity("FMA/clk", optional=True)
    """0 if the GPU has no int8 tensor instructions."""
    fp32_fma_per_clk_per_sm: int = _quantity("FMA/clk")
    mma_sync_share: float = _quantity("ratio")
    """Fraction of the dense tensor rate that warp-level mma.sync reaches: 0.63 on Hopper, 1 on older GPUs."""
    sparse_tensor_factor: float = _quantity("ratio", may_be_zero=True)
    """Rate of 2:4 sparse tensor instructions, divided by that of dense ones; 0 if the GPU has none."""
    tensor_latency_cycles: int = _quantity("cycle")
    """Cycles from the end of an instruction's time in the tensor pipe until its result can be read."""
    warpgroup_latency_cycles: int = _quantity("cycle")
    """Cycles from the end of a warpgroup instruction in the tensor pipe to the issue of the next one after a
    wait; equal to `tensor_latency_cycles` if the GPU has no warpgroup instructions.
    """

    # Memory, from the SM outward
    shared_bytes_per_clk_per_sm: int = _quantity("byte/clk")
    shared_latency_cycles: int = _quantity("cycle")
    l1_latency_cycles: int = _quantity("cycle")
    l2_port_bytes_per_clk_per_sm: float = _quantity("byte/clk")
    gather_bytes_per_clk_per_sm: float = _quantity("byte/clk")
    """Rate at which the warps of an SM can copy into shared memory with cp.async, 16 bytes per lane."""
    gather_latency_cycles: int = _quantity("cycle")
    """Cycles from the issue of a `cp.async` to the arrival of its data in shared memory. Measured with data
    in L2 and copies on all SMs."""
    store_bytes_per_clk_per_sm: float = _quantity("byte/clk")
    """Rate at which the warps of an SM can issue stores to L2."""
    l2_bytes: int = _quantity("byte")
    l2_usable_bytes: int = _quantity("byte")
    """Bytes of data in use that L2 can keep: data that many SMs read, and written data. L2 evicts the least
    recently used data first.
    """
    l2_bytes_per_s: float = _quantity("byte/s")
    """Achieved read bandwidth of the whole L2 at `max_clock_hz`."""
    l2_store_bytes_per_s: float = _quantity("byte/s")
    """Achieved store bandwidth of the whole L2, all SMs storing."""
    l2_store_read_share: float = _quantity("ratio", optional=True)
    """Fraction of the time of stores in which L2 serves no reads: 0 if L2 serves stores and reads at the same
    time, 1 if it serves only one of them at a time.
    """
    store_latency_cycles: int = _quantity("cycle")
    """Cycles from the arrival of a block's last store in L2 until its SM is notified. Then the block ends and
    frees its block slot.
    """
    l2_latency_cycles: int = _quantity("cycle")
    l2_line_cycles: int = _quantity("cycle", may_be_zero=True)
    """Cycles that a slice of L2 is busy per request for one line while other blocks or clusters request the
    same line.
    """
    l2_same_row_bytes: tuple[float, ...] = _quantity("byte")
    """Row sizes in bytes for which `l2_same_row_cycles` was measured; values in between are interpolated
    linearly.
    """
    l2_same_row_cycles: tuple[float, ...] = _quantity("cycle")
    """Extra cycles until 512 rows arrive, per block that reads the same rows at the same time, for
    each row size of `l2_same_row_bytes`. Reason: L2 serializes requests for one line.
    """
    l2_second_line_share: float = _quantity("ratio", may_be_zero=True)
    """Extra time of a 128-byte chunk of a row that spans two L2 lines, as a fraction of that of an aligned
    chunk in L2 and in the gather port.
    """
    l2_split_sector_read_factor: float = _quantity("ratio")
    """Factor on the L2 and gather-port time of a row of B that begins inside a sector, so that the 16 bytes
    of lanes do not fill whole sectors.
    """
    l2_split_sector_store_factor: float = _quantity("ratio")
    """Factor on the L2 time of a row of C that begins inside a sector, since L2 merges partial sectors."""
    l2_split_sector_fetched_share: float = _quantity("ratio", may_be_zero=True)
    """Bytes that L2 fetches from DRAM to complete partially written sectors, divided by the bytes of a row of
    C that begins inside a sector. L2 fetches at least 64 bytes at a time.
    """
    dram_bytes: int = _quantity("byte")
    dram_peak_bytes_per_s: float = _quantity("byte/s")
    dram_bytes_per_s: float = _quantity("byte/s")
    """Achieved bandwidth of reads only, or of writes only."""
    dram_write_bytes_per_s: float = _quantity("byte/s")
    """Achieved write bandwidth during concurrent reads."""
    dram_copy_bytes_per_s: float = _quantity("byte/s")
    """Achieved bandwidth of a copy, reads and writes both counted."""
    dram_latency_cycles: int = _quantity("cycle")
    """Cycles from the issue of a read that misses L2 to the use of its data."""
    dram_queue_bytes: float = _quantity("byte")
    """Bytes that all SMs may have requested before the first request is answered; DRAM serves requests out of
    order.
    """

    # Links
    link_bytes_per_s: float = _quantity("byte/s", optional=True)
    """Peak rate at which a GPU sends to the others of its node, in one direction; 0 for a system of one GPU.
    """

    # Waiting and starting
    barrier_latency_cycles: int = _quantity("cycle")
    """Cycles from the last arrival at a barrier to the first issue of a warp that waited on it."""
    sync_latency_cycles: int = _quantity("cycle")
    """Cycles from the last arrival at a barrier of all warps of a block or role to the next issue."""
    signal_latency_cycles: int = _quantity("cycle")
    """Cycles from the arrival of a block's stores in L2 until a waiting block on another SM sees the flag."""
    block_start_cycles: int = _quantity("cycle")
    """Cycles from a free slot on an SM to the first instruction of the block that takes it."""
    block_interval_s: float = _quantity("s")
    """Seconds between the starts of consecutive blocks of a launch while thousands of slots are free."""
    stream_launch_s: float = _quantity("s")
    """Time per kernel of back-to-back empty kernels in a stream."""
    graph_launch_s: float = _quantity("s")
    """Time per kernel of back-to-back empty kernels in a CUDA graph."""
    overlapped_launch_s: float = _quantity("s")
    """Time per kernel of a CUDA graph, in addition to the kernel's own time, under programmatic dependent
    launch."""
    slow_sm_cycles: float = _quantity("cycle")
    """Straggler delay: Gumbel scale of the end times of equal blocks, since L2 and DRAM do not serve all SMs
    equally. The last of n blocks ends scale * (log n + 0.2) after the median.
    """

    # The SM clock against activity, see hardware/clock.py
    clock_activity: tuple[float, ...] = _quantity("ratio")
    clock_burst_hz: tuple[float, ...] = _quantity("Hz")
    clock_sustained_hz: tuple[float, ...] = _quantity("Hz")
    clock_activity_per_l2_byte_per_clk: float = _quantity("clk/byte", may_be_zero=True)
    """Activity of L2 traffic of one byte per clk and SM, in units of the tensor duty."""
    clock_activity_per_dram_byte_per_clk: float = _quantity("clk/byte", may_be_zero=True)
    """Activity of DRAM traffic of one byte per clk and SM (all traffic / number of SMs), in units of the
    tensor duty."""
    clock_bf16_duty: float = _quantity("ratio")
    """Activity of bf16 tensor work divided by that of the same work in fp16."""
    clock_in_step_l2: float = _quantity("ratio")
    """Activity of an L2 byte that neighbouring blocks read at the same time, divided by that of other bytes.
    It is at most 1, since L2 serves such reads with one access.
    """
    clock_follow_s: float = _quantity("s")
    """Time constant with which the clock follows activity that changes within a launch."""

    def __deepcopy__(self, memo: dict[int, object]) -> "GpuSpec":
        """Return the object itself: it is immutable, and `MappingProxyType` cannot be copied."""
        return self

    @property
    def dram_s_per_byte(self) -> float:
        """Seconds that DRAM needs to read a byte, from the achieved bandwidth `dram_bytes_per_s`."""
        return 1.0 / self.dram_bytes_per_s

    @property
    def has_wgmma(self) -> bool:
        """True if warpgroup tensor instructions (`wgmma`) exist; only compute capability 9.0 has them."""
        return self.compute_capability == 90

    @property
    def has_async_copy(self) -> bool:
        """True if asynchronous copies (`cp.async`) exist, on compute capability 8.0 and later."""
        return self.compute_capability >= 80


def fingerprint_of(values: Mapping[str, Any]) -> str:
    """Return the first 16 hex digits of the SHA-256 of names and values."""
    text = "\n".join(f"{name} {value!r}" for name, value in values.items())
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def quantity_units() -> dict[str, str]:
    """Return a dict from field name to unit, with every quantity of a spec file."""
    return {f.name: f.metadata["unit"] for f in fields(GpuSpec) if "unit" in f.metadata}


def optional_quantities() -> dict[str, str]:
    """Return a dict from field name to unit, with the rates that are 0 if a spec file omits them."""
    return {f.name: f.metadata["unit"] for f in fields(GpuSpec) if f.metadata.get("optional")}
