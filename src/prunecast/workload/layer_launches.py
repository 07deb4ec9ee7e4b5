"""Launches of a kernel for one layer at any sparsity, and the launch sequences of a convolution."""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import NamedTuple

from prunecast.choice import PrunedMap, fastest_plan
from prunecast.errors import BadInput
from prunecast.hardware.memory_pass import MemoryPass
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels import KERNELS, ConvGrid, ConvShape, KernelPlan, implicit_plan, plan_dense
from prunecast.kernels.libraries.scaled.call import quantise_passes, scaled_costs
from prunecast.kernels.tile.kernel import STSPMM
from prunecast.launch import Conditions
from prunecast.patterns import TileMap
from prunecast.patterns.dense_block_pattern import DenseBlockPattern
from prunecast.patterns.sources import Layer
from prunecast.patterns.tile_element import TwoParts
from prunecast.plan.conv import computes_addresses, im2col_bytes
from prunecast.plan.conv_grid import IMAGES_TOGETHER
from prunecast.plan.kernel_plan import DTYPE_BYTES
from prunecast.plan.misaligned import planned_tokens
from prunecast.workload.candidates import Candidate
from prunecast.workload.dense_calls import DenseCall, dense_call
from prunecast.workload.engines import Engine
from prunecast.workload.expert_launches import layer_plan, share_of
from prunecast.workload.pruned_maps import Guide, MapMaker, sparsity_for
from prunecast.workload.two_parts import blocks_in_two, launches_in_two
from prunecast.workload.workload import WorkloadLayer

LaunchSeconds = Callable[[Sequence[KernelPlan]], float]
"""Function that returns the predicted seconds of launches that follow each other."""


class LaunchSequence(NamedTuple):
    """Launches that follow each other, after an optional im2col kernel."""

    launches: tuple[KernelPlan, ...]
    before_s: float = 0.0
    """Seconds of the im2col kernel, which writes B of a convolution before the launches."""
    note: str = ""
    """Remark for the result table; may be empty."""
    share: float = 1.0
    """Fraction of the launches' seconds that counts for the layer: below 1 for an expert."""


def sequences_of(
    launches: tuple[KernelPlan, ...],
    conv: ConvShape | None,
    product: str,
    engine: Engine,
    *,
    in_planes: bool = False,
) -> list[LaunchSequence]:
    """Return the launch sequences that can run one layer; the fastest of them is its time (`seconds_of`).

    A linear layer has one sequence, as has a convolution whose input is already B (1x1 filters, stride 1).
    Other convolutions have a sequence without im2col, one with im2col, or both.

    Parameters
    ----------
    launches : launches of the layer's matrix product with B in memory
    conv : the convolution, or None for a linear layer
    product : way to compute a convolution: `implicit` (without im2col), `im2col`, or `best` (both sequences,
        if the kernels can compute the addresses of pixels)
    engine : engine whose GPU and launch mode are used
    in_planes : True if a tile kernel reads zero-padded images, also for 1x1 filters
    """
    if in_planes and conv is not None and all(_gathers_pixels(plan, conv) for plan in launches):
        return [LaunchSequence(tuple(_in_planes(plan, conv, engine.gpu) for plan in launches))]
    if conv is None or conv.is_matrix:
        return [LaunchSequence(launches)]
    found = []
    can_be_implicit = all(computes_addresses(plan) for plan in launches)
    if product == "implicit" or (product == "best" and can_be_implicit):
        implicit = tuple(_without_b(plan, conv, engine.gpu) for plan in launches)
        found.append(LaunchSequence(implicit, note="convolution without im2col"))
    if product in ("best", "im2col"):
        before_s = im2col_seconds(conv, launches[0].dtype, engine.gpu, engine.conditions)
        found.append(LaunchSequence(launches, before_s, "convolution with im2col, its time included"))
    return found


def _without_b(plan: KernelPlan, conv: ConvShape, gpu: GpuSpec) -> KernelPlan:
    """Return the plan of an implicit convolution, which has no B in memory.

    The tile kernel reads zero-padded images if the batch and the sizes fit. Otherwise the kernel computes the
    addresses of pixels itself.
    """
    if conv.batch % IMAGES_TOGETHER == 0 and _gathers_pixels(plan, conv):
        return _in_planes(plan, conv, gpu)
    return implicit_plan(plan, conv)


def _gathers_pixels(plan: KernelPlan, conv: ConvShape) -> bool:
    """Return True if a kernel can read zero-padded images (in whole groups of `IMAGES_TOGETHER`)."""
    sources = KERNELS[plan.kernel].sources
    is_tile = sources is not None and sources.name == "tile"
    return is_tile and conv.keeps_size


