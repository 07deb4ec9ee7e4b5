"""Launch floor: what lies between back-to-back launches beside their kernels' own cycles."""

from prunecast.hardware.memory_pass import MemoryPass
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.table import has_copied_rows, zero_row_count
from prunecast.launch.context import LaunchContext, launch_costs
from prunecast.launch.overlap import store_latency_cycles
from prunecast.plan.kernel_plan import DTYPE_BYTES, KernelPlan
from prunecast.plan.misaligned import word_bytes

ROW_PADDING = 8
"""Elements of a vector, of which rows of C have a whole number. Kind: definition, 16 bytes of two-byte
elements."""
LAUNCHES = ("graph", "stream")
"""Ways to launch: in a CUDA graph, or one by one in a stream."""


def launch_floor_s(context: LaunchContext, launch: str) -> float:
    """Seconds per launch, back to back, of which the plan's own cycles are not part.

    Rows of C without a tile take a second launch, and rows that are not aligned two copies, with which none
    overlaps; what these do counts here too.

    Parameters
    ----------
    launch : one of `LAUNCHES`; in a stream the host sets the pace, whether launches overlap or not
    """
    if launch == "stream":
        floor_s = context.gpu.stream_launch_s
    else:
        floor_s = _overlapped_s(context) if context.pdl else context.gpu.graph_launch_s
    second = int(context.plan.item_count > 0 and zero_row_count(context.plan) > 0)
    return (1 + second) * floor_s + beside_s(context)


def beside_s(context: LaunchContext) -> float:
    """What launches of other kernels do for a plan, in seconds besides their launches.

    None of them multiplies: while they run no tensor core works, and the clock of the plan's own kernel goes
    with what is done in the rest of the time. Seen in products with rows of zeros: 1840 to 1880 MHz on
    average where a third of the time is their launch's and 1800 were predicted (H200, 2026-11-21).
    """
    plan, gpu = context.plan, context.gpu
    return padded_copy_seconds(plan, gpu) + zero_row_seconds(plan, gpu) + context.other_launches_s


def _overlapped_s(context: LaunchContext) -> float:
    """What the plan's cycles do not have of a launch under PDL. Those of co-resident blocks have the start,
    and the way of stores where all of them wait for the preceding launch.
    """
    gpu = context.gpu
    hidden = gpu.block_start_cycles if context.co_resident else 0
    if context.pdl_release_s > 0.0:
        hidden += store_latency_cycles(context)
        return max(context.pdl_release_s - hidden / gpu.max_clock_hz, 0.0)
    return max(gpu.overlapped_launch_s - hidden / gpu.clock_burst_hz[0], 0.0)


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
    words_per_s = launch_costs(gpu)["copy_words_per_clk"] * gpu.sm_count * gpu.max_clock_hz
    moved_bytes = (plan.k + plan.m) * row_bytes
    return MemoryPass(
        copied_bytes=2 * moved_bytes,
        start_s=2 * (gpu.graph_launch_s + way_s),
        overlapped_s=moved_bytes / width / words_per_s,
        copy_share=1.0,
    ).seconds(gpu)


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
    stores = MemoryPass(
        one_way_bytes=rows * row_bytes,
        start_s=(gpu.block_start_cycles + gpu.store_latency_cycles) / gpu.max_clock_hz,
        overlapped_s=from_sm_s,
    )
    return max(stores.seconds(gpu), rows * gpu.block_interval_s)
