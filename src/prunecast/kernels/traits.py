"""What each kernel knows of its launches, by name."""

from collections.abc import Callable

from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.balanced.launch import balanced_traits
from prunecast.kernels.launch_traits import LaunchTraits
from prunecast.kernels.libraries.cublas.launches import dense_traits
from prunecast.kernels.libraries.cusparse.planner import csr_traits
from prunecast.kernels.small_n.launch import small_n_traits
from prunecast.plan.kernel_plan import KernelPlan

__all__ = ["traits_of"]

_TRAITS: dict[str, Callable[[KernelPlan, GpuSpec], LaunchTraits]] = {
    "small-n": small_n_traits,
    "balanced": balanced_traits,
    "dense": dense_traits,
    "csr": csr_traits,
}


def traits_of(plan: KernelPlan, gpu: GpuSpec) -> LaunchTraits:
    """Traits of a plan's kernel; those of kernels that need none are all the same."""
    traits = _TRAITS.get(plan.kernel)
    return traits(plan, gpu) if traits else LaunchTraits()
