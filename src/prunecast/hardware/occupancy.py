"""Occupancy: the number of thread blocks that an SM holds at once, and the resource that limits it."""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from prunecast.errors import BadInput
from prunecast.hardware.spec import GpuSpec


class BlockResources(NamedTuple):
    """Resources that one thread block occupies on an SM."""

    threads: int
    registers_per_thread: int
    """Registers per thread that the compiler reports: those that a thread has when the kernel starts."""
    shared_bytes: int
    """Static and dynamic shared memory, without the bytes reserved by the system."""
    stages: int = 0
    """Number of pipeline stages in shared memory; 0 if the kernel has no pipeline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """Blocks and warps resident on one SM.

    Parameters
    ----------
    blocks_per_sm : resident blocks; 0 if not a single block fits
    limiter : resource that prevents one more block: `warps`, `blocks`, `registers` or `shared memory`; the
        first of these on a tie
    limits : resource -> blocks per SM if it were the only limit
    warps_per_sm : resident warps
    share : resident warps divided by the maximum of the SM, 0 to 1
    """

    blocks_per_sm: int
    limiter: str
    limits: dict[str, int]
    warps_per_sm: int
    share: float


@lru_cache(maxsize=1024)
def occupancy(resources: BlockResources, gpu: GpuSpec) -> Occupancy:
    """Return the number of blocks that fit on one SM, and the limiting resource.

    Registers are allocated per warp in units of `register_allocation_per_warp`; the number of warps that fit
    is rounded down to a multiple of the sub-partitions. Shared memory is allocated in units of
    `shared_allocation_bytes` after adding the reserved bytes. Source: the rules of the CUDA occupancy
    calculator. A block that exceeds a per-block limit (threads, registers per thread, shared memory) gets 0
    blocks, not an error.

    Raises
    ------
    BadInput : the block has no thread, or a negative number of registers or bytes
    """
    if resources.threads < 1 or resources.registers_per_thread < 0 or resources.shared_bytes < 0:
        raise BadInput(f"a block needs at least 1 thread and no negative resource, got {resources}")
    warps = -(-resources.threads // 32)
    limits = {
        "warps": gpu.warps_per_sm // warps,
        "blocks": gpu.blocks_per_sm,
        "registers": _blocks_by_registers(resources, warps, gpu),
        "shared memory": _blocks_by_shared(resources, gpu),
    }
    if resources.threads > gpu.threads_per_block:
        limits["warps"] = 0
    limiter = min(limits, key=lambda name: limits[name])
    blocks = limits[limiter]
    return Occupancy(
        blocks_per_sm=blocks,
        limiter=limiter,
        limits=limits,
        warps_per_sm=blocks * warps,
        share=blocks * warps / gpu.warps_per_sm,
    )


def _blocks_by_registers(resources: BlockResources, warps: int, gpu: GpuSpec) -> int:
    """Return how many blocks of `warps` warps the registers of an SM allow; 0 if a thread needs too many.

    Registers are allocated per warp in units of `register_allocation_per_warp`, and the warps of an SM are
    spread evenly over its sub-partitions, each of which has its own registers (CUDA occupancy calculator).
    """
    if resources.registers_per_thread > gpu.registers_per_thread:
        return 0
    if resources.registers_per_thread == 0:
        return gpu.blocks_per_sm
    per_warp = _round_up(32 * resources.registers_per_thread, gpu.register_allocation_per_warp)
    partitions = gpu.sub_partitions_per_sm
    warps_that_fit = gpu.registers_per_sm // per_warp // partitions * partitions
    return warps_that_fit // warps


def _blocks_by_shared(resources: BlockResources, gpu: GpuSpec) -> int:
    if resources.shared_bytes > gpu.shared_bytes_per_block:
        return 0
    per_block = _round_up(
        resources.shared_bytes + gpu.shared_reserved_bytes_per_block, gpu.shared_allocation_bytes
    )
    return gpu.shared_bytes_per_sm // per_block if per_block else gpu.blocks_per_sm


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
