"""What a k-step of a config costs at least, level by level, for choosing between configs."""

from typing import NamedTuple

from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.tile.config import TileConfig
from prunecast.plan.tensor_rate import tensor_fma_per_clk

__all__ = ["StepCost", "fix_up_cycles", "pace_of_warps", "step_cost", "transfer_cycles"]


class StepCost(NamedTuple):
    """SM cycles of one full k-step of one block that has its SM to itself, by level."""

    tensor: float
    shared: float
    l2_port: float
    l2: float
    """The chip's L2, shared evenly by the SMs at work."""

    @property
    def cycles(self) -> float:
        """The level that takes longest; the others hide behind it."""
        return max(self)


def step_cost(
    config: TileConfig, n: int, gpu: GpuSpec, *, multicast: int = 1, busy_sms: int | None = None
) -> StepCost:
    """Cost of a full k-step with `n` tokens in all.

    Parameters
    ----------
    multicast : blocks that share one read of the tokens
    busy_sms : SMs that read at the same time; None for all
    """
    k16 = config.shape.block_k / 16
    warps = config.consumer_warps
    rate = tensor_fma_per_clk(gpu, config.dtype, config.tensor)
    weights = config.weight_bytes_per_k16 * k16
    tokens = min(config.shape.block_n, n) * 16 * config.element_bytes * k16 / config.pair
    operands = config.operand_bytes_per_warp_per_k16 * warps * k16
    reads = weights + tokens / multicast
    # The L2 keeps its pace when tensor work slows the SMs' clock
    l2_rate = gpu.l2_bytes_per_s / gpu.clock_burst_hz[-1] / (busy_sms or gpu.sm_count)
    return StepCost(
        tensor=config.fma_per_warp_per_k16 * warps * k16 / rate,
        shared=(operands + weights + tokens) / gpu.shared_bytes_per_clk_per_sm,
        l2_port=reads / gpu.l2_port_bytes_per_clk_per_sm,
        l2=reads / l2_rate,
    )


FIX_UP_OVER_TRANSFER = 4
"""Writing, or reading and adding, a part's sums takes this many times the bare transfer: waits for the L2
that nothing hides. Own measurements, H200: 32 plans against the same form uncut differ by 100 cycles more
than they should in the mean, 4,700 rms; with 3 by 1,800 less and 3,900, with 6 by 4,400 more and 9,700
(`benchmarks/measured/h200-sxm-tile-kernel-2026-11-21-cuts.csv`)."""


def transfer_cycles(config: TileConfig, gpu: GpuSpec) -> float:
    """SM cycles in which the fp32 sums of one part of a full tile pass the L2 port, one way."""
    size = config.shape.block_m * config.shape.block_n * 4
    return size / gpu.l2_port_bytes_per_clk_per_sm + gpu.l2_latency_cycles


def fix_up_cycles(config: TileConfig, gpu: GpuSpec) -> float:
    """SM cycles to write, or to read and add, the sums of one part of a full tile in the tile kernel."""
    return FIX_UP_OVER_TRANSFER * transfer_cycles(config, gpu)


def pace_of_warps(config: TileConfig, tensor: float, gpu: GpuSpec) -> float:
    """SM cycles per k-step of warps that copy and multiply, some to a scheduler and kept abreast.

    Parameters
    ----------
    tensor : cycles of the tensor pipes in a k-step
    """
    groups, warps = config.shape.block_k / 16, config.consumer_warps
    abreast = -(-warps // gpu.sub_partitions_per_sm)
    operands, copied = config.operand_bytes_per_warp_per_k16, config.share_bytes_per_k16
    issues = config.instructions_per_k16 + (operands + 2 * copied / warps) / 512 + 3
    wait = gpu.shared_latency_cycles + warps * operands / gpu.shared_bytes_per_clk_per_sm
    if config.tensor_path == "registers":
        wait += gpu.shared_latency_cycles + copied / gpu.shared_bytes_per_clk_per_sm
    pace = groups * (wait + abreast * issues) + gpu.sync_latency_cycles
    return max(pace, tensor / abreast)
