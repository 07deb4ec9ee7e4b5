"""Figures of one kernel: roofline, timeline of one SM, and work per SM.

The roofline shows the attained FLOP/s over useful FLOP per byte. The timeline shows when each warp issues or
stalls, and when the tensor pipes are busy.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from prunecast.axes import Palette, in_thousands, log_axis, tip
from prunecast.codesign.pictures.palette import SCREEN
from prunecast.codesign.timeline.slices import Slices, Track, slices_of
from prunecast.hardware import GpuSpec
from prunecast.kernels import DTYPE_BYTES, KERNELS, KernelPlan
from prunecast.launch import USUAL, Conditions
from prunecast.plan.tensor_rate import tensor_fma_per_clk
from prunecast.simulator import STALLS, SimResult, engine
from prunecast.simulator.simulate import record
from prunecast.workload.engines import Outcome, guess_of

LABEL_HEIGHT = 3.0
"""Ratio of two adjacent ceilings below which their labels would overlap. Kind: choice."""


class RooflinePoint(NamedTuple):
    """A predicted kernel: its name, time in seconds, plan and the result of the engine."""

    kernel: str
    seconds: float
    plan: KernelPlan
    result: Outcome


def draw_roofline(rows: Sequence[RooflinePoint], gpu: GpuSpec, axes: Axes, palette: Palette = SCREEN) -> None:
    """Draw a roofline: points of kernels below the ceilings of DRAM, L2 and arithmetic.

    Filled points show FLOP per byte of DRAM traffic, empty ones per byte of L2 traffic. The L2 ceiling does
    not depend on the SM clock, since L2 has a separate clock.

    Parameters
    ----------
    rows : predictions; the arithmetic ceilings use the SM clock of the first one
    """
    intensities = [x for row in rows for x in _draw_points(row, axes, palette)]
    clock_hz = rows[0].result.clock_hz
    left, right = min(intensities) / 3, max(*intensities, 1000.0) * 3
    peaks = _peaks(rows, gpu, clock_hz)
    highest = max(peaks.values())
    lowest = min(min(_tflops(row) for row in rows) / 3, highest / 30)
    log_axis(axes, "x", left, right)
    log_axis(axes, "y", lowest, 4 * highest)
    _draw_slopes(gpu, axes, palette, top=highest)
    levels = sorted(set(peaks.values()))
    for peak, above in zip(levels, [*levels[1:], math.inf], strict=True):
        name = ", ".join(name for name in peaks if peaks[name] == peak)
        colour = palette.ink if peak == highest else palette.faint
        axes.axhline(peak, color=colour, lw=1, gid=tip(f"{name}: {peak:.3g} TFLOP/s"))
        is_close = above < LABEL_HEIGHT * peak  # its name would cover that of the line above
        axes.annotate(
            name,
            (right, peak),
            (-2, -3 if is_close else 3),
            textcoords="offset points",
            ha="right",
            va="top" if is_close else "bottom",
            fontsize="small",
        )
    axes.set(xlabel="useful FLOP per byte", ylabel="TFLOP/s")
    axes.grid(visible=True, alpha=0.5)
    axes.figure.legend(loc="outside lower center", ncols=3)


def _draw_slopes(gpu: GpuSpec, axes: Axes, palette: Palette, *, top: float) -> None:
    """Draw the ceilings of DRAM and L2, up to the highest arithmetic ceiling (`top`, in TFLOP/s)."""
    for name, rate, style in (("DRAM", gpu.dram_bytes_per_s, "-"), ("L2", gpu.l2_bytes_per_s, "--")):
        per_byte = rate / 1e12
        xs = [axes.get_ylim()[0] / per_byte, top / per_byte]
        tooltip = tip(f"{name}: {per_byte:.3g} TB/s")
        ys = [x * per_byte for x in xs]
        axes.plot(xs, ys, style, color=palette.ink, lw=1, gid=tooltip, zorder=1, label=name)


def _draw_points(row: RooflinePoint, axes: Axes, palette: Palette) -> list[float]:
    """Draw the points of one kernel and return the FLOP per byte of each."""
    rate, colour = _tflops(row), palette.of(row.kernel)
    drawn = []
    for level, moved in _bytes(row).items():
        drawn.append(1e12 * rate * row.seconds / max(moved, 1))
        tooltip = tip(f"{row.kernel}, {level}: {drawn[-1]:.3g} FLOP/byte, {rate:.3g} TFLOP/s")
        dram = level == "DRAM"
        axes.plot(
            drawn[-1:], [rate], "o", mfc=colour if dram else "none", mec=colour,
            label=row.kernel if dram else None, gid=tooltip, ms=6,
        )  # fmt: skip
    return drawn


def _tflops(row: RooflinePoint) -> float:
    """Return the attained rate in TFLOP/s; only kept weights count as work."""
    plan = row.plan
    return 2.0 * plan.m * plan.k * plan.n * plan.density / row.seconds / 1e12


def _bytes(row: RooflinePoint) -> dict[str, float]:
    """Return memory level -> bytes moved.

    The simulator counts the bytes of DRAM and L2. For the closed form, each operand moves once from DRAM.
    """
    if isinstance(row.result, SimResult):
        return {"DRAM": row.result.dram_bytes, "L2": row.result.l2_bytes}
    plan = row.plan
    weights = KERNELS[plan.kernel].read_bytes(plan)
    return {"DRAM": weights + (plan.k + plan.m) * plan.n * DTYPE_BYTES[plan.dtype]}


def _peaks(rows: Sequence[RooflinePoint], gpu: GpuSpec, clock_hz: float) -> dict[str, float]:
    """Return tensor path (or `CUDA cores`) -> peak TFLOP/s at an SM clock, for the paths that plans use."""
    peaks: dict[str, float] = {}
    for row in rows:
        tensor, dtype = row.plan.tensor, row.plan.dtype
        fma = gpu.fp32_fma_per_clk_per_sm if tensor == "none" else tensor_fma_per_clk(gpu, dtype, tensor)
        name = "CUDA cores" if tensor == "none" else tensor
        peaks[name] = 2.0 * gpu.sm_count * fma * clock_hz / 1e12
    return peaks


TENSOR, ISSUING = "tensor", "issuing"
_COLOURS = dict(
    zip(
        (TENSOR, ISSUING, *STALLS[1:]),
        ("#d55e00", "#0072b2", "#dddddd", "#e69f00", "#f0e442", "#8c6d31",
         "#cc79a7", "#009e73", "#000000", "#56b4e9", "#999999", "#6a3d9a"),
        strict=True,
    )
)  # fmt: skip
"""Activity of a warp -> its colour; stalls in the order of `STALLS`."""


def draw_timeline(
    plan: KernelPlan,
    gpu: GpuSpec,
    axes: Axes,
    *,
    sm: int = 0,
    first_waves: int = 1,
    conditions: Conditions = USUAL,
) -> None:
    """Simulate a plan and draw the activity of one SM over time in us: a line per tensor pipe and warp.

    Parameters
    ----------
    sm : index of the SM
    first_waves : number of work items to draw for each block slot of the SM
    conditions : clock, launch mode and contents of L2

    Raises
    ------
    BadInput : the GPU has no such SM, or `first_waves` is less than 1
    PlanDoesNotFit, SimulationStopped : in the same cases as `simulate`
    """
    guess = guess_of(plan, gpu, conditions)
    recording = record(plan, gpu, sms=(sm,), waves=first_waves, conditions=conditions, guess=guess)
    roles = [plan.programs[role].role for role in recording.roles.tolist()]
    us_per_tick = 1e6 / recording.clock_hz / engine.TICKS
    lines: dict[str, int] = {}
    shown: set[str] = set()
    for group in slices_of(recording):
        if group.category not in ("tensor", "stall", "issue") or group.track.kind == "issue":
            continue
        place = lines.setdefault(_label(group.track, roles), len(lines))
        for kind, spans in _spans(group, us_per_tick).items():
            shown.add(kind)
            axes.broken_barh(spans, (place - 0.4, 0.8), color=_COLOURS[kind], linewidth=0)
    axes.set_yticks(range(len(lines)), list(lines), fontsize=7)
    axes.set(xlabel="time, us", ylim=(len(lines) - 0.5, -0.5), title=f"{plan.kernel} on SM {sm}")
    handles = [Patch(color=colour, label=kind) for kind, colour in _COLOURS.items() if kind in shown]
    axes.figure.legend(
        handles=handles, loc="outside lower center", ncols=5, fontsize=7, labelcolor=SCREEN.ink
    )


def _spans(group: Slices, us_per_tick: float) -> dict[str, list[tuple[float, float]]]:
    """Return activity -> (start, length) of its slices in us."""
    spans: dict[str, list[tuple[float, float]]] = defaultdict(list)
    starts = (group.start * us_per_tick).tolist()
    lengths = (np.subtract(group.stop, group.start) * us_per_tick).tolist()
    for name, start, length in zip(group.names, starts, lengths, strict=True):
        kind = name if group.category == "stall" else {"issue": ISSUING}.get(group.category, TENSOR)
        spans[kind].append((start, length))
    return spans


def _label(track: Track, roles: list[str]) -> str:
    if track.kind == "tensor":
        return f"tensor {track.lane}"
    return f"block {track.slot} warp {track.lane} {roles[track.lane]}"


def draw_sm_work(result: SimResult, kernel: str, axes: Axes, palette: Palette = SCREEN) -> None:
    """Draw the work of each SM in cycles as bars, the busiest SM first.

    Work is tensor cycles; for kernels without tensor cores, cycles with at least one resident block.
    """
    tensor = result.sm_tensor_cycles.any()
    work = result.sm_tensor_cycles if tensor else result.sm_busy_cycles
    order = work.argsort(kind="stable")[::-1]
    colour = palette.of(kernel)
    # No gaps: with bars of less than two pixels, gaps would alias into irregular stripes.
    bars = axes.bar(range(work.size), work[order], width=1.0, color=colour, edgecolor=colour, lw=0.8)
    for bar, sm in zip(bars, order, strict=True):
        bar.set_gid(tip(f"SM {sm}: {work[sm]} cycles, {result.sm_items[sm]} items"))
    mean, most = float(work.mean()), float(work.max())
    axes.axhline(mean, color=palette.ink, lw=1, gid=tip(f"mean {mean:.0f} cycles: evenly spread work"))
    axes.axhline(most, color=palette.ink, lw=1, ls="--", gid=tip(f"most {most:.0f} cycles"))
    lost = {name: 1e6 * result.attribution_s[name] for name in ("imbalance", "tail")}
    title = f"lost: imbalance {lost['imbalance']:.2f} us, tail {lost['tail']:.2f} us"
    axes.set(title=title, xlabel="SMs, busiest first", ylim=(0, 1.08 * max(most, 1.0)))
    in_thousands(axes, "tensor cycles" if tensor else "busy cycles")
