"""Seconds of a config by its busiest SM, L2 and DRAM: for ranking configs before they are planned.

Coarse on purpose: `prunecast.models` says how long a plan takes. Left out are clocks under load, tails of
overlapping launches, and waits for other SMs.
"""

from prunecast.hardware import GpuSpec
from prunecast.kernels.item_times import ItemTimes

__all__ = ["roofline_seconds"]

MOST_PARTS = 8
"""Split-K slices of a tile that are tried."""
UNEVEN = 1.1
"""Longest item over the mean one from which waves of equal items say nothing."""
TAIL_SHARE = 0.5
"""Share of the longest item by which uneven blocks end late where the hardware places them."""


def roofline_seconds(times: ItemTimes, other_bytes: float, gpu: GpuSpec) -> float:
    """Seconds of a launch.

    Parameters
    ----------
    other_bytes : of B and C
    """
    cycles = times.once + (_sm_cycles(times, gpu) if times.alone.size else 0.0)
    dram = (times.weight_bytes + other_bytes) / gpu.dram_bytes_per_s
    l2 = times.read_bytes / gpu.l2_bytes_per_s
    return max(cycles / gpu.clock_burst_hz[0], dram, l2) + gpu.graph_launch_s


def _sm_cycles(times: ItemTimes, gpu: GpuSpec) -> float:
    """Until the last SM is done: with whole items in waves, or with heavy tiles split along K."""
    longest, alone = float(times.alone.max(initial=0.0)), float(times.alone.mean())
    items = times.alone.size * times.ranges
    even = items / gpu.sm_count * max(alone / times.slots, float(times.pipe.mean()))
    if times.co_resident or longest <= UNEVEN * alone:
        whole = _waves(times, items, gpu)
    else:
        whole = even if times.once else even + TAIL_SHARE * longest
    whole = max(whole, longest)
    if times.fix_up is None:
        return whole
    owner = min(longest / parts + (parts - 1) * times.fix_up for parts in range(1, MOST_PARTS + 1))
    return min(whole, max(even + 2 * times.fix_up, owner))


def _waves(times: ItemTimes, items: int, gpu: GpuSpec) -> float:
    """Waves of equal items."""
    full, rest = divmod(items, gpu.sm_count * times.slots)
    last = min(times.slots, rest) if times.co_resident else -(-rest // gpu.sm_count)
    return full * _together(times, times.slots) + (_together(times, last) if rest else 0.0)


def _together(times: ItemTimes, blocks: int) -> float:
    """Blocks of an SM hide each other's waits, unless they are so short that all wait at once."""
    alone, pipes = float(times.alone.mean()), blocks * float(times.pipe.mean())
    return pipes + alone - float(times.pipe.mean()) if times.co_resident else max(alone, pipes)
