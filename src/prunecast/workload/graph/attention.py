"""`Attention`: fused attention as a launch, and the work that it is on a GPU.

A score needs `4 head_width` operations of the tensor cores and one exponential, and neither hides the other.
What a kernel adds (keys in whose time a tile of queries starts and ends, its share of that rate) is data of
the runtime that calls it.
"""

from typing import NamedTuple

from prunecast.hardware import GpuSpec, sm_clock_hz

EXPONENTIALS_PER_CLK_PER_SM = 16
"""CUDA C++ Programming Guide, throughput of native arithmetic instructions: 7.5 to 9.0 alike."""
TILE_KEYS = 128
"""Queries and keys of a tile of cuDNN's attention, which multiplies whole ones. Kind: fitted, with the costs
of attention."""


class Attention(NamedTuple):
    """Scores, softmax and weighted sum of a batch of sequences, by one kernel."""

    sequences: int
    queries: int
    """New tokens of each sequence."""
    keys: int
    """Tokens of each sequence whose keys and values are there at the end of the pass."""
    width: int
    """Features of the queries of all heads."""
    head_width: int
    is_causal: bool
    window: int = 0
    """Tokens before a token that it attends to; 0 for all."""

    @property
    def flops(self) -> float:
        """Operations of both products."""
        cached = self.keys - self.queries
        keys = mean_keys(cached, self.queries, self.window) if self.is_causal else self.keys
        return 4.0 * self.sequences * self.queries * keys * self.width

    @property
    def flops_of_tiles(self) -> float:
        """Operations with whole tiles of queries and keys, half a tile of keys more under a causal mask."""
        cached, tokens = self.keys - self.queries, self.queries
        whole = -(-tokens // TILE_KEYS) * TILE_KEYS
        keys = float(whole)
        if self.is_causal:
            keys = mean_keys(cached, tokens, 0) + 0.5 * min(TILE_KEYS, tokens)
        return 4.0 * self.sequences * (tokens if cached else whole) * keys * self.width


def mean_keys(cached: int, tokens: int, window: int) -> float:
    """Keys that a new token attends to under a causal mask, on average: those before it, `window` at most."""
    last = cached + tokens
    full = min(max(window or last, cached), last)
    before = (full**2 - cached**2) / 2.0 if full > cached else 0.0
    return (before + (window or last) * (last - full)) / tokens


class AttentionWork(NamedTuple):
    """Seconds of attention at the whole tensor rate."""

    multiplying: float
    """Products and exponentials."""
    per_key: float
    """Seconds for each of the keys in whose time a tile of queries starts and ends."""


def attention_work(
    flops: float, elements_out: int, head_width: int, gpu: GpuSpec, *, duty: float | None = None
) -> AttentionWork:
    """Return the work of attention.

    Parameters
    ----------
    flops : of both products
    elements_out : numbers that it writes, queries times features
    duty : tensor duty that sets the clock; None for the share of time that the products need
    """
    per_clk = 2.0 * gpu.tensor_fp16_fma_per_clk_per_sm
    exponentials = per_clk / (4.0 * head_width * EXPONENTIALS_PER_CLK_PER_SM)
    per_flop_s = 1.0 / tensor_flops_per_s(gpu, 1.0 / (1.0 + exponentials), duty=duty)
    return AttentionWork(flops * per_flop_s, 4.0 * elements_out * per_flop_s)


def tensor_flops_per_s(gpu: GpuSpec, share: float, *, duty: float | None = None) -> float:
    """Return `share` of the dense tensor rate, at the burst clock of `duty`, by default that share."""
    clock_hz = sm_clock_hz(
        gpu, tensor_duty=share if duty is None else duty, l2_bytes_per_clk_per_sm=0.0, state="burst"
    )
    return share * 2.0 * gpu.tensor_fp16_fma_per_clk_per_sm * gpu.sm_count * clock_hz
