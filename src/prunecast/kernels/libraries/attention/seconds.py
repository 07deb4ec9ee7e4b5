"""Time of one call of attention from its work: SMs, memory, cache write and launches.

    step  = g (c1 + rows keys (a 2 width / FMA rate + b / exponential rate) + l (bytes of keys / port rate)),
            g: factor if the number of keys is ragged, so that keys do not fill a tile or mask rows are
            misaligned
    tile  = c0 + c0r (used rows / rows) (width / 64)
    SMs   = ((w (tile + mean step) + u (longest - mean) step)^6 + (lone (tile + longest step))^6)^(1/6),
            w = h + `tail` (ceil(h) - h) with h CTAs per SM, since the last wave is partly empty;
            mean and longest: pipeline steps of the mean and the longest CTA;
            u: cost of unequal CTAs if the longest ones do not start first
    core  = (SMs^2 + memory^2)^(1/2)
    time  = launches + core + cache write + addition of partial sums

Products and exponentials of a tile do not overlap fully, hence the two factors a and b. Bytes that fit in L2
are read at the L2 rate, other bytes at the DRAM rate. All quantities of the GPU come from its spec. The
constants (a, b, c0, c0r, c1, g, l, lone, `tail`, u) are in `tables/attention_costs.csv`. They were fitted on
one GPU and apply to the same kernel on other GPUs.
"""

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from prunecast.hardware.clock import sm_clock_hz
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.libraries.attention.work import ELEMENT_BYTES, CallWork, rows_of

EXPONENTIALS_PER_CLK_PER_SM = 16
"""Exponentials that an SM computes per cycle. Kind: datasheet, CUDA C++ Programming Guide, throughput of
arithmetic instructions, 7.5 to 12.0."""
EXPONENTIALS_OF_BLACKWELL_ULTRA = 32
"""Exponentials that an SM of compute capability 10.3 computes per cycle. Kind: datasheet, NVIDIA Blackwell
Ultra, twice the exponentials of Blackwell."""
WIDTH_UNIT = 64
"""Head width to which the cost `tile_row_clk` refers. Kind: definition, formula of a tile."""
SHARP, SOFT = 6.0, 2.0
"""Exponents e of `_combined`: SHARP combines the time of the mean CTA with that of the longest one, SOFT the
time of the SMs with that of the memory. Kind: choice, shape of the transition between two bounds."""
Value = Any
"""A number, or an array with one entry for each call."""
Costs = Mapping[str, float]


class Parts(NamedTuple):
    """Seconds of each part of a call, or arrays with one entry per call. The parts add up to the time."""

    launch: Value
    """Seconds of the launches of all kernels of a call: cache write, schedule, attention."""
    replay: Value
    """Seconds to replay a CUDA graph with only this call, as in published tables; 0 inside of a model."""
    sms: Value
    """Part of `core` (the overlapping work of SMs and memory, see the module's formula) that is attributed to
    the SMs."""
    memory: Value
    """Part of `core` that is attributed to reads of queries, keys and values and to writes of outputs."""
    cache_write: Value
    """Seconds to write new keys and values into the cache."""
    partial_sums: Value
    """Seconds of the kernel that adds the partial sums if keys are split among CTAs."""

    @property
    def seconds(self) -> Value:
        """Sum of the parts: the time of the call in seconds."""
        return sum(self)


@lru_cache(maxsize=64)
def costs_of(kernel: str, phase: str, compute_capability: int) -> Costs:
    """Return the fitted numbers of a kernel for a phase: column name -> value.

    They are from the row of `tables/attention_costs.csv` that `work.rows_of` selects.
    """
    (row,) = rows_of("attention_costs", kernel, phase, compute_capability)
    numbers = {name: float(row[name]) for name in COSTS}
    return MappingProxyType({**numbers, "is_mma": float(row["instruction"] == "mma")})


COSTS = (
    *("launches", "start_s", "replay_s", "tile_clk", "tile_row_clk", "step_clk", "load_ratio"),
    *(
        "product_ratio",
        "exponential_ratio",
        "tail_ratio",
        "unequal_ratio",
        "lone_ratio",
        "ragged_ratio",
        "dram_ratio",
        "l2_ratio",
    ),
    *("write_dram_ratio", "write_l2_ratio", "combine_s"),
)
"""Columns of `tables/attention_costs.csv` that hold numbers; the names end with the units."""


def parts_of(
    work: CallWork,
    costs: Costs,
    gpu: GpuSpec,
    clock_hz: Value,
    *,
    cold: Value = False,
    replayed: bool = False,
    writes_cache: bool = True,
) -> Parts:
    """Return the seconds of each part of a call, or of many calls.

    Parameters
    ----------
    work : counts of the call
    costs : result of `costs_of`
    clock_hz : SM clock, see `attention_clock_hz`
    cold : True if keys and values of earlier tokens are in DRAM, as in a model whose layers all have a cache
    replayed : True if each call is its own CUDA graph, as in published tables
    writes_cache : True if the call writes new keys and values into the cache
    """
    sms_s = sm_cycles(work, costs, gpu) / clock_hz
    memory_s = _memory_seconds(work, costs, gpu, cold)
    core_s = _combined(SOFT, sms_s, memory_s)
    of_sms = sms_s**SOFT / (sms_s**SOFT + memory_s**SOFT)
    copied = 2.0 * np.asarray(work.new_key_bytes) * writes_cache
    write_s = np.where(
        copied > gpu.l2_usable_bytes,
        costs["write_dram_ratio"] * copied / gpu.dram_bytes_per_s,
        costs["write_l2_ratio"] * copied / gpu.l2_bytes_per_s,
    )
    is_split = np.where(np.asarray(work.splits) > 1, 1.0, 0.0)
    return Parts(
        launch=costs["launches"] * gpu.graph_launch_s + costs["start_s"] + 0.0 * core_s,
        replay=(costs["replay_s"] if replayed else 0.0) + 0.0 * core_s,
        sms=of_sms * core_s,
        memory=(1.0 - of_sms) * core_s,
        cache_write=write_s,
        partial_sums=is_split * costs["combine_s"] + work.partial_bytes / gpu.l2_bytes_per_s,
    )


