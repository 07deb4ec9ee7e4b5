"""The fastest config of a kernel by the closed-form model, of those that a roofline finds near the best."""

import contextlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from prunecast.choice.product import Product, PrunedMap, product_of
from prunecast.hardware import GpuSpec
from prunecast.kernels import ConvGrid, KernelPlan, PlanDoesNotFit, grid_plan
from prunecast.launch import COLD, CacheState
from prunecast.models import Estimate, estimate

NEAR = 1.12
"""Configs up to this many times the roofline's least are planned and estimated. The estimator's best of all
configs is 0.3 % faster in the mean over the recorded products of the tile kernels, 2 % over those of small-n
(2026-11-22)."""

TIE = 1.025
"""Estimates up to this many times the least are a tie, which goes to a plan that works on nearly all SMs: the
model is 3 % too fast on five fit rows of 89 to 107 blocks of 128 x 256, whose free SMs are said to gain time.
Kind: chosen by regret on 67 recorded products, which therefore do not judge it (H200, 2026-11-22)."""
NEARLY_ALL = 0.95
"""Share of the SMs. Kind: chosen with `TIE`."""

SEARCHED = 2
"""Configs that loops over many products plan of each at most."""


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
    product = product_of(kernel, kept, n, dtype, gpu)
    if product.kernel.times is None:
        return product.plan(**options)
    plans = _near_plans(product, most, allowed, options)
    if source is not None:
        plans = [grid_plan(plan, source, gpu) for plan in plans]
    if len(plans) == 1:
        return plans[0]
    seconds = [kept_estimate(plan, gpu, state, "graph", COLD).seconds for plan in plans]
    tied = [i for i, each in enumerate(seconds) if each <= TIE * min(seconds)]
    return plans[min(tied, key=lambda i: (plans[i].blocks < NEARLY_ALL * gpu.sm_count, seconds[i]))]


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


def _near_plans(
    product: Product, most: int | None, allowed: Callable[[Any], bool] | None, options: dict[str, Any]
) -> list[KernelPlan]:
    """Plans near the roofline's best, or of the best that fits."""
    configs = [config for config in product.configs() if allowed is None or allowed(config)]
    seconds = [product.roofline_seconds(config) for config in configs]
    order = sorted(range(len(configs)), key=seconds.__getitem__)
    near = [configs[i] for i in order if seconds[i] <= NEAR * seconds[order[0]]][:most]
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


def _that_fit(product: Product, configs: Sequence[Any], options: dict[str, Any]) -> list[KernelPlan]:
    plans = []
    for config in configs:
        with contextlib.suppress(PlanDoesNotFit):
            plans.append(product.plan(config, **options))
    return plans
