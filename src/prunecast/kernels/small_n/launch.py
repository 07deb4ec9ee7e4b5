"""Launches of `small-n`: blocks so small that those of the next launch find room beside this one's (PDL)."""

from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.launch_traits import LaunchTraits
from prunecast.kernels.small_n.configs import config_of_shape
from prunecast.kernels.small_n.programs import with_early_blocks
from prunecast.kernels.small_n.registers import compiled_resources
from prunecast.plan.kernel_plan import KernelPlan

__all__ = ["small_n_traits"]

STEP_CYCLES = 800
"""Cycles of a warp for a k16, whatever it multiplies: its rows of B are asked for, come and are read.
Fitted to 390 times of configs on an H200 with 1, 16 and 64 tokens (2026-11-21)."""


def small_n_traits(plan: KernelPlan, gpu: GpuSpec) -> LaunchTraits:
    """Registers as compiled, and prologues that ask for weights before the preceding launch has ended."""
    config = config_of_shape(plan.shape, plan.resources)
    return LaunchTraits(
        co_resident=True,
        registers_per_thread=compiled_resources(config, plan.n, gpu).registers_per_thread,
        cycles_per_column=STEP_CYCLES / (16 * config.warps),
        prologue=lambda share: with_early_blocks(plan, config, share),
    )
