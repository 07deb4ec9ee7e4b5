"""A made-up GPU with four SMs and round numbers, for tests that reckon by hand."""

import hashlib
from typing import Any

from prunecast.hardware.spec import GpuSpec, QuantitySource, quantity_units

__all__ = ["toy_gpu"]

KIB = 1024

# What an SM of each compute capability holds, and what its tensor cores cannot do; the CUDA programming
# guide's table of technical specifications. Everything else is round on purpose.
_SM_LIMITS: dict[int, dict[str, Any]] = {
    70: {"warps_per_sm": 64, "shared_bytes_per_sm": 96 * KIB, "shared_bytes_per_block": 96 * KIB},
    75: {"warps_per_sm": 32, "shared_bytes_per_sm": 64 * KIB, "shared_bytes_per_block": 64 * KIB},
    80: {"warps_per_sm": 64, "shared_bytes_per_sm": 164 * KIB, "shared_bytes_per_block": 163 * KIB},
    86: {"warps_per_sm": 48, "shared_bytes_per_sm": 100 * KIB, "shared_bytes_per_block": 99 * KIB},
    89: {"warps_per_sm": 48, "shared_bytes_per_sm": 100 * KIB, "shared_bytes_per_block": 99 * KIB},
    90: {"warps_per_sm": 64, "shared_bytes_per_sm": 228 * KIB, "shared_bytes_per_block": 227 * KIB},
    100: {"warps_per_sm": 64, "shared_bytes_per_sm": 228 * KIB, "shared_bytes_per_block": 227 * KIB},
    120: {"warps_per_sm": 48, "shared_bytes_per_sm": 100 * KIB, "shared_bytes_per_block": 99 * KIB},
}
_BEFORE_80 = {
    "tensor_bf16_fma_per_clk_per_sm": 0,
    "tensor_tf32_fma_per_clk_per_sm": 0,
    "tensor_fp8_fma_per_clk_per_sm": 0,
    "sparse_tensor_factor": 0.0,
    "shared_reserved_bytes_per_block": 0,
    "shared_allocation_bytes": 256,
}

_VALUES: dict[str, Any] = {
    "sm_count": 4,
    "sub_partitions_per_sm": 4,
    "max_clock_hz": 1e9,
    "power_limit_w": 100.0,
    "blocks_per_sm": 16,
    "threads_per_block": 1024,
    "registers_per_sm": 65536,
    "registers_per_thread": 255,
    "register_allocation_per_warp": 256,
    "shared_reserved_bytes_per_block": 1024,
    "shared_allocation_bytes": 128,
    "tensor_fp16_fma_per_clk_per_sm": 1024,
    "tensor_bf16_fma_per_clk_per_sm": 1024,
    "tensor_tf32_fma_per_clk_per_sm": 512,
    "tensor_fp8_fma_per_clk_per_sm": 2048,
    "tensor_int8_fma_per_clk_per_sm": 2048,
    "fp32_fma_per_clk_per_sm": 128,
    "mma_sync_share": 1.0,
    "sparse_tensor_factor": 2.0,
    "tensor_latency_cycles": 30,
    "warpgroup_latency_cycles": 30,
    "shared_bytes_per_clk_per_sm": 128,
    "shared_latency_cycles": 30,
    "l1_latency_cycles": 40,
    "l2_port_bytes_per_clk_per_sm": 64.0,
    "gather_bytes_per_clk_per_sm": 1024.0,
    "gather_latency_cycles": 200,
    "store_bytes_per_clk_per_sm": 64.0,
    "l2_bytes": 8 * KIB * KIB,
    "l2_usable_bytes": 4 * KIB * KIB,
    "l2_bytes_per_s": 200e9,
    "l2_store_bytes_per_s": 200e9,
    "l2_store_read_share": 1.0,
    "store_latency_cycles": 100,
    "l2_latency_cycles": 200,
    "l2_line_cycles": 9,
    "l2_same_row_bytes": (16.0, 32.0, 48.0, 64.0, 96.0, 128.0),
    "l2_same_row_cycles": (22.0, 22.0, 43.0, 14.0, 20.0, 8.0),
    "l2_second_line_share": 0.25,
    "l2_split_sector_read_factor": 2.75,
    "l2_split_sector_store_factor": 3.0,
    "l2_split_sector_fetched_share": 0.75,
    "dram_bytes": KIB * KIB * KIB,
    "dram_peak_bytes_per_s": 120e9,
    "dram_bytes_per_s": 100e9,
    "link_bytes_per_s": 0.0,
    "dram_write_bytes_per_s": 100e9,
    "dram_copy_bytes_per_s": 100e9,
    "dram_latency_cycles": 500,
    "dram_queue_bytes": 2.5e6,
    "barrier_latency_cycles": 20,
    "sync_latency_cycles": 20,
    "signal_latency_cycles": 200,
    "block_start_cycles": 500,
    "block_interval_s": 0.61e-9,
    "stream_launch_s": 2e-6,
    "graph_launch_s": 1e-6,
    "overlapped_launch_s": 1e-6,
    "slow_sm_cycles": 110.0,
    "clock_activity": (0.0, 1.0),
    "clock_burst_hz": (1e9, 1e9),
    "clock_sustained_hz": (1e9, 1e9),
    "clock_activity_per_l2_byte_per_clk": 0.0,
    "clock_activity_per_dram_byte_per_clk": 0.0,
    "clock_bf16_duty": 1.0,
    "clock_in_step_l2": 1.0,
    "clock_follow_s": 1e-4,
}


def toy_gpu(**overrides: Any) -> GpuSpec:
    """A GPU of compute capability 90 unless told; any field can be given."""
    capability = overrides.get("compute_capability", 90)
    values: dict[str, Any] = {"name": "toy", "title": "Toy GPU", "compute_capability": capability, **_VALUES}
    values.update(_SM_LIMITS[capability])
    if capability < 80:
        values.update(_BEFORE_80)
    if capability >= 90:
        values["mma_sync_share"] = 0.5
    values.update(overrides)
    provenance = {
        name: QuantitySource(unit, "guess", "made up for tests") for name, unit in quantity_units().items()
    }
    fingerprint = hashlib.sha256(repr(sorted(values.items())).encode()).hexdigest()[:16]
    return GpuSpec(**{"provenance": provenance, "fingerprint": fingerprint, **values})
