"""`Targets`: the limits that a pruned model must keep. `TargetResult`: a pruned model that keeps them."""

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
"""Name of the solution with one pattern family and about one sparsity in all layers."""
MOST_SHARE = 10.0
"""Largest latency target as a share of the dense time: 60 is probably meant as 60 %. Kind: choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """Limits for a pruned model, which must all be kept. At least one is given.

    Parameters
    ----------
    latency_share : upper limit of the pruned time over the dense time
    latency_s : upper limit of the pruned time, in seconds
    speedup : lower limit of the dense time over the pruned time
    sparsity : lower limit of the share of weights removed, over all layers

    Raises
    ------
    BadInput : a number is out of range, or no target is given
    """

    latency_share: float | None = None
    latency_s: float | None = None
    speedup: float | None = None
    sparsity: float | None = None

    def __post_init__(self) -> None:
        check_fields(self, "Targets")
        if self.latency_share is not None and not 0.0 < self.latency_share <= MOST_SHARE:
            raise BadInput(
                f"latency must be above 0 %, at most {MOST_SHARE:.0%}, got {self.latency_share:.0%}"
            )
        if self.latency_s is not None and not 0.0 < self.latency_s < math.inf:
            raise BadInput(f"latency must be above 0, got {self.latency_s * 1e6:g} us")
        if self.speedup is not None and not 1.0 <= self.speedup < math.inf:
            share = f"; {self.speedup:.0%} of the dense time is a latency" if 0.0 < self.speedup < 1.0 else ""
            raise BadInput(
                f"speedup must be from 1 (dense time over pruned time), got {self.speedup:g}{share}"
            )
        if self.sparsity is not None:
            check_sparsity(self.sparsity)
        wanted = (self.latency_share, self.latency_s, self.speedup, self.sparsity)
        if all(target is None for target in wanted):
            raise BadInput(
                "wanted a latency (like 60% or 850us), a speedup or a sparsity to prune to, got none of them"
            )

    def limits(self, dense_s: float, weights: int) -> "Limits":
        """Return the limits for a model with this dense time in seconds and this number of weights.

        If there are several time targets, the tightest one becomes the limit.
        """
        shares = (self.latency_share, None if self.speedup is None else 1.0 / self.speedup)
        times = [share * dense_s for share in shares if share is not None]
        return Limits(
            dense_s=dense_s,
            seconds=min([*times, math.inf if self.latency_s is None else self.latency_s]),
            kept=math.inf if self.sparsity is None else (1.0 - self.sparsity) * weights,
        )


class Limits(NamedTuple):
    """Upper limits of a pruned model, see `Targets.limits`; a missing limit is infinite."""

    dense_s: float
    """End-to-end seconds of the dense model."""
    seconds: float
    """Limit of the end-to-end time."""
    kept: float
    """Limit of the number of kept weights."""

    def are_met(self, seconds: float, kept: float) -> bool:
        """Return True if a model with this time and number of kept weights keeps both limits."""
        return seconds <= self.seconds and kept <= self.kept * (1.0 + 1e-9)


class Latency(NamedTuple):
    """A latency target, relative (`share`) or absolute (`seconds`); the other field is None."""

    share: float | None
    """Latency budget as a share of the dense model's time."""
    seconds: float | None


def parse_latency(text: str) -> Latency:
    """Parse a latency target: `60%` of the dense time, or a time such as `850us`, `1.2ms` or `2s`.

    Raises
    ------
    BadInput : the text has another form, or the number is 0
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(%|us|ms|s)\s*", text)
    if match is None or float(match[1]) == 0.0:
        raise BadInput(f"latency must be like 60%, 850us or 1.2ms, got {text!r}")
    number = float(match[1])
    if match[2] == "%":
        return Latency(number / 100.0, None)
    return Latency(None, number * {"us": 1e-6, "ms": 1e-3, "s": 1.0}[match[2]])


class ChosenMember(NamedTuple):
    """The result for one of several matrices that share a launch.

    `removed` is the share of the matrix's weights that is removed, and `retained_importance` the share of
    its importance that is kept.
    """

    layer: str
    m: int
    removed: float
    retained_importance: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChosenLayer:
    """The pattern and kernel chosen for one layer, or for several matrices that share a launch.

    Parameters
    ----------
    layer, m, k, n : name of the layer, rows and columns of A, and the largest number of tokens of all passes
    pattern, kernel : the choice; `dense` for a layer that is not worth pruning
    sparsity : argument of the pattern; None for patterns with a fixed sparsity
    removed : share of the weights that is removed
    retained_importance : share of the importance that is retained
    seconds, dense_seconds : predicted seconds of all copies, pruned and dense; the mean over the passes of a
        workload
    copies : number of equal layers that this one represents
    members : results of the matrices if several share the launch, else empty
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
        """Names of the matrices of the layer."""
        return [each.layer for each in self.members] or [self.layer]

    def rows(self) -> list[dict[str, Any]]:
        """Return one dictionary per matrix, as files store it.

        If several matrices share a launch, its time is divided in proportion to their rows.
        """
        own = {name: getattr(self, name) for name in ChosenLayer.__slots__ if name != "members"}
        times = {name: own[name] / self.m for name in ("seconds", "dense_seconds")}
        return [
            {**own, **each._asdict(), **{name: each.m * of_row for name, of_row in times.items()}}
            for each in self.members
        ] or [own]


class FrontPoint(NamedTuple):
    """A point of the Pareto front: an end-to-end time, and the highest importance that can be retained in it.

    Times are mostly estimates. They are scaled if the front would promise more than the pruned model reaches.
    `retained_importance` and `sparsity` are shares over all layers that may be pruned.
    """

    seconds: float
    retained_importance: float
    sparsity: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TargetResult:
    """A pruned model that meets its targets.

    Parameters
    ----------
    layers : the choice for each layer
    time : end-to-end time by operation; None without a model graph
    seconds, dense_seconds : end-to-end seconds, pruned and dense; without a model graph, sums over layers
    retained_importance, sparsity : shares of the importance and of the weights of all layers that may be
        pruned
    gpu_bytes : bytes of the GPU's memory
    offered : name of the rule for the patterns and sparsities that layers could get: `everything`, another
        key of `solutions.OFFERS`, or `ONE_SHARE`
    dense_memory, memory : GPU memory of each pass with a known graph, before and after pruning
    front : Pareto front of retained importance and time
    """

    layers: tuple[ChosenLayer, ...]
    time: ModelTime | None
    seconds: float
    dense_seconds: float
    retained_importance: float
    sparsity: float
    front: tuple[FrontPoint, ...]
    gpu_bytes: float = 0.0
    offered: str = "everything"
    dense_memory: tuple[PassMemory, ...] = ()
    memory: tuple[PassMemory, ...] = ()

    def document(self) -> dict[str, Any]:
        """Return the solution as a JSON object that stores its numbers exactly."""
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
    def speedup(self) -> float:
        """Dense time over pruned time, end to end."""
        return self.dense_seconds / self.seconds
