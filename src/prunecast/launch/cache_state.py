"""What of A, B and C lies in L2 when a launch begins.

cold   operands were last used so long ago that L2 has lost them, as in the recorded suites
model  B has just been written by the layer before; weights are cold unless those of the whole model fit in L2
warm   the same product over and over, on the same operands

Activations use the same memory again and again: C that fits is overwritten before it leaves L2. What is
somewhat larger than the room of L2 is kept in part, since it does not evict strictly by age.
"""

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from prunecast.errors import check_choice
from prunecast.hardware.costs import load_costs
from prunecast.hardware.spec import GpuSpec
from prunecast.plan.kernel_plan import DTYPE_BYTES, KernelPlan

L2_STATES = ("cold", "model", "warm")
GRAIN = 64
"""Parts of 1 to which shares are rounded, so that a GPU with warm operands is found again. Kind: choice, fine
enough."""


class CacheState(NamedTuple):
    """State of L2 when launches of a plan begin."""

    name: str = "cold"
    """One of `L2_STATES`."""
    weight_bytes: float = float("inf")
    """Weights of the whole model, of which each launch uses its own; `model` alone asks for it."""


COLD = CacheState()


class _Found(NamedTuple):
    """Shares that lie in L2."""

    read: float
    """Share of the bytes of A and B."""
    written: float
    """Share of C, which the next launch writes again before it has left L2."""


def gpu_as_found(plan: KernelPlan, gpu: GpuSpec, l2: CacheState) -> GpuSpec:
    """The GPU as a launch finds it: DRAM has only those reads and writes to serve that L2 does not."""
    check_choice("l2", l2.name, L2_STATES)
    if l2.name == "cold":
        return gpu
    found = _found(plan, gpu, l2)
    return _with_l2(gpu, round(GRAIN * found.read), round(GRAIN * found.written))


def _found(plan: KernelPlan, gpu: GpuSpec, l2: CacheState) -> _Found:
    element = DTYPE_BYTES[plan.dtype]
    a, b, c = plan.density * plan.m * plan.k * element, plan.k * plan.n * element, plan.m * plan.n * element
    if l2.name == "warm":
        share = _kept(a + b + c, gpu)
        return _Found(share, share)
    of_a, of_b = _kept(max(l2.weight_bytes, a), gpu), _kept(b, gpu)
    return _Found((of_a * a + of_b * b) / max(a + b, 1.0), _kept(b + c, gpu))


def _kept(size: float, gpu: GpuSpec) -> float:
    """Share of what is used in turn that L2 still has."""
    costs = load_costs("prunecast.launch", gpu.compute_capability)
    all_kept, none_kept = costs["l2_all_kept_ratio"], costs["l2_none_kept_ratio"]
    return min(max((none_kept - size / gpu.l2_usable_bytes) / (none_kept - all_kept), 0.0), 1.0)


@lru_cache(maxsize=1024)
def _with_l2(gpu: GpuSpec, read: int, written: int) -> GpuSpec:
    """The same GPU object for the same shares, of `GRAIN`."""
    missed, stored = 1.0 - read / GRAIN, 1.0 - written / GRAIN
    beyond = gpu.dram_latency_cycles - gpu.l2_latency_cycles
    return replace(
        gpu,
        dram_bytes_per_s=min(gpu.dram_bytes_per_s / max(missed, 1e-3), gpu.l2_bytes_per_s),
        dram_write_bytes_per_s=min(gpu.dram_write_bytes_per_s / max(stored, 1e-3), gpu.l2_store_bytes_per_s),
        dram_latency_cycles=gpu.l2_latency_cycles + (round(missed * beyond) if read == GRAIN else beyond),
    )
