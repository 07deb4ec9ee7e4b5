"""What a launch costs before and after its kernel's own cycles."""

import numpy as np
import numpy.typing as npt

from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.launches.padded_copies import padded_copy_seconds
from prunecast.kernels.launches.store_latency import store_latency_cycles
from prunecast.kernels.launches.zero_rows import zero_row_count, zero_row_seconds
from prunecast.plan.kernel_plan import KernelPlan, Schedule
from prunecast.plan.program import Op, WarpProgram

__all__ = [
    "LAUNCHES",
    "WAIT_TO_COPY",
    "before_b_cycles",
    "begins_early",
    "beside_list_cycles",
    "beside_s",
    "blocks_apart_cycles",
    "ends_apart_cycles",
    "groups_of_starts",
    "head_start_cycles",
    "launch_floor_s",
    "launches_overlap",
    "leaves_sms",
    "most_before_b_cycles",
    "until_b_cycles",
]

WAIT_TO_COPY = 34
"""Instructions of the tile kernel between its wait for the launch before and its first copy of B, as compiled
for sm_90a. The time of launches that overlap was fitted to it, and has as many of any kernel."""
LAUNCHES = ("graph", "stream")
"""In a CUDA graph, or one by one in a stream."""
BESIDE_LIST_CYCLES = 210
"""Of the 280 in which a block that the hardware starts reads its item: those beside the way of its list from
DRAM, for which blocks with longer lists wait too. 30 products of 67 to 132 blocks take 70 cycles more so than
in lists (34 to 130; H200, 2026-11-22). Later blocks find their list in L2."""
FREE_SMS = 4
"""That are left at least, where it counts how far apart equal blocks end."""


def launches_overlap(plan: KernelPlan, gpu: GpuSpec) -> bool:
    """Whether the launch begins while the one before it ends: no other one stands between them."""
    return plan.overlaps and zero_row_count(plan) == 0 and padded_copy_seconds(plan, gpu) == 0.0


def begins_early(plan: KernelPlan, gpu: GpuSpec) -> bool:
    """Whether the launch before leaves SMs to all blocks, one of which fills an SM and has one item.

    They start, read their first indices and wait for its end with their first copy. With all of that counted,
    products of at most 66 blocks that were marked fit are 900 to 1,500 cycles too slow
    (`docs/decisions/0007`). A plan that `starts_early` says for itself what it does early.
    """
    one_each = not plan.starts_early and plan.item_count == plan.blocks
    return one_each and 2 * plan.blocks <= gpu.sm_count and launches_overlap(plan, gpu)


def before_b_cycles(plan: KernelPlan, gpu: GpuSpec) -> float:
    """What a block does before it reads B, where a block may do so while the launch before ends; else 0.

    It starts, sets itself up, finds its item and reads its indices.
    """
    if begins_early(plan, gpu) or plan.starts_early or not launches_overlap(plan, gpu):
        return 0.0
    before_b = until_b_cycles(plan, gpu)
    started = plan.blocks if plan.schedule is Schedule.HARDWARE else 0
    return most_before_b_cycles(before_b, plan.blocks, gpu, started=started)


def until_b_cycles(plan: KernelPlan, gpu: GpuSpec) -> float:
    """Of a block that starts, sets itself up, finds its item and reads its indices."""
    setting_up = max((_set_up_cycles(program) for program in plan.programs), default=0)
    return float(gpu.block_start_cycles + setting_up + gpu.dram_latency_cycles)


def most_before_b_cycles(before_b: float, blocks: int, gpu: GpuSpec, *, started: int = 0) -> float:
    """What of `before_b` cycles lies under the launch before, of so many blocks with an SM each.

    started : blocks that the hardware starts. Of more than SMs the one that starts last in the first wave is
        not the one that ends last: this one begins behind a block that had started early
    """
    if leaves_sms(blocks, gpu) or started > gpu.sm_count:
        return before_b
    return min(before_b, gpu.most_before_b_cycles)


def ends_apart_cycles(plan: KernelPlan, gpu: GpuSpec) -> float:
    """How much earlier than the last SM those before it end where all have the same to do, else 0.

    It counts where a launch leaves SMs without a block: then the next one needs none of those that end last.
    """
    return 0.0 if plan.starts_early else blocks_apart_cycles(plan.blocks, before_b_cycles(plan, gpu), gpu)


def blocks_apart_cycles(blocks: int, before_b: float, gpu: GpuSpec) -> float:
    """The same of so many blocks with an SM each, which take `before_b` cycles before they read B.

    Where n blocks leave f SMs, f of the next launch start at once, f more on SMs whose blocks had started so,
    and so on. In launches that repeat each of these groups is late by as much more than the one before, and
    the last one by what is left: so all of them gain `before_b` over the number of groups. Groups are whole:
    80 blocks start in two, not in 1.5, without which they are 4 to 7 % too fast (1280 x 1280 x 1024 and
    3072 x 768 x 512 in other forms than the planner takes; H200, 2026-11-22).
    """
    if not leaves_sms(blocks, gpu):
        return 0.0
    return gpu.ends_apart_cycles + before_b / groups_of_starts(blocks, gpu)


