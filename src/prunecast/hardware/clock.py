"""Model of the SM clock under load: seconds = cycles / clock, and the clock falls with activity.

Any tensor-core work lowers the clock of an H200 from 1980 to 1800 MHz within 20 us. With more arithmetic and
memory traffic the power limit lowers it further, even in short bursts. NVML does not report these changes;
the clocks in the specs were measured inside kernels (clock64 divided by globaltimer).
"""

from bisect import bisect_right
from dataclasses import replace
from hashlib import sha256
from math import exp
from typing import Any

import numpy.typing as npt

from prunecast.errors import BadInput, check_choice
from prunecast.hardware.spec import GpuSpec

CLOCKS = {"burst": "clock_burst_hz", "sustained": "clock_sustained_hz"}
"""State of the SM clock -> field of `GpuSpec` with its clocks.

burst: at most about 5 ms of work, then at least 30 ms of rest.
sustained: back to back for about a second, in which the power limit slows the heaviest work. Longer work is
slower still, by up to 15 % (H200, 4096 x 4096 x 4096: 1260 to 1310 MHz after several seconds).
"""
STATES = tuple(CLOCKS)


IDLE_SHARE = 0.15
"""Power of an idle GPU at full clock, divided by its power limit. Kind: guess, 105 of 700 W on an H200."""
LEAST_CLOCK = 0.15
"""Lowest clock to which a power limit slows the SMs, divided by the highest clock. Kind: guess, 300 of 1980
MHz on an H200."""
MOST_POWER = 3.0
"""Highest power limit that a user may set, divided by the limit in the GPU's spec."""


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
    """Return the SM clock in Hz while a kernel is launched repeatedly.

    Parameters
    ----------
    tensor_duty : fraction of all cycles, gaps between launches included, in which the tensor pipes are busy
    l2_bytes_per_clk_per_sm : mean L2 traffic in bytes per SM clock cycle, divided by the number of SMs; a
        multicast read counts once
    dram_bytes_per_clk_per_sm : mean DRAM traffic in the same unit
    state : `burst` or `sustained`
    dtype : operand type; bf16 has shorter mantissas than fp16 and draws less power
    busy_share : mean finish time of the SMs that have work, divided by the latest, see `busy_share`
    period_s : seconds from launch to launch

    activity = tensor_duty * (`clock_bf16_duty` for bf16, else 1)
        + `clock_activity_per_l2_byte_per_clk` * l2_bytes_per_clk_per_sm
        + `clock_activity_per_dram_byte_per_clk` * dram_bytes_per_clk_per_sm

    The clock is interpolated linearly in activity between the points of the spec. Below the first point it is
    constant, and beyond the last one the last slope continues. Without tensor work it is the GPU's highest
    clock.

    If SMs finish at different times, activity is high at first and low at the end of a launch. In a launch
    much shorter than the time constant `clock_follow_s`, the clock depends on the mean activity. In a longer
    one the clock follows the activity; the result is then the time-weighted mean of two clocks: that of the
    higher activity while SMs are busy, and that of no activity (the first of the spec's table) afterwards.

    Raises BadInput if `state` is unknown.
    """
    if state not in CLOCKS:
        check_choice("state", state, STATES)
    clocks: tuple[float, ...] = getattr(gpu, CLOCKS[state])
    if tensor_duty <= 0.0:
        return gpu.max_clock_hz
    activity = activity_of(gpu, tensor_duty, l2_bytes_per_clk_per_sm, dram_bytes_per_clk_per_sm, dtype)
    # 0 for a short launch, whose clock depends on the mean activity; near 1 for one much longer than the time
    # constant
    followed = 1.0 - exp(-period_s / gpu.clock_follow_s)
    busy = 1.0 - (1.0 - busy_share) * followed
    loaded = max(_on_line(activity / busy, gpu.clock_activity, clocks), LEAST_CLOCK * gpu.max_clock_hz)
    return busy * loaded + (1.0 - busy) * clocks[0]


def activity_of(
    gpu: GpuSpec,
    tensor_duty: float,
    l2_bytes_per_clk_per_sm: float,
    dram_bytes_per_clk_per_sm: float,
    dtype: str,
) -> float:
    """Return the activity of a launch, a number without unit: its weighted use of tensor cores, L2 and DRAM.

    The docstring of `sm_clock_hz` contains the formula and explains the parameters.
    """
    return (
        tensor_duty * (gpu.clock_bf16_duty if dtype == "bf16" else 1.0)
        + gpu.clock_activity_per_l2_byte_per_clk * l2_bytes_per_clk_per_sm
        + gpu.clock_activity_per_dram_byte_per_clk * dram_bytes_per_clk_per_sm
    )


def busy_share(sm_finish: npt.NDArray[Any]) -> float:
    """Return the mean finish time of the SMs that have work, divided by the latest; 1 if no SM has work.

    SMs without work are left out, because the mean activity already accounts for them.

    Parameters
    ----------
    sm_finish : (SMs,) time at which each SM finishes, in any unit; 0 for an SM without work
    """
    working = sm_finish[sm_finish > 0.0]
    return float(working.mean() / working.max()) if working.size else 1.0


def at_power_limit(gpu: GpuSpec, watts: float) -> GpuSpec:
    """Return a copy of the spec with another power limit.

    Model: power above idle = activity * f(clock), and the GPU runs at the highest clock that meets the limit.
    If the new limit leaves half as much power above idle, the GPU therefore reaches each clock at half the
    activity. The activities of the clock table are scaled by this ratio, so that f need not be known.

    Parameters
    ----------
    watts : the new power limit in W

    Raises
    ------
    BadInput : the limit does not exceed the idle power, or is more than three times the GPU's own limit
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
    """Return y at x on the polyline through (xs, ys).

    It is constant before the first point, and its last segment continues after the last point.
    """
    if x <= xs[0]:
        return ys[0]
    left = min(bisect_right(xs, x), len(xs) - 1) - 1
    slope = (ys[left + 1] - ys[left]) / (xs[left + 1] - xs[left])
    return ys[left] + slope * (x - xs[left])
