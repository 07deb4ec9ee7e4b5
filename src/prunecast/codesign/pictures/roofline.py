"""Roofline: useful work per byte against attained rate, for the kernels of a layer."""

from collections.abc import Sequence
from typing import Protocol

from matplotlib.axes import Axes

from prunecast.codesign.engines import Outcome
from prunecast.codesign.pictures.axes import SCREEN, Palette, log_axis, tip
from prunecast.hardware import GpuSpec
from prunecast.kernels import DTYPE_BYTES, KernelPlan
from prunecast.plan.tensor_rate import tensor_fma_per_clk
from prunecast.simulator import SimResult


class RooflinePoint(Protocol):
    """What a picture needs to know of a prediction; `Prediction` has it."""

    @property
    def kernel(self) -> str:
        """Name of the kernel."""

    @property
    def seconds(self) -> float:
        """Predicted time."""

    @property
    def plan(self) -> KernelPlan:
        """What was predicted."""

    @property
    def result(self) -> Outcome:
        """What the engine found."""


def draw_roofline(rows: Sequence[RooflinePoint], gpu: GpuSpec, axes: Axes, palette: Palette = SCREEN) -> None:
    """Points of dense and sparse kernels under the ceilings of DRAM, L2 and arithmetic.

    Filled points count bytes of DRAM, empty ones bytes of L2. The L2 has a clock of its own: its ceiling does
    not follow that of the SMs.
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
    for peak in sorted(set(peaks.values())):
        name = ", ".join(name for name in peaks if peaks[name] == peak)
        colour = palette.ink if peak == highest else palette.faint
        axes.axhline(peak, color=colour, lw=1, gid=tip(f"{name}: {peak:.3g} TFLOP/s"))
        axes.annotate(
            name,
            (right, peak),
            (-2, 3),
            textcoords="offset points",
            ha="right",
            va="bottom",
            fontsize="small",
        )
    axes.set(xlabel="useful FLOP per byte", ylabel="TFLOP/s")
    axes.grid(visible=True, alpha=0.5)
    axes.figure.legend(loc="outside lower center", ncols=3)


def _draw_slopes(gpu: GpuSpec, axes: Axes, palette: Palette, *, top: float) -> None:
    """What DRAM and L2 allow, up to the highest arithmetic ceiling."""
    for name, rate, style in (("DRAM", gpu.dram_bytes_per_s, "-"), ("L2", gpu.l2_bytes_per_s, "--")):
        per_byte = rate / 1e12
        xs = [axes.get_ylim()[0] / per_byte, top / per_byte]
        told = tip(f"{name}: {per_byte:.3g} TB/s")
        ys = [x * per_byte for x in xs]
        axes.plot(xs, ys, style, color=palette.ink, lw=1, gid=told, zorder=1, label=name)


def _draw_points(row: RooflinePoint, axes: Axes, palette: Palette) -> list[float]:
    """Draw one kernel; the FLOP per byte of each of its points."""
    rate, colour = _tflops(row), palette.of(row.kernel)
    drawn = []
    for level, moved in _bytes(row).items():
        drawn.append(1e12 * rate * row.seconds / max(moved, 1))
        told = tip(f"{row.kernel}, {level}: {drawn[-1]:.3g} FLOP/byte, {rate:.3g} TFLOP/s")
        dram = level == "DRAM"
        axes.plot(
            drawn[-1:], [rate], "o", mfc=colour if dram else "none", mec=colour,
            label=row.kernel if dram else None, gid=told, ms=6,
        )  # fmt: skip
    return drawn


def _tflops(row: RooflinePoint) -> float:
    """Attained rate; only kept weights count as work."""
    plan = row.plan
    return 2.0 * plan.m * plan.k * plan.n * plan.density / row.seconds / 1e12


def _bytes(row: RooflinePoint) -> dict[str, float]:
    """Bytes moved by level: simulated, or for the closed-form model each operand once from DRAM."""
    if isinstance(row.result, SimResult):
        return {"DRAM": row.result.dram_bytes, "L2": row.result.l2_bytes}
    plan = row.plan
    elements = plan.m * plan.k * plan.density + plan.k * plan.n + plan.m * plan.n
    return {"DRAM": elements * DTYPE_BYTES[plan.dtype]}


def _peaks(rows: Sequence[RooflinePoint], gpu: GpuSpec, clock_hz: float) -> dict[str, float]:
    """TFLOP/s by the kind of instruction that the plans use, at one clock."""
    peaks: dict[str, float] = {}
    for row in rows:
        tensor, dtype = row.plan.tensor, row.plan.dtype
        fma = gpu.fp32_fma_per_clk_per_sm if tensor == "none" else tensor_fma_per_clk(gpu, dtype, tensor)
        name = "CUDA cores" if tensor == "none" else tensor
        peaks[name] = 2.0 * gpu.sm_count * fma * clock_hz / 1e12
    return peaks
