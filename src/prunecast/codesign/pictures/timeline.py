"""Timeline of one SM on axes: what each warp does at which moment, and when the tensor pipes work."""

from collections import defaultdict

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from prunecast.codesign.pictures.axes import SCREEN, Palette, in_thousands, tip
from prunecast.codesign.timeline.slices import Slices, Track, slices_of
from prunecast.hardware import GpuSpec
from prunecast.kernels import KernelPlan
from prunecast.simulator import STALLS, SimResult, engine
from prunecast.simulator.record import record

TENSOR, ISSUING = "tensor", "issuing"
_COLOURS = dict(
    zip(
        (TENSOR, ISSUING, *STALLS[1:]),
        ("#d55e00", "#0072b2", "#dddddd", "#e69f00", "#f0e442", "#8c6d31",
         "#cc79a7", "#009e73", "#000000", "#56b4e9", "#999999", "#6a3d9a"),
        strict=True,
    )
)  # fmt: skip
"""By what a warp does; stalls in the order of `STALLS`."""


def draw_timeline(
    plan: KernelPlan,
    gpu: GpuSpec,
    axes: Axes,
    *,
    sm: int = 0,
    first_waves: int = 1,
    state: str = "burst",
) -> None:
    """One line for each tensor pipe and each warp of one SM, time in us from left to right.

    Parameters
    ----------
    sm : number of the SM
    first_waves : the first so many items of each block slot

    Raises
    ------
    BadInput : an SM that the GPU lacks, or no wave
    PlanDoesNotFit, SimulationStopped : as `simulate`
    """
    recording = record(plan, gpu, sms=(sm,), waves=first_waves, state=state)
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
    """Start and length of the slices, by what is done."""
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
    """Cycles of useful work per SM, most first."""
    tensor = result.sm_tensor_cycles.any()
    work = result.sm_tensor_cycles if tensor else result.sm_busy_cycles
    order = work.argsort(kind="stable")[::-1]
    colour = palette.of(kernel)
    # No gaps: at less than two pixels a bar they would be stripes that come and go.
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
