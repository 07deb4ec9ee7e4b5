"""The roofline of a config before it is planned: busiest SM, L2 and DRAM.

It is coarse on purpose: `roofline.py` says how long a plan takes. Left out are clocks under load, tails of
overlapping launches, and waits for other SMs.
"""

from collections.abc import Sequence

from prunecast.hardware import GpuSpec
from prunecast.kernels.kernel import ItemTimes
from prunecast.launch.overlap import spread_cycles

MOST_PARTS = 8
"""Split-K slices of a tile that are tried."""
UNEVEN = 1.1
"""Longest item over the mean one from which waves of equal items say nothing."""
TAIL_SHARE = 0.5
"""Share of the longest item by which uneven blocks end late where the hardware places them."""


def roofline_seconds(configs: Sequence[ItemTimes], other_bytes: float, gpu: GpuSpec) -> list[float]:
    """Return the seconds of a launch in each config.

    Parameters
    ----------
    configs : times of the items of each config
    other_bytes : bytes of B and C
    """
    return [_seconds(times, other_bytes, gpu) for times in configs]


def _seconds(times: ItemTimes, other_bytes: float, gpu: GpuSpec) -> float:
    cycles = times.once + (_sm_cycles(times, gpu) if times.alone.size else 0.0)
    dram = (times.weight_bytes + other_bytes) / gpu.dram_bytes_per_s
    l2 = times.read_bytes / gpu.l2_bytes_per_s
    return max(cycles / gpu.clock_burst_hz[0], dram, l2) + gpu.graph_launch_s


def _sm_cycles(times: ItemTimes, gpu: GpuSpec) -> float:
    """Until the last SM is done: with whole items in waves, or with heavy tiles split along K."""
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
    """Waves of equal items, of which each takes `alone` and `pipe` cycles.

    Blocks of an SM hide each other's waits, unless they are so short that all wait at once.
    """

    def together(blocks: int) -> float:
        pipes = blocks * pipe
        return pipes + alone - pipe if times.co_resident else max(alone, pipes)

    full, rest = divmod(items, gpu.sm_count * times.slots)
    last = min(times.slots, rest) if times.co_resident else -(-rest // gpu.sm_count)
    early = spread_cycles(times.prologue, rest, gpu.sm_count - rest)
    return full * together(times.slots) + (together(last) if rest else 0.0) - early
