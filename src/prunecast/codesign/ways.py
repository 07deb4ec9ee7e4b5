"""Ways to run a layer with one kernel: the launches of each, and what has to happen before them."""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import NamedTuple

from prunecast.codesign.engines import Engine, Outcome
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels import KernelPlan, implicit_plan
from prunecast.plan.conv import im2col_bytes
from prunecast.plan.conv_shape import ConvShape
from prunecast.plan.kernel_plan import DTYPE_BYTES


class Way(NamedTuple):
    """Launches that follow each other."""

    launches: tuple[KernelPlan, ...]
    before_s: float = 0.0
    """Seconds of what must be done first: writing B for a convolution."""
    note: str = ""


class RunningWay(NamedTuple):
    """A way whose launches an engine is predicting."""

    way: Way
    outcomes: tuple[Future[Outcome], ...]

    @property
    def seconds(self) -> float:
        """Seconds of all launches together; waits for the engine and raises what it raises."""
        return self.way.before_s + sum(outcome.result().seconds for outcome in self.outcomes)

    @property
    def longest(self) -> Outcome:
        """The outcome of the launch that takes the most time."""
        return max((outcome.result() for outcome in self.outcomes), key=lambda result: result.seconds)


def conv_ways(
    launches: tuple[KernelPlan, ...], conv: ConvShape | None, product: str, engine: Engine
) -> list[Way]:
    """The launches as they are for a matrix B; for a convolution without B, or with B written first."""
    if conv is None or conv.is_matrix:
        return [Way(launches)]
    ways = []
    if product in ("best", "implicit"):
        ways.append(
            Way(tuple(implicit_plan(plan, conv) for plan in launches), note="convolution without im2col")
        )
    if product in ("best", "im2col"):
        before_s = im2col_seconds(conv, launches[0].dtype, engine.gpu, launch=engine.launch)
        ways.append(Way(launches, before_s, "convolution with im2col, its time included"))
    return ways


def start_way(way: Way, engine: Engine) -> RunningWay:
    """Begin to predict all launches of a way."""
    return RunningWay(way, tuple(engine.start(plan) for plan in way.launches))


def fastest(ways: Sequence[RunningWay]) -> RunningWay:
    """The way that takes the least time, the first one of equals; waits for the engine."""
    return min(ways, key=lambda way: way.seconds)


def seconds_of(ways: Sequence[Way], engine: Engine) -> float:
    """Time of the fastest way, by an engine whose answers are not kept."""
    return min(way.before_s + sum(engine.once(plan).seconds for plan in way.launches) for way in ways)


def im2col_seconds(conv: ConvShape, dtype: str, gpu: GpuSpec, *, launch: str) -> float:
    """Seconds of the kernel that writes B (K, N), a launch of its own; 0 where the input is B.

    DRAM delivers the input once and takes B. Every element of B is read and written through L2.

    Parameters
    ----------
    launch : `graph` or `stream`

    """
    moved = im2col_bytes(conv, dtype)
    if moved == 0:
        return 0.0
    through_l2 = 2 * conv.k * conv.n * DTYPE_BYTES[dtype]
    floor_s = gpu.graph_launch_s if launch == "graph" else gpu.stream_launch_s
    return floor_s + max(moved / gpu.dram_copy_bytes_per_s, through_l2 / gpu.l2_bytes_per_s)
