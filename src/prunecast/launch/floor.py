"""Launch floor: what lies between back-to-back launches beside their kernels' own cycles."""

from prunecast.kernels.further_launches import zero_row_count
from prunecast.launch.context import LaunchContext
from prunecast.launch.further_launches import padded_copy_seconds, zero_row_seconds
from prunecast.launch.overlap import list_latency_cycles, prologue_is_hidden
from prunecast.launch.stores import store_latency_cycles
from prunecast.plan.kernel_plan import Schedule
from prunecast.plan.program import Op, WarpProgram

LAUNCHES = ("graph", "stream")
"""In a CUDA graph, or one by one in a stream."""


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
    """Less what the plan's cycles have of it: the start of blocks, where it lies under the launch before, and
    what co-resident blocks do before they wait for it, if they find room only when it ends.
    """
    gpu = context.gpu
    hidden = gpu.block_start_cycles if context.co_resident else 0
    dispatched = context.plan.schedule is Schedule.HARDWARE and context.places is None
    if dispatched and not prologue_is_hidden(context):
        hidden += list_latency_cycles(context.plan.blocks, gpu)
    if context.pdl_release_s > 0.0:
        hidden += store_latency_cycles(context)
        return max(context.pdl_release_s - hidden / gpu.max_clock_hz, 0.0)
    if context.co_resident:
        hidden += max((_before_wait_cycles(program) for program in context.programs), default=0)
    return max(gpu.overlapped_launch_s - hidden / gpu.clock_burst_hz[0], 0.0)


def _before_wait_cycles(program: WarpProgram) -> int:
    """What a block that finds room only when the launch before ends does before it waits for that end. The
    program says so by its `start`: those that find room sooner have none.
    """
    code = (*program.start, *program.begin) if program.start else ()
    return sum(i.amount + i.issue for i in code if i.op is Op.ISSUE and not i.per_k16)
