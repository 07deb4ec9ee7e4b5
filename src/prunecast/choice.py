"""Choose the fastest config of a kernel: rank all configs by a roofline time, then compare the best ones by
the closed-form model.

This module uses the estimates of `prunecast.models` and is used by `prunecast.codesign`. The planners in
`prunecast.kernels` plan for a given config.

Configs are ranked before they are planned, by `prunecast.models.config_roofline`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.arguments import checked
from prunecast.errors import BadInput, check_choice
from prunecast.hardware import GpuSpec
from prunecast.kernels import DTYPE_BYTES, KERNELS, ConvGrid, Kernel, KernelPlan, PlanDoesNotFit, grid_plan
from prunecast.launch import USUAL, Conditions, launch_context
from prunecast.models import Estimate, estimate_launch
from prunecast.models.config_roofline import roofline_seconds
from prunecast.patterns import ElementMap, NestedMap, TileMap, element_map_from_mask
from prunecast.plan.tile_rows import columns_of_any

PrunedMap = TileMap | ElementMap | NestedMap
"""Map of the weights that a pruned layer keeps."""
NEAR = 1.12
"""Configs whose roofline time is at most this many times the shortest one are planned and estimated. If all
configs were, the best estimate would be shorter in the mean by 0.3 % for the recorded products of the tile
kernels, and by 2 % for those of small-n (2026-11-22)."""

NEAR_COARSE = 1.6
"""Value of `NEAR` for short launches and for kernels whose costs are mostly guesses. Kind: choice. With 1.12,
the chosen config would lose against the best one: up to 11 % for STSpMM on five uneven maps on V100, T4 and
A100 (closed form, 2026-11-23), up to 43 % for other kernels on 10 random layers (`balanced` on an A100,
2026-11-28), and up to 16 % for small-n and `balanced` on 30 random layers each on H200 and H100, all of them
short (2026-11-28). `balanced` of 192 x 1000 x 2048 would lose half of its time on an H100 (2026-11-29)."""

SHORT_S = 1e-5
"""Roofline time in seconds below which a launch is short: latencies, which the roofline omits, dominate.
Kind: choice. In the study of `NEAR_COARSE`, no launch of more than 5.1 us lost 2 %."""

TIE = 1.01
"""Estimates up to this many times the shortest one count as a tie (`_fastest_of`). The model's times are 3 %
too long for plans that use all SMs and right for those that leave some idle (H200, more than 6 k-steps per
tile, 28 products of h200-sxm-configs-2026-11-22.json, 2026-11-29).
Kind: choice. A tie may cost no more than `tests/laws.py` allows, since a faster GPU can make a tie of two
plans that were none. The regret on these products is the same with 1.0 to 1.06."""
NEARLY_ALL = 0.95
"""Least fraction of the SMs that counts as nearly all. Kind: chosen with `TIE`."""

MOSTLY = 0.5
"""Fraction of a kernel's costs that are guesses, above which `NEAR_COARSE` applies."""
SEARCHED = 2
"""Value of `most` (configs that are planned per product) in searches over many products."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Product:
    """Matrix product C (M, N) = (A * mask) (M, K) @ B (K, N) that one kernel computes on one GPU.

    Parameters
    ----------
    kernel : record of the kernel
    kept : map of the kept weights; a map of all weights if the planner accepts only (m, k)
    n : number of tokens (columns of B)
    dtype : number format, such as `fp16`
    gpu : spec of the GPU
    loads : tokens of each expert if `kept` stacks the maps of several experts along M, else empty; `n` is
        their mean
    inside : keyword argument `tiles` of the planner if `kept` has single elements inside tiles, else empty
    """

    kernel: Kernel
    kept: TileMap | ElementMap
    n: int
    dtype: str
    gpu: GpuSpec
    loads: tuple[int, ...] = ()
    inside: dict[str, TileMap] = field(default_factory=dict)

    @property
    def operand(self) -> tuple[Any, ...]:
        """A as the planner accepts it: the map, or m and k for kernels that multiply all weights."""
        return (self.kept.m, self.kept.k) if self.kernel.takes is None else (self.kept,)

    def configs(self) -> tuple[Any, ...]:
        """Return the configs that the kernel has for the product.

        Raises
        ------
        BadInput : the kernel does not support the number format or the GPU
        """
        if not self.loads:
            return tuple(self.kernel.configs(*self.operand, self.n, self.dtype, self.gpu, **self.inside))
        # Blocks for the experts with few tokens, and for those with many
        most = self.kernel.most_tokens or max(self.n, *self.loads)
        sizes = [min(-(-size // 8) * 8, most) for size in (self.n, max(self.loads))]
        found = [self.kernel.configs(self.kept, n, self.dtype, self.gpu) for n in sizes]
        return tuple(dict.fromkeys(chain.from_iterable(found)))

    def plan(self, *config: Any, **options: Any) -> KernelPlan:
        """Return the plan with the given config of `configs`; `options` are keywords of the kernel's planner.

        A kernel with only one config needs no argument.
        """
        grouped = {"loads": self.loads} if self.loads else {}
        return self.kernel.plan(
            *self.operand, self.n, self.dtype, self.gpu, *config, **self.inside, **grouped, **options
        )

    def plans(self, config: Any, **options: Any) -> list[KernelPlan]:
        """Return the plan with a config, followed by plans of the same config with other split-K counts.

        If options are given, return only the first plan.
        """
        plan, others = self.plan(config, **options), self.kernel.other_plans
        return [plan] if others is None or options else [plan, *others(plan, config, self.gpu)]

    def roofline_seconds(self, configs: Sequence[Any]) -> list[float]:
        """Return the roofline time in seconds of each config, by which configs are ranked.

        All times are 0 for a kernel without roofline times, which has only one config.
        """
        if self.kernel.times is None:
            return [0.0] * len(configs)
        if self.loads:
            return [self._grouped_seconds(config) for config in configs]
        times = self.kernel.times(configs, *self.operand, self.n, self.dtype, self.gpu, **self.inside)
        rows = columns_of_any(self.kept) if isinstance(self.kept, TileMap) else self.kept.k
        other_bytes = float((rows + self.kept.m) * self.n * DTYPE_BYTES[self.dtype])
        return roofline_seconds(times, other_bytes, self.gpu)

    def _grouped_seconds(self, config: Any) -> float:
        """Return the roofline time in seconds of a grouped launch.

        Each tile of A is multiplied once for every range of `block_n` tokens of its expert.
        """
        assert self.kernel.times is not None
        block_n: int = config.shape.block_n
        (times,) = self.kernel.times([config], self.kept, block_n, self.dtype, self.gpu, **self.inside)
        ranges, tiles = _ranges(self.loads, config), times.alone.size
        # Experts have about as many tiles each
        items = ranges[np.arange(tiles) * ranges.size // max(tiles, 1)]
        times = times._replace(
            alone=np.repeat(times.alone, items),
            pipe=np.repeat(times.pipe, items),
            read_bytes=times.read_bytes * float(ranges.mean()),
            weight_bytes=times.weight_bytes * float(np.mean(ranges > 0)),
            fix_up=None,
        )
        columns, rows = float(ranges.sum() * block_n), self.kept.m // len(self.loads)
        other_bytes = (self.kept.k + rows) * columns * DTYPE_BYTES[self.dtype]
        return roofline_seconds([times], other_bytes, self.gpu)[0]


def _ranges(loads: tuple[int, ...], config: Any) -> npt.NDArray[np.int64]:
    block_n: int = config.shape.block_n
    return -(-np.array(loads, np.int64) // block_n)


def product_of(
    kernel: str, kept: PrunedMap, n: int, dtype: str, gpu: GpuSpec, loads: tuple[int, ...] = ()
) -> Product:
    """Return the product of a map of kept weights with `n` tokens, computed by a kernel of `KERNELS`.

    Raises
    ------
    BadInput : the kernel cannot run this kind of map, needs several launches, or cannot group experts
    """
    record = KERNELS[check_choice("kernel", kernel, KERNELS)]
    if record.parts:
        raise BadInput(f"{kernel} takes more than one launch: {' and '.join(record.parts)}")
    inside: dict[str, TileMap] = {}
    if isinstance(kept, NestedMap):
        if "elements in tiles" in record.keeps and not record.runs_any_mask:
            inside = {"tiles": kept.tiles}
        kept = kept.inner
    if record.runs_any_mask and isinstance(kept, TileMap):
        kept = element_map_from_mask(kept.mask(), kept.pattern)
    runs_all = record.takes is None and kept.pattern == "dense"
    if not runs_all and not isinstance(kept, record.takes or ()):
        kinds = "no map" if record.takes is None else record.takes.__name__
        raise BadInput(f"{kernel} runs {kinds}, got {type(kept).__name__} of {kept.pattern}")
    if loads and not record.groups:
        raise BadInput(f"{kernel} has no grouped form for experts")
    return Product(kernel=record, kept=kept, n=n, dtype=dtype, gpu=gpu, loads=loads, inside=inside)


@checked
def fastest_plan(
    kernel: str,
    kept: PrunedMap,
    n: int,
    dtype: str,
    gpu: GpuSpec,
    *,
    state: str = "burst",
    most: int | None = None,
    allowed: Callable[[Any], bool] | None = None,
    source: ConvGrid | None = None,
    loads: tuple[int, ...] = (),
    **options: Any,
) -> KernelPlan:
    """Return the plan of `kernel` with the config that is fastest according to the closed-form model.

    Among nearly equal estimates, prefer plans that use nearly all SMs and have large tiles.

    Parameters
    ----------
    kernel : a name of `KERNELS`
    kept : map of the kept weights of A (M, K)
    n : number of tokens
    state : state of the GPU, as in `prunecast.models.case`
    most : maximum number of configs to plan; None for all whose roofline time is near the best
    allowed : predicate that returns True if a config may be chosen; None for all
    source : convolution whose input is read in place of B (implicit GEMM); it has `n` columns
    loads : tokens of each expert, ascending, if `kept` stacks the maps of several experts along M
        (`plan.expert_items.stacked_experts`); `n` is their mean
    options : further keywords of the kernel's planner

    Raises
    ------
    BadInput : the kernel does not support this kind of map, the number format or the GPU
    PlanDoesNotFit : no block fits on an SM
    """
    if most is not None and most < 1:
        raise BadInput(f"most must be at least 1, got {most}")
    product = product_of(kernel, kept, n, dtype, gpu, loads)
    if product.kernel.times is None:
        return product.plan(**options)
    alike = _AlikeOnSparseCores(
        kernel, product.kept.m, product.kept.k, product.kept.density, n, dtype, gpu, state, most
    )
    plain = not product.inside and allowed is None and source is None and not options
    if plain and alike in _chosen:
        config, place = _chosen[alike]
        return product.plans(config)[place]
    near = _near_plans(product, most, allowed, options)
    plans = [one.plan for one in near]
    if source is not None:
        plans = [grid_plan(plan, source, gpu) for plan in plans]
    best = _fastest_of(plans, gpu, state)
    if plain and plans[best].inner is not None and plans[best].tensor.startswith("sparse"):
        if len(_chosen) >= MOST_CHOSEN:
            _chosen.clear()
        _chosen[alike] = near[best].config, near[best].place
    return plans[best]


class _AlikeOnSparseCores(NamedTuple):
    """Cache key for the config of 2:4 weights on sparse tensor cores: all masks have the same config."""

    kernel: str
    m: int
    k: int
    density: float
    n: int
    dtype: str
    gpu: GpuSpec
    state: str
    most: int | None


MOST_CHOSEN = 1024
"""Maximum number of cached choices."""
_chosen: dict[_AlikeOnSparseCores, tuple[Any, int]] = {}


def _fastest_of(plans: Sequence[KernelPlan], gpu: GpuSpec, state: str) -> int:
    """Return the index of the fastest plan.

    Among plans whose estimates are a tie, those win that give nearly all SMs whole tiles (only with wgmma,
    where it was measured), then those with the largest tiles of C, the fewest work items and the squarest
    tiles, which read less. Of 39 simulated draws that went against a law because the choice changed within a
    tie, the last two mend 17.
    """
    if len(plans) == 1:
        return 0
    conditions = USUAL if state == USUAL.state else Conditions(state)
    seconds = [kept_estimate(plan, gpu, conditions).seconds for plan in plans]
    shortest, ranked = min(seconds), []
    for i, (plan, each) in enumerate(zip(plans, seconds, strict=True)):
        if each <= TIE * shortest:
            block_m, block_n, _ = plan.shape
            everywhere = plan.blocks >= NEARLY_ALL * gpu.sm_count and not (plan.work.parts > 1).any()
            tile = block_m * block_n, -plan.work.tile.size, -block_m - block_n
            ranked.append(("wgmma" in plan.tensor and everywhere, *tile, -each, i))
    return max(ranked)[-1]


@lru_cache(maxsize=32)
def kept_estimate(plan: KernelPlan, gpu: GpuSpec, conditions: Conditions = USUAL) -> Estimate:
    """Return the cached result of `models.estimate`: callers of `fastest_plan` often request it again."""
    return estimate_launch(launch_context(plan, gpu, conditions))


class _Near(NamedTuple):
    config: Any
    place: int
    """Index into `Product.plans(config)`."""
    plan: KernelPlan


def _near_plans(
    product: Product, most: int | None, allowed: Callable[[Any], bool] | None, options: dict[str, Any]
) -> list[_Near]:
    """Return the plans of all configs that fit on an SM and have nearly the shortest roofline time.

    `NEAR` and `NEAR_COARSE` define nearly; at most `most` configs are planned.
    """
    configs = [config for config in product.configs() if allowed is None or allowed(config)]
    seconds = product.roofline_seconds(configs)
    guessed = product.kernel.coarse_times or product.kernel.guessed_costs(product.gpu) > MOSTLY
    plans: list[_Near] = []
    tried, limit = 0, math.inf
    refused = f"{product.kernel.name}: no config of the kernel fits on an SM of {product.gpu.name}"
    for i in sorted(range(len(configs)), key=seconds.__getitem__):
        if seconds[i] > limit or tried == most:
            break
        try:
            made = product.plans(configs[i], **options)
        except PlanDoesNotFit as refusal:
            refused = str(refusal)
            continue
        plans += (_Near(configs[i], place, plan) for place, plan in enumerate(made))
        # The first config that fits has the best roofline time of those that do
        if not tried:
            coarse = most is None and (guessed or seconds[i] < SHORT_S)
            limit = (NEAR_COARSE if coarse else NEAR) * seconds[i]
        tried += 1
    if not plans:
        raise PlanDoesNotFit(refused)
    return plans
