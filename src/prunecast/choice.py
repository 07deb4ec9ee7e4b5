"""Choosing: the fastest config of a kernel by the closed-form model, of those near a roofline's best.

Floor: above `prunecast.models`, whose estimates decide, and below `prunecast.codesign`. Planners, in
`prunecast.kernels`, are given a config.

Configs are ranked before they are planned, by `prunecast.models.config_roofline`.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from prunecast.arguments import checked
from prunecast.errors import BadInput, check_choice
from prunecast.hardware import GpuSpec
from prunecast.kernels import DTYPE_BYTES, KERNELS, ConvGrid, Kernel, KernelPlan, PlanDoesNotFit, grid_plan
from prunecast.launch import COLD, CacheState
from prunecast.models import Estimate, estimate
from prunecast.models.config_roofline import roofline_seconds
from prunecast.patterns import ElementMap, NestedMap, TileMap, element_map_from_mask

PrunedMap = TileMap | ElementMap | NestedMap
"""What is kept of a pruned layer."""
NEAR = 1.12
"""Configs up to this many times the roofline's least are planned and estimated. The estimator's best of all
configs is 0.3 % faster in the mean over the recorded products of the tile kernels, 2 % over those of small-n
(2026-11-22)."""

NEAR_GUESSED = 1.6
"""`NEAR` of a kernel that splits tiles where its costs are guesses. Kind: choice, with less V100, T4, A100
lose up to 11 % on five uneven maps (closed form, 2026-11-23)."""

TIE = 1.025
"""Estimates up to this many times the least are a tie, which goes to a plan that works on nearly all SMs: the
model is 3 % too fast on five fit rows of 89 to 107 blocks of 128 x 256, whose free SMs are said to gain time.
Kind: chosen by regret on 67 recorded products, which therefore do not judge it (H200, 2026-11-22)."""
NEARLY_ALL = 0.95
"""Share of the SMs. Kind: chosen with `TIE`."""

MOSTLY = 0.5
"""Share of a kernel's costs that are guesses from which `NEAR_GUESSED` counts."""
SEARCHED = 2
"""Configs that loops over many products plan of each at most."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Product:
    """C (M, N) = (A * mask) (M, K) @ B (K, N) by one kernel.

    Parameters
    ----------
    kernel : its record
    kept : what its planner multiplies
    n, dtype, gpu : tokens, format, GPU
    inside : keyword `tiles` of planner and configs where elements lie inside tiles, else empty
    """

    kernel: Kernel
    kept: TileMap | ElementMap
    n: int
    dtype: str
    gpu: GpuSpec
    inside: dict[str, TileMap] = field(default_factory=dict)

    def configs(self) -> tuple[Any, ...]:
        """Configs that the kernel has for it. BadInput: the kernel cannot run the format, or on the GPU."""
        return tuple(self.kernel.configs(self.kept, self.n, self.dtype, self.gpu, **self.inside))

    def plan(self, *config: Any, **options: Any) -> KernelPlan:
        """The plan in a config of `configs`, or in the one config there is; options are the planner's."""
        return self.kernel.plan(self.kept, self.n, self.dtype, self.gpu, *config, **self.inside, **options)

    def plans(self, config: Any, **options: Any) -> list[KernelPlan]:
        """The plan in a config, and those with other splits along K where the planner was given none."""
        plan, others = self.plan(config, **options), self.kernel.other_plans
        return [plan] if others is None or options else [plan, *others(plan, config, self.gpu)]

    def roofline_seconds(self, config: Any) -> float:
        """Seconds by which configs are ranked; 0 where there is one config."""
        if self.kernel.times is None:
            return 0.0
        times = self.kernel.times(config, self.kept, self.n, self.dtype, self.gpu, **self.inside)
        other_bytes = float((self.kept.k + self.kept.m) * self.n * DTYPE_BYTES[self.dtype])
        return roofline_seconds(times, other_bytes, self.gpu)


