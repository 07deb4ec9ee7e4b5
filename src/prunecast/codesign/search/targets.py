"""`Targets`: the targets of a pruned model, parsed from text. `TargetResult`: a model that meets them."""

import math
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

from prunecast.arguments import check_fields
from prunecast.errors import BadInput
from prunecast.patterns.pattern import check_sparsity
from prunecast.workload.graph import ModelTime
from prunecast.workload.memory import PassMemory

ONE_SHARE = "one share in every layer"
"""Name of the solution with one pattern family and one share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """Constraints that must all be met.

    Parameters
    ----------
    latency_share : longest time, as a share of the dense model's
    latency_s : longest time in seconds
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
        check_fields(self, "Targets")
        if self.latency_share is not None and not 0.0 < self.latency_share < math.inf:
            raise BadInput(f"latency must be above 0 %, got {self.latency_share:.0%}")
        if self.latency_s is not None and not 0.0 < self.latency_s < math.inf:
            raise BadInput(f"latency must be above 0, got {self.latency_s * 1e6:g} us")
        if self.speedup is not None and not 0.0 < self.speedup < math.inf:
            raise BadInput(f"speedup must be above 0, got {self.speedup:g}")
        if self.sparsity is not None:
            check_sparsity(self.sparsity)
        wanted = (self.latency_share, self.latency_s, self.speedup, self.sparsity)
        if all(target is None for target in wanted):
            raise BadInput(
                "wanted a latency (like 60% or 850us), a speedup or a sparsity to prune to, got none of them"
            )

    def most_seconds(self, dense_s: float) -> float:
        """Return the tightest time limit in seconds, given the dense model's time."""
        shares = (self.latency_share, None if self.speedup is None else 1.0 / self.speedup)
        limits = [share * dense_s for share in shares if share is not None]
        return min([*limits, float("inf") if self.latency_s is None else self.latency_s])

    def most_kept(self, weights: int) -> float:
        """Return the number of weights that may be kept, of `weights`."""
        return float("inf") if self.sparsity is None else (1.0 - self.sparsity) * weights


class Latency(NamedTuple):
    """A latency target; one of the two fields is None."""

    share: float | None
    """Latency budget as a share of the dense model's time."""
    seconds: float | None


def parse_latency(text: str) -> Latency:
    """Return the latency of a text: `60%` of the dense one, `850us` or `1.2ms`.

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


class ChosenMember(NamedTuple):
    """One of several matrices in one launch."""

    layer: str
    m: int
    removed: float
    retained_importance: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChosenLayer:
    """One layer of the result, or several in one launch.

    Parameters
    ----------
    layer, m, k, n : name and sizes; n is the largest of all passes
    pattern, kernel : the choice; `dense` for a layer that no option makes worth pruning
    sparsity : argument of the pattern
    removed : share of weights removed
    retained_importance : share
    seconds, dense_seconds : predicted; of all copies, and the mean over the passes of a workload
    copies : number of equal layers that it represents
    members : the part of each of several matrices
    """

    layer: str
    m: int
    k: int
    n: int
    pattern: str
    kernel: str
    sparsity: float | None
    removed: float
    retained_importance: float
    seconds: float
    dense_seconds: float
    copies: int = 1
    members: tuple[ChosenMember, ...] = ()

    @property
    def speedup(self) -> float:
        """Dense time over pruned time."""
        return self.dense_seconds / self.seconds

    @property
    def names(self) -> list[str]:
        """Names of its matrices."""
        return [each.layer for each in self.members] or [self.layer]

    def rows(self) -> list[dict[str, Any]]:
        """Return the fields for files, one row per matrix. A matrix has the share of the launch time of its
        rows.
        """
        own = {name: getattr(self, name) for name in ChosenLayer.__slots__ if name != "members"}
        times = {name: own[name] / self.m for name in ("seconds", "dense_seconds")}
        return [
            {**own, **each._asdict(), **{name: each.m * of_row for name, of_row in times.items()}}
            for each in self.members
        ] or [own]


class FrontPoint(NamedTuple):
    """The highest importance that closed-form times allow at one time of the whole model."""

    seconds: float
    retained_importance: float
    sparsity: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TargetResult:
    """A model that meets its targets.

    Parameters
    ----------
    layers : the chosen layers
    time, seconds, dense_seconds : end to end; for layers without a model graph, `time` is None and the others
        are sums over layers
    retained_importance, sparsity : over all layers that may be pruned
    gpu_bytes : memory of the GPU
    is_even : one pattern family and one share in every layer
    dense_memory, memory : GPU memory of each pass with a known graph, before and after pruning
    front : points of the Pareto front
    """

    layers: tuple[ChosenLayer, ...]
    time: ModelTime | None
    seconds: float
    dense_seconds: float
    retained_importance: float
    sparsity: float
    front: tuple[FrontPoint, ...]
    gpu_bytes: float = 0.0
    is_even: bool = False
    dense_memory: tuple[PassMemory, ...] = ()
    memory: tuple[PassMemory, ...] = ()

    def document(self) -> dict[str, Any]:
        """Return the solution as a JSON document, whose numbers are read back unchanged."""
        has = self.gpu_bytes
        names = ("seconds", "dense_seconds", "retained_importance", "sparsity")
        return {
            **{name: getattr(self, name) for name in names},
            "memory": [
                {"batch": own.batch, "dense": dense.document(has), "pruned": own.document(has)}
                for dense, own in zip(self.dense_memory, self.memory, strict=True)
            ],
            "gpu_memory_bytes": has,
            "layers": [row for layer in self.layers for row in layer.rows()],
            "front": [point._asdict() for point in self.front],
        }

    @property
    def offered(self) -> str:
        """Name of the choice between layers of one share and layers that compete by importance."""
        return ONE_SHARE if self.is_even else "everything"

    @property
    def speedup(self) -> float:
        """Dense time over pruned time, end to end."""
        return self.dense_seconds / self.seconds
