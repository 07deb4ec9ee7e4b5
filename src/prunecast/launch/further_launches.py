"""Time of the launches that an operator adds to its kernel's: padded copies, and rows of C without a tile."""

from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.further_launches import has_copied_rows, zero_row_count
from prunecast.plan.kernel_plan import DTYPE_BYTES, KernelPlan
from prunecast.plan.padded_rows import word_bytes

WORDS_PER_CLK = 0.8
"""Words per cycle and SM of a copy between rows that lie apart, whatever the word size: a thread has one
word, with a division for its position. 0.15 to 17.7 million words of 2, 4 and 8 bytes take 4.75 us per
million beside 1.3 (H200, 2026-11-22, own measurement)."""
ROW_PADDING = 8
"""Elements of a vector, of which rows of C have a whole number. Kind: definition, 16 bytes of two-byte
elements."""


def padded_copy_seconds(plan: KernelPlan, gpu: GpuSpec) -> float:
    """What the two copies take, launches included; 0 where rows are aligned or the kernel takes any.

    A copy reads and writes memory once, one after the other, with nothing to overlap. On an H200 products of
    1 token took 4.6 to 5.2 us more than those of 16 (3072 x 768, own measurement, 2026-11-21); launches and
    copies come to 5.4, of which 0.3 are what blocks that few have done before the launch before ends. With
    4321 tokens 4096 x 4096 took 170 us more than with padded rows.
    """
    if not plan.pdl or not has_copied_rows(plan.kernel, plan.n, plan.dtype):
        return 0.0
    element_bytes = DTYPE_BYTES[plan.dtype]
    row_bytes = plan.n * element_bytes
    way_s = (gpu.dram_latency_cycles + gpu.store_latency_cycles) / gpu.max_clock_hz
    width = word_bytes(element_bytes, row_bytes)
    words_per_s = WORDS_PER_CLK * gpu.sm_count * gpu.max_clock_hz
    row_s = max(row_bytes / width / words_per_s, 2 * row_bytes / gpu.dram_copy_bytes_per_s)
    return 2 * (gpu.graph_launch_s + way_s) + (plan.k + plan.m) * row_s


def zero_row_seconds(plan: KernelPlan, gpu: GpuSpec) -> float:
    """What the second launch takes besides its launch; 0 where every row lies in a tile.

    One block a row reads which row it is and writes it. Blocks start one after the other, one in about a
    cycle (`block_interval_s`). Or the stores take longer: as fast as DRAM takes what leaves L2 for them, or
    as SMs hand them over, and a block's start and way out.
    """
    rows = zero_row_count(plan)
    if rows == 0:
        return 0.0
    row_bytes = -(-plan.n // ROW_PADDING) * ROW_PADDING * DTYPE_BYTES[plan.dtype]
    rows_per_sm = -(-rows // gpu.sm_count)
    from_sm_s = rows_per_sm * row_bytes / gpu.store_bytes_per_clk_per_sm / gpu.max_clock_hz
    edges_s = (gpu.block_start_cycles + gpu.store_latency_cycles) / gpu.max_clock_hz
    stored_s = edges_s + max(from_sm_s, rows * row_bytes / gpu.dram_bytes_per_s)
    return max(stored_s, rows * gpu.block_interval_s)
