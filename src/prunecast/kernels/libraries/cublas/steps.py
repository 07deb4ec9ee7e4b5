"""SM cycles of a k-step and of the epilogue of cuBLAS's kernels, which the library's choice goes by."""

from typing import NamedTuple

from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.libraries.cublas.configs import LibraryKernel, fma_per_clk
from prunecast.kernels.libraries.cublas.launches import cublas_costs
from prunecast.kernels.libraries.cublas.programs import operand_bytes
from prunecast.kernels.tile.config import TileConfig

__all__ = ["StepCycles", "step_cycles"]

LANES, VECTOR_WARP_BYTES = 32, 512


class StepCycles(NamedTuple):
    """SM cycles."""

    alone: float
    """From a k-step to the next of a CTA that has its SM to itself."""
    busy: float
    """Cycles in which the busiest of tensor pipes and shared memory serve one CTA's k-step."""
    epilogue: float
    """Around the k-steps: sums are converted and turned in shared memory."""


def step_cycles(kernel: LibraryKernel, gpu: GpuSpec) -> StepCycles:
    """Cycles of a k-step of a kernel with full tiles."""
    config, costs = kernel.config, cublas_costs(gpu.compute_capability)
    k16, warps = config.shape.block_k / 16, config.consumer_warps
    area, rate = config.shape.block_m * config.shape.block_n, gpu.shared_bytes_per_clk_per_sm
    tensor = area * config.shape.block_k / fma_per_clk(gpu, config.dtype, config.tensor)
    reads = k16 * warps * operand_bytes(config, gpu) / rate
    copied = k16 * config.share_bytes_per_k16
    writes = copied / rate
    if kernel.rules["heuristic_copy_cycles"]:
        writes = kernel.rules["heuristic_copy_cycles"] * copied / (LANES * kernel.rules["align_bytes"])
    busy = max(tensor, reads + writes)
    if config.tensor_path == "mma":
        busy += costs["step_barrier_cycles"]
    path = "wgmma" if config.tensor_path == "wgmma" else "mma"
    epilogue = costs[f"epilogue_cycles_per_pair_{path}"] * area / (2 * LANES * warps)
    epilogue += costs["item_instructions"] + 2 * gpu.shared_latency_cycles
    epilogue += 2 * area * config.element_bytes / rate
    return StepCycles(max(busy, _waits(config, tensor, gpu)), busy, epilogue)


def _waits(config: TileConfig, tensor: float, gpu: GpuSpec) -> float:
    """Cycles in which warps wait for their own products and operands, from one k-step to the next."""
    if config.tensor_path == "wgmma":
        # One k-step's products are under way beside the last ones
        own = tensor * config.warps_per_part / config.consumer_warps
        group = cublas_costs(gpu.compute_capability)["group_cycles"]
        return (gpu.warpgroup_latency_cycles + group + own) / 2
    warps, reads = config.consumer_warps, config.operand_bytes_per_warp_per_k16
    copied, rate = config.share_bytes_per_k16, gpu.shared_bytes_per_clk_per_sm
    abreast = -(-warps // gpu.sub_partitions_per_sm)
    issues = config.instructions_per_k16 + (reads + 2 * copied / warps) / VECTOR_WARP_BYTES + 3
    wait = gpu.shared_latency_cycles + warps * reads / rate
    if config.tensor_path == "registers":
        wait += gpu.shared_latency_cycles + copied / rate
    cycles = config.shape.block_k / 16 * (wait + abreast * issues) + gpu.sync_latency_cycles
    return max(cycles, tensor / abreast)
