"""The SM clock under load: seconds = cycles / clock, and the clock falls with activity.

Any tensor work drops the clock of an H200 from 1980 to 1800 MHz within 20 us, and the more is multiplied and
moved, the further the power limit lowers it, in bursts too. NVML does not show it; the numbers in the
specs were read inside kernels (clock64 over globaltimer).
"""

from bisect import bisect_right
from dataclasses import replace
from hashlib import sha256
from math import exp
from typing import Any

import numpy.typing as npt

from prunecast.errors import BadInput, check_choice
from prunecast.hardware.spec import GpuSpec

STATES = ("burst", "sustained")
"""burst: at most about 5 ms of work, then at least 30 ms of rest.
sustained: back to back for about a second, which the heaviest work slows. What goes on for longer is slowed
further, by up to 15 % (H200, 4096 x 4096 x 4096: 1260 to 1310 MHz after several seconds)."""


IDLE_SHARE = 0.15
"""Power of a GPU that waits at full clock, over its power limit. Kind: guess, 105 of 700 W on an H200."""
LEAST_CLOCK = 0.15
"""Clock that a power limit leaves at least, over the highest. Kind: guess, 300 of 1980 MHz on an H200."""
MOST_POWER = 3.0
"""Highest limit that makes sense, over the GPU's own."""


def sm_clock_hz(
    gpu: GpuSpec,
    *,
    tensor_duty: float,
    l2_bytes_per_clk_per_sm: float,
    dram_bytes_per_clk_per_sm: float = 0.0,
    state: str,
    dtype: str = "fp16",
    busy_share: float = 1.0,
    period_s: float = 0.0,
) -> float:
    """SM clock in Hz while a kernel is launched again and again.

    Parameters
    ----------
    tensor_duty : share of cycles in which the tensor pipes work, 0 to 1, launches included
    l2_bytes_per_clk_per_sm : mean traffic of L2 over the number of SMs, a multicast counted once; moving data
        draws power too
    dram_bytes_per_clk_per_sm : the same for DRAM
    state : `burst` or `sustained`
    dtype : what is multiplied; bf16 has shorter mantissas than fp16 and draws less power
    busy_share : of a launch, the mean over SMs with work of the time until they are done, over the longest
    period_s : of a launch

    Activity is the tensor duty plus the traffic of L2 and DRAM, each times its weight. Between the points of
    the spec the clock is linear in activity, below the first one it is flat, and past the last one it goes on
    with the last slope. Without tensor work the clock is the GPU's highest.

    Where SMs are done at different times, activity is high first and low at the end. The clock of a short
    launch goes with the mean; within a long one it follows, and is the mean of both times' clocks.
    """
    check_choice("state", state, STATES)
    if tensor_duty <= 0.0:
        return gpu.max_clock_hz
    activity = (
        tensor_duty * (gpu.clock_bf16_duty if dtype == "bf16" else 1.0)
        + gpu.clock_activity_per_l2_byte_per_clk * l2_bytes_per_clk_per_sm
        + gpu.clock_activity_per_dram_byte_per_clk * dram_bytes_per_clk_per_sm
    )
    clocks = gpu.clock_burst_hz if state == "burst" else gpu.clock_sustained_hz
    followed = 1.0 - exp(-period_s / gpu.clock_follow_s)
    busy = 1.0 - (1.0 - busy_share) * followed
    loaded = max(_on_line(activity / busy, gpu.clock_activity, clocks), LEAST_CLOCK * gpu.max_clock_hz)
    return busy * loaded + (1.0 - busy) * clocks[0]


def busy_share(sm_finish: npt.NDArray[Any]) -> float:
    """Mean time until an SM is done over the longest, of those that have anything to do; 1 where none has.

    An SM without work is idle all the time, which the mean activity has already.
    """
    working = sm_finish[sm_finish > 0.0]
    return float(working.mean() / working.max()) if working.size else 1.0


def at_power_limit(gpu: GpuSpec, watts: float) -> GpuSpec:
    """The GPU with another power limit: less work brings the clock down where the limit is lower.

    Power above that of an idle GPU is activity times a power of the clock, and the clock is the one at which
    it meets the limit. So a limit that leaves half as much for work has at half the activity the clocks that
    the GPU's own limit has: the points of the clock tables move along the activity, whatever that power is.

    Raises
    ------
    BadInput : a limit that leaves nothing for work, or more than three times the GPU's own
    """
    idle = IDLE_SHARE * gpu.power_limit_w
    if not idle < watts <= MOST_POWER * gpu.power_limit_w:
        least, most = round(idle) + 1, round(MOST_POWER * gpu.power_limit_w)
        raise BadInput(f"power-limit must be {least} to {most} W on {gpu.name}, got {watts:g}")
    factor = (watts - idle) / (gpu.power_limit_w - idle)
    activity = tuple(point * factor for point in gpu.clock_activity)
    if watts == gpu.power_limit_w:
        return gpu
    fingerprint = sha256(f"{gpu.fingerprint} {watts!r}".encode()).hexdigest()[:16]
    return replace(gpu, power_limit_w=watts, clock_activity=activity, fingerprint=fingerprint)


def _on_line(x: float, xs: tuple[float, ...], ys: tuple[float, ...]) -> float:
    """Value at x of the line through (xs, ys): flat before the first point, going on past the last one."""
    if x <= xs[0]:
        return ys[0]
    right = min(bisect_right(xs, x), len(xs) - 1)
    left = right - 1
    slope = (ys[right] - ys[left]) / (xs[right] - xs[left])
    return ys[left] + slope * (x - xs[left])