def product_of(kernel: str, kept: PrunedMap, n: int, dtype: str, gpu: GpuSpec) -> Product:
    """The product of what is kept of A with `n` tokens by a kernel of `KERNELS`.

    Raises
    ------
    BadInput : the kernel cannot run this kind of map
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
    if record.takes is None or not isinstance(kept, record.takes):
        kinds = "no map" if record.takes is None else record.takes.__name__
        raise BadInput(f"{kernel} runs {kinds}, got {type(kept).__name__} of {kept.pattern}")
    return Product(kernel=record, kept=kept, n=n, dtype=dtype, gpu=gpu, inside=inside)


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
    **options: Any,
) -> KernelPlan:
    """The plan of `kernel` in the config that the closed-form model finds fastest; ties go to nearly all SMs.

    Parameters
    ----------
    kernel : a name of `KERNELS`
    kept : what is kept of A (M, K)
    n : tokens
    state : of the GPU, as in `prunecast.models.case`
    most : configs that are planned at most; None for all that the roofline finds near its best
    allowed : says of a config whether it may be chosen; None for all
    source : the convolution whose input is read in place of B; it has `n` columns
    options : further keywords of the kernel's planner

    Raises
    ------
    BadInput : the kernel cannot run this kind of map, the format or the GPU
    PlanDoesNotFit : no block fits on an SM
    """
    if most is not None and most < 1:
        raise BadInput(f"most must be at least 1, got {most}")
    product = product_of(kernel, kept, n, dtype, gpu)
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
    """What the choice of a config hangs on for 2:4 weights on sparse tensor cores: not on which two stay."""

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
"""Choices that are remembered."""
_chosen: dict[_AlikeOnSparseCores, tuple[Any, int]] = {}


def _fastest_of(plans: Sequence[KernelPlan], gpu: GpuSpec, state: str) -> int:
    """Place of the fastest plan; ties go to nearly all SMs."""
    if len(plans) == 1:
        return 0
    seconds = [kept_estimate(plan, gpu, state, "graph", COLD).seconds for plan in plans]
    tied = [i for i, each in enumerate(seconds) if each <= TIE * min(seconds)]
    return min(tied, key=lambda i: (plans[i].blocks < NEARLY_ALL * gpu.sm_count, seconds[i]))


@lru_cache(maxsize=32)
def kept_estimate(plan: KernelPlan, gpu: GpuSpec, state: str, launch: str, l2: CacheState) -> Estimate:
    """`models.estimate`, the last ones kept: who asks for the fastest plan asks for its time next."""
    return estimate(plan, gpu, state=state, launch=launch, l2=l2)


def configs_of(kernel: str, kept: PrunedMap, n: int, dtype: str, gpu: GpuSpec) -> tuple[Any, ...]:
    """All configs that `kernel` has for what is kept. Errors as `fastest_plan`."""
    return product_of(kernel, kept, n, dtype, gpu).configs()


def plan_with(
    config: Any, kernel: str, kept: PrunedMap, n: int, dtype: str, gpu: GpuSpec, **options: Any
) -> KernelPlan:
    """The plan of `kernel` in a config of `configs_of`. Errors as `fastest_plan`."""
    return product_of(kernel, kept, n, dtype, gpu).plan(config, **options)


def plans_with(
    config: Any, kernel: str, kept: PrunedMap, n: int, dtype: str, gpu: GpuSpec
) -> list[KernelPlan]:
    """The plan of `plan_with`, and the plan with heavy tiles split along K where that is another."""
    return product_of(kernel, kept, n, dtype, gpu).plans(config)


class _Near(NamedTuple):
    config: Any
    place: int
    """Index into `Product.plans(config)`."""
    plan: KernelPlan


def _near_plans(
    product: Product, most: int | None, allowed: Callable[[Any], bool] | None, options: dict[str, Any]
) -> list[_Near]:
    """Plans near the roofline's best, or of the best that fits."""
    configs = [config for config in product.configs() if allowed is None or allowed(config)]
    seconds = [product.roofline_seconds(config) for config in configs]
    order = sorted(range(len(configs)), key=seconds.__getitem__)
    guessed = product.kernel.splits and product.kernel.guessed_costs(product.gpu) > MOSTLY
    limit = NEAR_GUESSED if guessed and most is None else NEAR
    near = [configs[i] for i in order if seconds[i] <= limit * seconds[order[0]]][:most]
    plans = _that_fit(product, near, options)
    if plans:
        return plans
    for config in [configs[i] for i in order][len(near) :]:
        plans = _that_fit(product, [config], options)
        if plans:
            return plans
    raise PlanDoesNotFit(
        f"{product.kernel.name}: no config of the kernel fits on an SM of {product.gpu.name}"
    )


def _that_fit(product: Product, configs: Sequence[Any], options: dict[str, Any]) -> list[_Near]:
    plans: list[_Near] = []
    for config in configs:
        with contextlib.suppress(PlanDoesNotFit):
            made = product.plans(config, **options)
            plans += [_Near(config, place, plan) for place, plan in enumerate(made)]
    return plans
