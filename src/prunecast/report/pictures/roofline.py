"""Roofline: useful work per byte against attained rate, for every kernel of a layer."""

from collections.abc import Sequence

import numpy as np

from prunecast.codesign.prediction import Prediction
from prunecast.hardware import GpuSpec
from prunecast.kernels import DTYPE_BYTES
from prunecast.kernels.tensor_rate import tensor_fma_per_clk
from prunecast.report.pictures.canvas import FAINT, INK, colour_of, new_axes, svg_text, tip
from prunecast.simulator import SimResult

__all__ = ["draw_roofline"]


def draw_roofline(rows: Sequence[Prediction], gpu: GpuSpec, *, salt: str) -> str:
    """Points of dense and sparse kernels under the ceilings of DRAM, L2 and arithmetic."""
    axes = new_axes()
    intensities = []
    for row in rows:
        for level, moved in _bytes(row).items():
            operations = 2.0 * row.m * row.k * row.n * row.plan.density
            x, y = operations / max(moved, 1), operations / row.seconds / 1e12
            intensities.append(x)
            face = colour_of(row.kernel) if level == "DRAM" else "none"
            told = tip(f"{row.kernel}, {level}: {x:.3g} FLOP/byte, {y:.3g} TFLOP/s")
            label = row.kernel if level == "DRAM" else None
            axes.plot([x], [y], "o", mfc=face, mec=colour_of(row.kernel), label=label, gid=told, ms=6)
    clock_hz = rows[0].result.clock_hz
    across = np.geomspace(min(intensities) / 3, max(*intensities, 1000.0) * 3, 50)
    peaks = _peaks(rows, gpu, clock_hz)
    highest = max(peaks.values())
    l2_bytes_per_s = gpu.l2_bytes_per_s * clock_hz / gpu.max_clock_hz
    for rate, style in ((gpu.dram_bytes_per_s, "-"), (l2_bytes_per_s, "--")):
        axes.plot(across, np.minimum(across * rate / 1e12, highest), style, color=INK, lw=1)
    for peak in sorted(set(peaks.values())):
        name = ", ".join(name for name in peaks if peaks[name] == peak)
        told = tip(f"{name}: {peak:.3g} TFLOP/s")
        axes.axhline(peak, color=INK if peak == highest else FAINT, lw=1, gid=told)
        axes.annotate(name, (across[-1], peak), ha="right", va="bottom", fontsize=8)
    axes.set(xscale="log", yscale="log", xlabel="useful FLOP per byte", ylabel="TFLOP/s")
    axes.set_ylim(top=3 * highest)
    axes.grid(visible=True)
    axes.figure.legend(loc="outside lower center", ncols=3)
    return svg_text(axes, "Roofline", salt=salt)


def _bytes(row: Prediction) -> dict[str, float]:
    """Bytes moved by level: simulated, or for the closed-form model each operand once from DRAM."""
    if isinstance(row.result, SimResult):
        return {"DRAM": row.result.dram_bytes, "L2": row.result.l2_bytes}
    elements = row.m * row.k * row.plan.density + row.k * row.n + row.m * row.n
    return {"DRAM": elements * DTYPE_BYTES[row.dtype]}


def _peaks(rows: Sequence[Prediction], gpu: GpuSpec, clock_hz: float) -> dict[str, float]:
    """TFLOP/s by the kind of instruction that the plans use, at one clock."""
    peaks: dict[str, float] = {}
    for row in rows:
        tensor = row.plan.tensor
        fma = gpu.fp32_fma_per_clk_per_sm if tensor == "none" else tensor_fma_per_clk(gpu, row.dtype, tensor)
        name = "CUDA cores" if tensor == "none" else tensor
        peaks[name] = 2.0 * gpu.sm_count * fma * clock_hz / 1e12
    return peaks