def _in_planes(plan: KernelPlan, conv: ConvShape, gpu: GpuSpec) -> KernelPlan:
    return plan_in_planes(plan.kernel, plan.tiles, conv, plan.dtype, gpu)


def plan_in_planes(kernel: str, tiles: TileMap, conv: ConvShape, dtype: str, gpu: GpuSpec) -> KernelPlan:
    """Return the fastest plan of a convolution that reads zero-padded images."""
    grid = ConvGrid.of_network(conv)
    return fastest_plan(kernel, tiles, grid.n, dtype, gpu, source=grid)


def seconds_of(sequences: Sequence[LaunchSequence], seconds: LaunchSeconds) -> float:
    """Return the seconds of the fastest sequence; the function `seconds` predicts the launches of each."""
    return min(each.before_s + each.share * seconds(each.launches) for each in sequences)


def im2col_seconds(conv: ConvShape, dtype: str, gpu: GpuSpec, conditions: Conditions) -> float:
    """Return the seconds of the im2col kernel, which writes B (K, N); 0 if the input is already B.

    DRAM reads the input once and writes B once. Every element of B is read and written through L2.
    """
    moved = im2col_bytes(conv, dtype)
    if moved == 0:
        return 0.0
    through_l2 = MemoryPass(l2_bytes=2 * conv.k * conv.n * DTYPE_BYTES[dtype])
    return MemoryPass(
        copied_bytes=moved,
        start_s=conditions.launch_s(gpu),
        overlapped_s=through_l2.seconds(gpu),
        copy_share=1.0,
    ).seconds(gpu)


def kernel_dtype(layer: Layer, asked: str | None) -> str:
    """Return the number format of a layer's computation: `asked`, or bf16 for bf16 weights, or else fp16."""
    return asked or ("bf16" if layer.dtype == "bf16" else "fp16")