def groups_of_starts(blocks: int, gpu: GpuSpec) -> int:
    """In which blocks of a launch that leaves SMs start, each of as many as it leaves."""
    return -(-blocks // (gpu.sm_count - blocks))


def beside_list_cycles(blocks: int, gpu: GpuSpec) -> int:
    """What reading their items does not cost so many blocks that the hardware starts, if they are the first
    ones of their SMs; in proportion to them, for the rest lies under the launch before anyway.
    """
    return BESIDE_LIST_CYCLES * blocks // gpu.sm_count if blocks <= gpu.sm_count else 0


def leaves_sms(blocks: int, gpu: GpuSpec) -> bool:
    """Whether so many blocks, with an SM each, leave SMs to the first blocks of the next launch."""
    return 0 < blocks <= gpu.sm_count - FREE_SMS


def head_start_cycles(sm_finish: npt.NDArray[np.float64], before_b: float, ends_apart: float = 0.0) -> float:
    """Cycles by which launches that repeat come closer, for their first blocks start early.

    A block takes the next SM that the launch before leaves, and does there what comes before it reads B, but
    waits for the end of that launch with the rest. So nothing is gained where all SMs end together.

    Parameters
    ----------
    sm_finish : (SMs,) cycle in which each SM runs dry, 0 if it has no block
    before_b : cycles of a block before it reads B
    ends_apart : cycles that the last SM ends after those before it, where all have the same to do
    """
    last = float(sm_finish.max(initial=0.0))
    early = np.minimum(last - np.sort(sm_finish) + ends_apart, before_b)
    return last - float(np.max(sm_finish - np.where(sm_finish > 0.0, early, 0.0), initial=0.0))


def _set_up_cycles(program: WarpProgram) -> int:
    """Around its first item, in which it sleeps."""
    code = (*program.start, *program.begin)
    return sum(instruction.amount for instruction in code if instruction.op is Op.ISSUE)


def launch_floor_s(plan: KernelPlan, gpu: GpuSpec, launch: str) -> float:
    """Seconds per launch, back to back, of which the plan's own cycles are not part.

    Rows of C without a tile take a second launch, and rows that are not aligned two copies, with which none
    overlaps; what these do counts here too.

    Parameters
    ----------
    launch : one of `LAUNCHES`; in a stream the host sets the pace, whether launches overlap or not
    """
    if launch == "stream":
        floor_s = gpu.stream_launch_s
    else:
        floor_s = _overlapped_s(plan, gpu) if launches_overlap(plan, gpu) else gpu.graph_launch_s
    second = int(plan.item_count > 0 and zero_row_count(plan) > 0)
    return (1 + second) * floor_s + beside_s(plan, gpu)


def beside_s(plan: KernelPlan, gpu: GpuSpec) -> float:
    """What launches of other kernels do for a plan, in seconds besides their launches.

    None of them multiplies: while they run no tensor core works, and the clock of the plan's own kernel goes
    with what is done in the rest of the time. Seen in products with rows of zeros: 1840 to 1880 MHz on
    average where a third of the time is their launch's and 1800 were predicted (H200, 2026-11-21).
    """
    return padded_copy_seconds(plan, gpu) + zero_row_seconds(plan, gpu) + plan.other_launches_s


def _overlapped_s(plan: KernelPlan, gpu: GpuSpec) -> float:
    """Less what the plan's cycles have of it: the start of blocks, where it lies under the launch before, and
    what blocks of a plan that `starts_early` do before they wait for it, if they find room only when it ends.
    """
    hidden = gpu.block_start_cycles if plan.starts_early else 0
    if plan.schedule is Schedule.HARDWARE and not begins_early(plan, gpu):
        hidden += beside_list_cycles(plan.blocks, gpu)
    if plan.let_go_s > 0.0:
        hidden += store_latency_cycles(plan, gpu)
        return max(plan.let_go_s - hidden / gpu.max_clock_hz, 0.0)
    if plan.starts_early:
        hidden += max((_before_wait_cycles(program) for program in plan.programs), default=0)
    return max(gpu.overlapped_launch_s - hidden / gpu.clock_burst_hz[0], 0.0)


def _before_wait_cycles(program: WarpProgram) -> int:
    """What a block that finds room only when the launch before ends does before it waits for that end. The
    program says so by its `start`: those that find room sooner have none.
    """
    code = (*program.start, *program.begin) if program.start else ()
    return sum(i.amount + i.issue for i in code if i.op is Op.ISSUE and not i.per_k16)
