"""Launch floor: the overhead per back-to-back launch that the simulated cycles of a kernel do not contain."""

from prunecast.hardware.memory_pass import MemoryPass
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.table import KERNELS
from prunecast.launch.context import LaunchContext, has_copied_rows, launch_costs, zero_row_count
from prunecast.plan.kernel_plan import DTYPE_BYTES, KernelPlan
from prunecast.plan.misaligned import word_bytes

ROW_PADDING = 8
"""Elements of a vector; rows of C are padded to a multiple of it. Kind: definition, 16 bytes of two-byte
elements.
"""


def launch_floor_s(context: LaunchContext) -> float:
    """Return the overhead in seconds of each back-to-back launch that the plan's own cycles do not contain.

    The time of additional kernels is included: rows of C without a tile need a second launch that zeros them,
    and misaligned rows need two copies. These kernels overlap with no other kernel.
    """
    overlaps = context.pdl and context.conditions.launch == "graph"
    floor_s = _overlapped_s(context) if overlaps else context.conditions.launch_s(context.gpu)
    second = int(context.plan.item_count > 0 and context.zero_rows > 0)
    return (1 + second) * floor_s + beside_s(context)


def beside_s(context: LaunchContext) -> float:
    """Return the seconds of the additional kernels that are launched for a plan: copies, fills, reductions.

    These kernels do not use tensor cores. The clock of the plan's own kernel is therefore computed from its
    activity in the remaining time only. Check (H200, 2026-11-21): if the kernel that zeros rows of C needs a
    third of the time, the measured mean clock is 1840 to 1880 MHz, and 1800 MHz are predicted.
    """
    plan, gpu = context.plan, context.gpu
    copies_s = padded_copy_seconds(plan, gpu) if context.copies_rows else 0.0
    return copies_s + (zero_row_seconds(plan, gpu) if context.zero_rows else 0.0) + context.other_launches_s


def _overlapped_s(context: LaunchContext) -> float:
    """Return the part of a PDL launch's overhead, in seconds, that the plan's cycles do not contain.

    The cycles of co-resident blocks contain the block start and, if all of them wait for the preceding
    launch, the latency of the last stores.
    """
    gpu = context.gpu
    hidden = gpu.block_start_cycles if context.co_resident else 0
    if context.pdl_release_s > 0.0:
        hidden += context.store_latency_cycles
        return max(context.pdl_release_s - hidden / gpu.max_clock_hz, 0.0)
    return max(gpu.overlapped_launch_s - hidden / gpu.clock_burst_hz[0], 0.0)


def padded_copy_seconds(plan: KernelPlan, gpu: GpuSpec) -> float:
    """Return the seconds of the two copies that pad misaligned rows, launches included; 0 if none are needed.

    The copies run one after the other, and nothing overlaps with them. Each reads and writes its data once.
    Measured on an H200 (2026-11-21): 3072 x 768 needed 4.6 to 5.2 us more with 1 token than with 16. The
    formula gives 5.4 us for launches and copies, of which 0.3 us are lost overlap with the preceding launch.
    With 4321 tokens, 4096 x 4096 needed 170 us more than with padded rows.
    """
    traits_of = KERNELS[plan.kernel].traits
    aligns_rows = traits_of is not None and traits_of(plan, gpu).aligns_rows
    if not aligns_rows or not has_copied_rows(plan.kernel, plan.n, plan.dtype):
        return 0.0
    element_bytes = DTYPE_BYTES[plan.dtype]
    row_bytes = plan.n * element_bytes
    way_s = (gpu.dram_latency_cycles + gpu.store_latency_cycles) / gpu.max_clock_hz
    width = word_bytes(element_bytes, row_bytes)
    words_per_s = launch_costs(gpu)["copy_words_per_clk"] * gpu.sm_count * gpu.max_clock_hz
    moved_bytes = (plan.k + plan.m) * row_bytes
    return MemoryPass(
        copied_bytes=2 * moved_bytes,
        start_s=2 * (gpu.graph_launch_s + way_s),
        overlapped_s=moved_bytes / width / words_per_s,
        copy_share=1.0,
    ).seconds(gpu)


def zero_row_seconds(plan: KernelPlan, gpu: GpuSpec) -> float:
    """Return the seconds of the launch that zeros rows of C without a tile, excluding launch overhead.

    The result is 0 if every row is in a tile. The launch has one block per row, which reads its row index and
    writes the row. Two times are computed, and the larger one is returned: the time to start all blocks,
    about one per cycle (`block_interval_s`); and the time of the stores. The latter is limited by the DRAM
    bandwidth for the lines that they evict or by the store rate of the SMs, plus the start and store latency
    of one block.
    """
    rows = zero_row_count(plan)
    if rows == 0:
        return 0.0
    row_bytes = -(-plan.n // ROW_PADDING) * ROW_PADDING * DTYPE_BYTES[plan.dtype]
    rows_per_sm = -(-rows // gpu.sm_count)
    from_sm_s = rows_per_sm * row_bytes / gpu.store_bytes_per_clk_per_sm / gpu.max_clock_hz
    stores = MemoryPass(
        one_way_bytes=rows * row_bytes,
        start_s=(gpu.block_start_cycles + gpu.store_latency_cycles) / gpu.max_clock_hz,
        overlapped_s=from_sm_s,
    )
    return max(stores.seconds(gpu), rows * gpu.block_interval_s)