_known_dense = lru_cache(plan_dense)
"""Cached `plan_dense`: layers of one shape share their plan."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LayerLaunches:
    """Settings that determine the launches of a layer, common to all compared kernels.

    Parameters
    ----------
    engine : predicts the launches
    layers : rows of the result table, each with the tokens of one pass
    dtype : the requested format, or None
    maker : prunes the layers to maps
    product : way to compute convolutions, one of `conv_settings.PRODUCTS`
    in_torch : layers run as in torch: sparse linear layers on rows that `SparseLinear` pads
        (`planned_tokens`), convolutions on zero-padded images
    scales : scaling of x in fp8, one of `scaled.SCALES`; None for products that do not quantise x
    likely_crossings : (kernel, pattern, shape, dense time) -> sparsity of the last crossover that was found,
        with which the search for the crossover of an equal layer starts
    """

    engine: Engine
    layers: Mapping[str, WorkloadLayer]
    dtype: str | None
    maker: MapMaker
    product: str = "best"
    in_torch: bool = False
    scales: str | None = None
    likely_crossings: dict[tuple[Hashable, ...], float] = field(default_factory=dict, repr=False)
    _seconds_of_maps: dict[tuple[Hashable, ...], float] = field(default_factory=dict, repr=False)

    def kept(
        self, maker: MapMaker, layer: WorkloadLayer, candidate: Candidate, sparsity: float | None
    ) -> PrunedMap | TwoParts:
        """Prune a layer for one kernel and return its map.

        For the kernel `two-part`, dense blocks are chosen by predicted time.
        """
        natural = candidate.natural
        pattern = maker.fit(layer.name, candidate.pattern, natural=natural).pattern
        is_given = layer.name in maker.given
        if is_given or not KERNELS[candidate.kernel].parts or not isinstance(pattern, DenseBlockPattern):
            guide = self._guide(candidate.kernel)
            return maker.map_of(layer.name, candidate.pattern, sparsity, natural=natural, guide=guide)
        target_sparsity = sparsity_for(pattern, sparsity, natural=natural)
        return blocks_in_two(
            maker.importance(layer.name, pattern),
            pattern.sparsity_to_prune(target_sparsity),
            pattern.counts,
            layer.n,
            kernel_dtype(layer, self.dtype),
            self.engine,
        )

    def _guide(self, kernel: str) -> Guide:
        """Return functions that predict the time of a tile map with `kernel`.

        If `kernel` does not run tile maps, the times are those of the kernel `stspmm`.
        """
        guide = kernel if KERNELS[kernel].takes is TileMap else STSPMM.name

        def seconds(predicted: LaunchSeconds, name: str, tiles: TileMap) -> float:
            layer = self.layers[name]
            return seconds_of(self.sequences(layer, self.launches(layer, guide, tiles)), predicted)

        engine = self.engine
        quick, slow = partial(seconds, engine.estimated_seconds), partial(seconds, engine.simulated_seconds)
        return Guide(f"{guide} on {engine.gpu.fingerprint}", quick, slow)

    def launches(
        self, layer: WorkloadLayer, kernel: str, kept: PrunedMap | TwoParts
    ) -> tuple[KernelPlan, ...]:
        """Return the launches of `kernel` for the pruned map of a layer, with B in memory."""
        dtype = kernel_dtype(layer, self.dtype)
        if KERNELS[kernel].parts or isinstance(kept, TwoParts):
            return launches_in_two(kept, layer.n, dtype, self.engine)
        n = planned_tokens(layer.n) if self.in_torch and layer.convolution is None else layer.n
        return (layer_plan(kernel, kept, n, dtype, self.engine.gpu, layer.fused),)

    def check_runs(self, layer: WorkloadLayer, kernel: str) -> None:
        """Raise BadInput if `kernel` cannot run the convolution of the layer in torch."""
        conv = layer.convolution
        if self.in_torch and conv is not None and (kernel != STSPMM.name or not conv.keeps_size):
            raise BadInput(
                f"torch runs sparse convolutions with {STSPMM.name} and odd filters, half of their size as "
                f"padding; got {kernel}, {conv.kernel_h}x{conv.kernel_w} with padding {conv.padding}"
            )

    def sequences(self, layer: WorkloadLayer, launches: tuple[KernelPlan, ...]) -> list[LaunchSequence]:
        """Return the launch sequences that run a layer. A convolution can have several."""
        if layer.fused is not None and launches[0].experts > 1:
            note = f"share of one expert in the grouped launch of {launches[0].experts}"
            return [LaunchSequence(launches, note=note, share=share_of(launches[0], layer.shape[0]))]
        conv, own = layer.convolution, self.in_torch
        return sequences_of(launches, conv, self.product, self.engine, in_planes=own)

    def dense_plan(self, layer: WorkloadLayer) -> KernelPlan:
        """Return the plan of the fastest dense product, with rows padded to 16 bytes."""
        return _known_dense(*layer.shape, layer.n, kernel_dtype(layer, self.dtype), self.engine.gpu)

    def dense_call(self, layer: WorkloadLayer) -> DenseCall | None:
        """Return the time of a layer's dense product if it is not one launch of cuBLAS, else None."""
        if layer.convolution is not None:
            return None
        return dense_call(
            *layer.shape,
            layer.n,
            kernel_dtype(layer, self.dtype),
            self.engine.gpu,
            state=self.engine.conditions.state,
            fused=layer.fused,
            scales=self.scales,
        )

    def quantise_seconds(self, layer: WorkloadLayer) -> float:
        """Return the seconds of quantising x before a sparse product of a layer; 0 if x is not quantised."""
        if self.scales is None or kernel_dtype(layer, self.dtype) != "fp8":
            return 0.0
        gpu = self.engine.gpu
        numbers = scaled_costs(gpu.compute_capability)
        passes = quantise_passes(layer.shape[1], layer.n, self.scales, numbers)
        return sum(each.seconds(gpu) for each in passes)

    def seconds_at(
        self, alone: MapMaker, layer: WorkloadLayer, candidate: Candidate
    ) -> Callable[[float], float]:
        """Return a function that maps a sparsity to the closed-form seconds of a kernel on a layer.

        Equal maps are timed once: small changes of the sparsity often give the same map, and unpruned
        layers of one shape have equal maps.

        Parameters
        ----------
        alone : maker of the maps of only this layer
        """

        def timed(kept: PrunedMap | TwoParts) -> float:
            launches = self.launches(layer, candidate.kernel, kept)
            return seconds_of(self.sequences(layer, launches), self.engine.estimated_seconds)

        def seconds(sparsity: float) -> float:
            kept = self.kept(alone, layer, candidate, sparsity)
            if kept.density == 0.0:
                return math.inf  # `predict` refuses a layer without weights
            if isinstance(kept, TwoParts):
                return timed(kept)
            dtype = kernel_dtype(layer, self.dtype)
            fused = layer.fused and layer.fused.in_any_layer()
            key = (candidate.kernel, kept.fingerprint(), dtype, layer.n, layer.convolution, fused)
            if key not in self._seconds_of_maps:
                self._seconds_of_maps[key] = timed(kept)
            return self._seconds_of_maps[key]

        return seconds
