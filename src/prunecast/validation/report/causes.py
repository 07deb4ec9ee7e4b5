"""Why a prediction is off: what of its error lies in the clock, and which part of the cycles is suspect."""

import math

from prunecast.validation.judged import Judged

__all__ = ["cause_of"]

LAUNCH_SHARE = 0.3


def cause_of(row: Judged, engine: str) -> str:
    """One line: clock or cycles, and what bounds the kernel."""
    predicted, measured = row.predicted[engine], row.measured
    if not measured.seconds:
        return "not measured"
    total = math.log(predicted.seconds / measured.seconds)
    clock = math.log(measured.clock_mhz / predicted.clock_mhz) if measured.clock_mhz else 0.0
    cycles = total - clock
    reading = f"clock {predicted.clock_mhz:.0f} for {measured.clock_mhz or 0:.0f} MHz"
    if abs(clock) > 0.5 * abs(total) and clock * total > 0:
        return f"clock: {reading}"
    parts = [f"cycles {100 * math.expm1(cycles):+.0f} %, bound by {predicted.bound}"]
    if row.imbalance > 1.3:
        parts.append(f"imbalance {row.imbalance:.1f}")
    if row.case.n < 64:
        parts.append("few tokens")
    if measured.seconds < 5e-6:
        parts.append("launch and start weigh")
    if measured.spread and measured.spread > 0.5 * abs(math.expm1(total)):
        parts.append(f"samples spread by {100 * measured.spread:.0f} %")
    return ", ".join(parts)
