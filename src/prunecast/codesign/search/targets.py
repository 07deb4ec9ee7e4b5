"""`Targets`: what the pruned model must meet, read from what people write."""

import re
from dataclasses import dataclass
from typing import NamedTuple

from prunecast.errors import BadInput
from prunecast.patterns.pattern import check_sparsity


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """Constraints that all hold together.

    Parameters
    ----------
    latency_share : most time, as a share of the dense model's
    latency_s : most time in seconds
    speedup : least dense time over pruned time
    sparsity : least share of weights removed, over all layers

    Raises
    ------
    BadInput : a number out of range, or no target at all
    """

    latency_share: float | None = None
    latency_s: float | None = None
    speedup: float | None = None
    sparsity: float | None = None

    def __post_init__(self) -> None:
        if self.latency_share is not None and not self.latency_share > 0.0:
            raise BadInput(f"latency must be above 0 %, got {self.latency_share:.0%}")
        if self.latency_s is not None and not self.latency_s > 0.0:
            raise BadInput(f"latency must be above 0, got {self.latency_s * 1e6:g} us")
        if self.speedup is not None and not self.speedup > 0.0:
            raise BadInput(f"speedup must be above 0, got {self.speedup:g}")
        if self.sparsity is not None:
            check_sparsity(self.sparsity)
        wanted = (self.latency_share, self.latency_s, self.speedup, self.sparsity)
        if all(target is None for target in wanted):
            raise BadInput(
                "wanted a latency (like 60% or 850us), a speedup or a sparsity to prune to, got none of them"
            )

    def most_seconds(self, dense_s: float) -> float:
        """The tightest of the times, given the dense model's."""
        shares = (self.latency_share, None if self.speedup is None else 1.0 / self.speedup)
        limits = [share * dense_s for share in shares if share is not None]
        return min([*limits, float("inf") if self.latency_s is None else self.latency_s])

    def most_kept(self, weights: int) -> float:
        """Weights that may stay, of so many."""
        return float("inf") if self.sparsity is None else (1.0 - self.sparsity) * weights


class Latency(NamedTuple):
    """A time as people ask for it: one of the two is None."""

    share: float | None
    """Latency budget as a share of the dense model's time."""
    seconds: float | None


def parse_latency(text: str) -> Latency:
    """A time from `60%` of the dense one, `850us` or `1.2ms`.

    Raises
    ------
    BadInput : anything else
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(%|us|ms|s)\s*", text)
    if match is None or float(match[1]) == 0.0:
        raise BadInput(f"latency must be like 60%, 850us or 1.2ms, got {text!r}")
    number = float(match[1])
    if match[2] == "%":
        return Latency(number / 100.0, None)
    return Latency(None, number * {"us": 1e-6, "ms": 1e-3, "s": 1.0}[match[2]])
