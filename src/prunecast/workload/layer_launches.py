"""What a kernel launches for one layer, pruned to any sparsity; and the ways to run it as a convolution."""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from prunecast.choice import PrunedMap, fastest_plan
from prunecast.errors import BadInput
from prunecast.hardware.memory_pass import MemoryPass
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels import KERNELS, ConvGrid, ConvShape, KernelPlan, implicit_plan, plan_dense
from prunecast.kernels.tile.kernel import STSPMM
from prunecast.patterns import TileMap
from prunecast.patterns.dense_block_pattern import DenseBlockPattern
from prunecast.patterns.sources import Layer
from prunecast.patterns.tile_element import TwoParts
from prunecast.plan.conv import computes_addresses, im2col_bytes
from prunecast.plan.kernel_plan import DTYPE_BYTES
from prunecast.workload.contestants import Contestant
from prunecast.workload.engines import Engine, Outcome
from prunecast.workload.pruned_maps import Guide, MapMaker, sparsity_for
from prunecast.workload.two_parts import blocks_in_two, launches_in_two

IMAGES_TOGETHER = 8
"""Images of fp16 that a copy of 16 bytes moves, of which the tile kernel takes whole groups."""


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
    can_be_implicit = all(computes_addresses(plan) for plan in launches)
    if product == "implicit" or (product == "best" and can_be_implicit):
        implicit = tuple(_without_b(plan, conv, engine.gpu) for plan in launches)
        ways.append(Way(implicit, note="convolution without im2col"))
    if product in ("best", "im2col"):
        before_s = im2col_seconds(conv, launches[0].dtype, engine.gpu, launch=engine.launch)
        ways.append(Way(launches, before_s, "convolution with im2col, its time included"))
    return ways


def _without_b(plan: KernelPlan, conv: ConvShape, gpu: GpuSpec) -> KernelPlan:
    """The convolution as the tile kernel runs it; else as a kernel would that works out pixels by itself."""
    sources = KERNELS[plan.kernel].sources
    if sources is None or sources.name != "tile" or conv.batch % IMAGES_TOGETHER:
        return implicit_plan(plan, conv)
    try:
        grid = ConvGrid(conv=conv, border=max(conv.padding, 1))
    except BadInput:
        return implicit_plan(plan, conv)
    return fastest_plan(plan.kernel, plan.tiles, grid.n, plan.dtype, gpu, source=grid)


def start_way(way: Way, engine: Engine) -> RunningWay:
    """Begin to predict all launches of a way."""
    return RunningWay(way, tuple(engine.start(plan) for plan in way.launches))


def fastest(ways: Sequence[RunningWay]) -> RunningWay:
    """The way that takes the least time, the first one of equals; waits for the engine."""
    return min(ways, key=lambda way: way.seconds)


def seconds_of(ways: Sequence[Way], engine: Engine) -> float:
    """Return the closed-form seconds of the fastest way."""
    return min(way.before_s + engine.estimated_seconds(way.launches) for way in ways)


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
    through_l2 = MemoryPass(l2_bytes=2 * conv.k * conv.n * DTYPE_BYTES[dtype])
    return MemoryPass(
        copied_bytes=moved,
        start_s=gpu.graph_launch_s if launch == "graph" else gpu.stream_launch_s,
        overlapped_s=through_l2.seconds(gpu),
        copy_share=1.0,
    ).seconds(gpu)


def kernel_dtype(layer: Layer, asked: str | None) -> str:
    """The format a layer is computed in: as asked, or bf16 for bf16 weights and fp16 for all others."""
    return asked or ("bf16" if layer.dtype == "bf16" else "fp16")


