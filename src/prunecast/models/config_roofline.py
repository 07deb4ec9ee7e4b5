"""Roofline of a kernel config without a plan: the maximum of the times of the busiest SM, of L2 and of DRAM.

This model is coarse on purpose, to rank configs before planning them; `roofline.py` predicts the time of a
plan. It does not model the clock under load, tails of overlapping launches, or waits for other SMs.
"""

from collections.abc import Sequence

from prunecast.hardware import GpuSpec
from prunecast.kernels.kernel import ItemTimes
from prunecast.launch.overlap import spread_cycles

MOST_PARTS = 8
"""Maximum number of split-K slices of a tile that is tried. Kind: choice, of a ranking."""
UNEVEN = 1.1
"""Ratio of the longest to the mean item up to which items are treated as equal and run in waves. Kind:
choice, of a ranking."""
TAIL_SHARE = 0.5
"""Time by which the last SM ends after the mean of all SMs, as a fraction of the longest item, for unequal
blocks that the hardware schedules. Kind: definition, ends spread evenly over the longest item."""


def roofline_seconds(configs: Sequence[ItemTimes], other_bytes: float, gpu: GpuSpec) -> list[float]:
    """Return the predicted seconds of one launch for each config.

    Parameters
    ----------
    configs : estimated cycles and bytes of the work items of each config
    other_bytes : bytes of B and C, which DRAM moves in addition to the weights
    """
    return [_seconds(times, other_bytes, gpu) for times in configs]


def _seconds(times: ItemTimes, other_bytes: float, gpu: GpuSpec) -> float:
    cycles = times.once + (_sm_cycles(times, gpu) if times.alone.size else 0.0)
    dram = (times.weight_bytes + other_bytes) / gpu.dram_bytes_per_s
    l2 = times.read_bytes / gpu.l2_bytes_per_s
    return max(cycles / gpu.clock_burst_hz[0], dram, l2) + gpu.graph_launch_s


def _sm_cycles(times: ItemTimes, gpu: GpuSpec) -> float:
    """Return the SM cycles until the last SM ends; split-K is used if it is faster than unsplit tiles."""
    longest, alone, pipe = float(times.alone.max()), float(times.alone.mean()), float(times.pipe.mean())
    items = times.alone.size * times.ranges
    even = items / gpu.sm_count * max(alone / times.slots, pipe)
    if times.co_resident or longest <= UNEVEN * alone:
        whole = _waves(times, alone, pipe, items, gpu)
    else:
        whole = even if times.once else even + TAIL_SHARE * longest
    whole = max(whole, longest)
    if times.fix_up is None:
        return whole
    owner = min(longest / parts + (parts - 1) * times.fix_up for parts in range(1, MOST_PARTS + 1))
    return min(whole, max(even + 2 * times.fix_up, owner))


def _waves(times: ItemTimes, alone: float, pipe: float, items: int, gpu: GpuSpec) -> float:
    """Return the SM cycles of waves of equal items.

    Resident blocks of an SM hide each other's latency. Blocks of co-resident launches do not: they are so
    short that all of them wait at the same time.

    Parameters
    ----------
    alone : cycles of an item if its block is the only one on the SM
    pipe : cycles for which an item occupies the bottleneck pipe of the SM
    items : number of items
    """

    def together(blocks: int) -> float:
        pipes = blocks * pipe
        return pipes + alone - pipe if times.co_resident else max(alone, pipes)

    full, rest = divmod(items, gpu.sm_count * times.slots)
    last = min(times.slots, rest) if times.co_resident else -(-rest // gpu.sm_count)
    early = spread_cycles(times.prologue, rest, gpu.sm_count - rest)
    return full * together(times.slots) + (together(last) if rest else 0.0) - early
