"""`Attention`: fused attention as one launch, and its arithmetic on a GPU.

A score needs `4 head_width` tensor-core operations and one exponential. The two do not overlap. Properties of
one kernel (the cost of starting and ending a query tile, its share of the tensor rate) are data of the
runtime that calls it.
"""

from typing import NamedTuple

from prunecast.hardware import GpuSpec, sm_clock_hz

EXPONENTIALS_PER_CLK_PER_SM = 16
"""CUDA C++ Programming Guide, throughput of native arithmetic instructions, compute
capabilities 7.5 to 9.0."""
TILE_KEYS = 128
"""Queries and keys per tile of cuDNN's attention, which computes whole tiles. Kind: fitted, with the costs
of attention."""


class Attention(NamedTuple):
    """Scores, softmax and weighted sum of a batch of sequences in one kernel."""

    sequences: int
    queries: int
    """New tokens of each sequence."""
    keys: int
    """Tokens of each sequence whose keys and values exist at the end of the pass."""
    width: int
    """Query features of all heads together."""
    head_width: int
    is_causal: bool
    window: int = 0
    """Number of preceding tokens that a token attends to; 0 for all."""

    @property
    def flops(self) -> float:
        """Floating-point operations of both products."""
        cached = self.keys - self.queries
        keys = mean_keys(cached, self.queries, self.window) if self.is_causal else self.keys
        return 4.0 * self.sequences * self.queries * keys * self.width

    @property
    def flops_of_tiles(self) -> float:
        """Floating-point operations with whole tiles of queries and keys.

        A causal mask adds half a tile of keys, for the tiles on the diagonal.
        """
        cached, tokens = self.keys - self.queries, self.queries
        whole = -(-tokens // TILE_KEYS) * TILE_KEYS
        keys = float(whole)
        if self.is_causal:
            keys = mean_keys(cached, tokens, 0) + 0.5 * min(TILE_KEYS, tokens)
        return 4.0 * self.sequences * (tokens if cached else whole) * keys * self.width


def mean_keys(cached: int, tokens: int, window: int) -> float:
    """Return the mean number of keys that a new token attends to under a causal mask.

    These are the tokens before it, at most `window` of them (0 for all).
    """
    last = cached + tokens
    full = min(max(window or last, cached), last)
    before = (full**2 - cached**2) / 2.0 if full > cached else 0.0
    return (before + (window or last) * (last - full)) / tokens


class AttentionWork(NamedTuple):
    """Seconds of attention at the full tensor rate."""

    multiplying: float
    """Seconds of products and exponentials."""
    per_key: float
    """Seconds per key. The fixed cost of a query tile is expressed as a number of keys."""


def attention_work(
    flops: float, elements_out: int, head_width: int, gpu: GpuSpec, *, duty: float | None = None
) -> AttentionWork:
    """Return the work of attention.

    Parameters
    ----------
    flops : floating-point operations of both products
    elements_out : numbers that it writes, queries times features
    duty : tensor duty that sets the clock; None for the share of time that the products need
    """
    per_clk = 2.0 * gpu.tensor_fp16_fma_per_clk_per_sm
    exponentials = per_clk / (4.0 * head_width * EXPONENTIALS_PER_CLK_PER_SM)
    per_flop_s = 1.0 / tensor_flops_per_s(gpu, 1.0 / (1.0 + exponentials), duty=duty)
    return AttentionWork(flops * per_flop_s, 4.0 * elements_out * per_flop_s)


def tensor_flops_per_s(gpu: GpuSpec, share: float, *, duty: float | None = None) -> float:
    """Return `share` of the dense tensor rate in FLOP/s, at the burst clock of `duty` (default: `share`)."""
    clock_hz = sm_clock_hz(
        gpu, tensor_duty=share if duty is None else duty, l2_bytes_per_clk_per_sm=0.0, state="burst"
    )
    return share * 2.0 * gpu.tensor_fp16_fma_per_clk_per_sm * gpu.sm_count * clock_hz