def sm_cycles(work: CallWork, costs: Costs, gpu: GpuSpec) -> Value:
    """Return the cycles from the start of the kernel until the last SM ends, if memory is not the limit."""
    step = step_cycles(work, costs, gpu)
    tile = costs["tile_clk"] + costs["tile_row_clk"] * work.rows / work.tile_rows * work.width / WIDTH_UNIT
    waves = work.ctas / gpu.sm_count
    waves = waves + costs["tail_ratio"] * (np.ceil(waves) - waves)
    mean = work.steps / work.ctas
    unequal = costs["unequal_ratio"] * np.maximum(work.longest - mean, 0.0) * step
    lone = costs["lone_ratio"] * (tile + work.longest * step)
    return _combined(SHARP, waves * (tile + mean * step) + unequal, lone)


def step_cycles(work: CallWork, costs: Costs, gpu: GpuSpec) -> Value:
    """Return the cycles of one pipeline step of a CTA, which processes one tile of keys."""
    products = 2.0 * work.width / product_rate(gpu, costs)
    scores = costs["product_ratio"] * products + costs["exponential_ratio"] / exponential_rate(gpu)
    loaded = 2.0 * work.tile_keys * work.width * ELEMENT_BYTES / gpu.l2_port_bytes_per_clk_per_sm
    whole = costs["step_clk"] + work.tile_rows * work.tile_keys * scores + costs["load_ratio"] * loaded
    return whole * np.where(np.asarray(work.ragged) > 0.0, costs["ragged_ratio"], 1.0)


def product_rate(gpu: GpuSpec, costs: Costs) -> float:
    """Return the FMAs per cycle and SM of the kernel's products.

    This is the rate of the kernel's half-precision tensor instruction, or the fp32 rate on GPUs without
    tensor cores.
    """
    rates = (gpu.tensor_bf16_fma_per_clk_per_sm, gpu.tensor_fp16_fma_per_clk_per_sm)
    tensor = next((rate for rate in rates if rate), 0)
    share = gpu.mma_sync_share if costs["is_mma"] else 1.0
    return share * tensor or gpu.fp32_fma_per_clk_per_sm


def exponential_rate(gpu: GpuSpec) -> int:
    """Return the number of exponentials that an SM computes per cycle."""
    ultra = gpu.compute_capability == 103
    return EXPONENTIALS_OF_BLACKWELL_ULTRA if ultra else EXPONENTIALS_PER_CLK_PER_SM


@lru_cache(maxsize=1024)
def attention_clock_hz(width: int, gpu: GpuSpec, state: str) -> float:
    """Return the SM clock in Hz during attention with a head width, in the state `burst` or `sustained`."""
    tensor = gpu.tensor_bf16_fma_per_clk_per_sm or gpu.tensor_fp16_fma_per_clk_per_sm
    products = 2.0 * width / tensor if tensor else 0.0
    duty = products / (products + 1.0 / exponential_rate(gpu))
    return sm_clock_hz(gpu, tensor_duty=duty, l2_bytes_per_clk_per_sm=0.0, state=state, dtype="bf16")


def dram_bytes(work: CallWork, gpu: GpuSpec, cold: Value) -> Value:
    """Return the bytes that are moved to or from DRAM.

    If operands and outputs together exceed the usable L2, all bytes of operands and outputs are moved.
    Otherwise only the cached keys and values are, if they are `cold` (not in L2).
    """
    everything = np.asarray(work.query_bytes + work.key_bytes)
    from_cache = np.where(cold, work.cached_key_bytes, 0.0)
    return np.where(everything > gpu.l2_usable_bytes, everything, from_cache)


def _memory_seconds(work: CallWork, costs: Costs, gpu: GpuSpec, cold: Value) -> Value:
    in_dram = dram_bytes(work, gpu, cold)
    in_l2 = work.query_bytes + work.key_bytes - in_dram
    return (
        costs["dram_ratio"] * in_dram / gpu.dram_bytes_per_s + costs["l2_ratio"] * in_l2 / gpu.l2_bytes_per_s
    )


def _combined(exponent: float, first: Value, second: Value) -> Value:
    """Return (first^e + second^e)^(1/e) of two lower bounds of a time, with the exponent e."""
    most = np.maximum(np.maximum(first, second), 1e-30)
    return most * ((first / most) ** exponent + (second / most) ** exponent) ** (1.0 / exponent)
