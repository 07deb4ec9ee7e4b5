"""The record of `balanced`."""

from prunecast.kernels.balanced.launch import balanced_traits
from prunecast.kernels.balanced.planner import balanced_configs, balanced_times, plan_balanced
from prunecast.kernels.kernel import Entry, Kernel, Sources
from prunecast.patterns.element_map import ElementMap

__all__ = ["BALANCED"]

BALANCED = Kernel(
    name="balanced",
    meaning="the same number of kept weights in every segment of a row",
    takes=ElementMap,
    natural_pattern="balanced:64",
    families=("balanced",),
    on_request=True,
    costs="prunecast.kernels.balanced",
    plan=plan_balanced,
    configs=balanced_configs,
    times=balanced_times,
    compilers={"none": Entry("prunecast.kernels.balanced.cuda.operator", "BalancedOperator")},
    sources=Sources("balanced", ("device", "balanced/cuda")),
    unaligned_tokens=1,
    traits=balanced_traits,
)
