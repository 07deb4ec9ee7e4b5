"""Work of each SM as bars, the mean marked: what stands out above it is imbalance and tail."""

from matplotlib.axes import Axes

from prunecast.codesign.pictures.axes import in_thousands
from prunecast.codesign.pictures.palette import SCREEN, Palette, tip
from prunecast.simulator import SimResult

__all__ = ["draw_sm_work"]


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