_known_dense = lru_cache(maxsize=64)(plan_dense)
"""Layers of one shape share their plan."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LayerLaunches:
    """Settings that decide what is launched for a layer, whichever kernels are compared.

    Parameters
    ----------
    engine : what predicts
    n : tokens of layers that are no convolution
    dtype : as asked for, or None
    natural : the patterns came with the kernels: cut them to fit, and leave 2:4 its own sparsity
    maker : makes the maps
    convolutions : layer -> the convolution that it is, where that is known
    product : one of `convolutions.PRODUCTS`
    experts_per_token : experts that each token goes to, of those that share a layer's tokens
    tokens : layer -> its own tokens, where a file says them
    likely_crossings : kernel, pattern, shape, and time of the dense product -> the last crossing found
    """

    engine: Engine
    n: int
    dtype: str | None
    natural: bool
    maker: MapMaker
    convolutions: Mapping[str, ConvShape] = field(default_factory=dict)
    product: str = "best"
    experts_per_token: int = 2
    tokens: Mapping[str, int] = field(default_factory=dict)
    likely_crossings: dict[tuple[Hashable, ...], float] = field(default_factory=dict, repr=False)
    _seconds_of_maps: dict[tuple[Hashable, ...], float] = field(default_factory=dict, repr=False)

    def kept(
        self, maker: MapMaker, layer: Layer, contestant: Contestant, sparsity: float | None
    ) -> PrunedMap | TwoParts:
        """What is kept of a layer for one kernel; dense blocks in two parts are pruned by predicted time."""
        pattern = maker.fit(layer.name, contestant.pattern, natural=self.natural).pattern
        if not KERNELS[contestant.kernel].parts or not isinstance(pattern, DenseBlockPattern):
            guide = self._guide(maker, contestant.kernel)
            return maker.map_of(
                layer.name, contestant.pattern, sparsity, natural=self.natural, guide=guide
            ).kept
        told = sparsity_for(pattern, sparsity, natural=self.natural)
        return blocks_in_two(
            maker.importance(layer.name, pattern),
            pattern.sparsity_to_prune(told),
            pattern.counts,
            self.tokens_of(layer),
            kernel_dtype(layer, self.dtype),
            self.engine,
        )

    def _guide(self, maker: MapMaker, kernel: str) -> Guide:
        """Times of the kernel by the closed-form model; of `stspmm` for kernels that run elements."""
        guide = kernel if KERNELS[kernel].takes is TileMap else STSPMM.name

        def seconds(name: str, tiles: TileMap) -> float:
            layer = maker.layers[name]
            return seconds_of(self.ways(layer, self.launches(layer, guide, tiles)), self.engine)

        return Guide(guide, seconds)

    def launches(self, layer: Layer, kernel: str, kept: PrunedMap | TwoParts) -> tuple[KernelPlan, ...]:
        """What `kernel` launches for what is kept of a layer, B being a matrix."""
        n, dtype = self.tokens_of(layer), kernel_dtype(layer, self.dtype)
        if KERNELS[kernel].parts or isinstance(kept, TwoParts):
            return launches_in_two(kept, n, dtype, self.engine)
        return (fastest_plan(kernel, kept, n=n, dtype=dtype, gpu=self.engine.gpu),)

    def ways(self, layer: Layer, launches: tuple[KernelPlan, ...]) -> list[Way]:
        """Ways to run a layer's launches, of which a convolution has several."""
        return conv_ways(launches, self.convolutions.get(layer.name), self.product, self.engine)

    def tokens_of(self, layer: Layer) -> int:
        """Tokens of a layer: of its convolution, its own, or of its experts."""
        conv = self.convolutions.get(layer.name)
        if conv is not None:
            return conv.n
        return self.tokens.get(layer.name) or layer.tokens(self.n, self.experts_per_token)

    def dense_plan(self, layer: Layer) -> KernelPlan:
        """The dense product of a layer, its rows padded to whole 16 bytes: the best that a user could run."""
        dtype, n = kernel_dtype(layer, self.dtype), self.tokens_of(layer)
        return _known_dense(*layer.shape, n, dtype, self.engine.gpu)

    def seconds_at(self, alone: MapMaker, contestant: Contestant) -> Callable[[float], float]:
        """Return the closed-form seconds of a kernel on the one layer of `alone` as a function of sparsity.

        Equal maps are timed once: blocks are few, and where nothing is pruned layers of one shape are alike.
        """
        (layer,) = alone.layers.values()
        where = (self.tokens_of(layer), self.convolutions.get(layer.name))

        def timed(kept: PrunedMap | TwoParts) -> float:
            return seconds_of(self.ways(layer, self.launches(layer, contestant.kernel, kept)), self.engine)

        def seconds(sparsity: float) -> float:
            kept = self.kept(alone, layer, contestant, sparsity)
            if kept.density == 0.0:
                return math.inf  # nothing is left of the layer, which `predict` refuses
            if isinstance(kept, TwoParts):
                return timed(kept)
            key = (contestant.kernel, kept.fingerprint(), kernel_dtype(layer, self.dtype), *where)
            if key not in self._seconds_of_maps:
                self._seconds_of_maps[key] = timed(kept)
            return self._seconds_of_maps[key]

        return seconds
