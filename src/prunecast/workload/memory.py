"""`PassMemory`: the GPU memory of one forward pass, and the largest batch that fits."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from prunecast.workload.graph.model_graph import ModelGraph

USABLE_SHARE = 0.9
"""Share of a GPU's memory that weights, cache and activations may take: the default of vLLM's
`gpu_memory_utilization`. The CUDA context, kernels and the allocator's gaps need the rest."""


class PassMemory(NamedTuple):
    """Bytes of GPU memory during one forward pass of a model.

    Workspaces of libraries are not counted.
    """

    batch: int
    """Sequences or images of the pass."""
    weights: float
    """Bytes of all matrices as their kernels read them, and of embedding tables."""
    cache: float
    """Bytes of keys and values of all sequences, the new tokens included."""
    activations: float
    """Peak bytes of activations."""

    @property
    def total(self) -> float:
        """Bytes of weights, cache and activations."""
        return self.weights + self.cache + self.activations

    def document(self, gpu_bytes: float) -> dict[str, Any]:
        """Return the JSON fields of the pass on a GPU with `gpu_bytes` of memory."""
        parts = {"weights": self.weights, "cache": self.cache, "activations": self.activations}
        fits, largest = self.fits(gpu_bytes), self.largest_batch(gpu_bytes)
        return {"memory_bytes": parts, "fits": fits, "largest_batch": largest}

    def fits(self, gpu_bytes: float) -> bool:
        """Return True if the pass fits a GPU with `gpu_bytes` of memory."""
        return self.total <= USABLE_SHARE * gpu_bytes

    def largest_batch(self, gpu_bytes: float) -> int:
        """Return the largest batch (sequences or images of this size) that fits, 0 if the weights do not fit.

        The cache and the activations grow with the batch, the weights do not.
        """
        left = USABLE_SHARE * gpu_bytes - self.weights
        each = (self.cache + self.activations) / self.batch
        return max(0, int(left / each))


def pass_memory(
    graph: ModelGraph, batch: int, element_bytes: int, packed: Mapping[str, float] | None = None
) -> PassMemory:
    """Return the memory of a pass.

    Parameters
    ----------
    graph : model graph of the pass
    batch : sequences or images of the pass
    element_bytes : bytes of a weight and of an activation
    packed : product -> bytes of one copy of its packed sparse weights; all other products are dense
    """
    packed = packed or {}
    weights = sum(
        o.copies * packed.get(name, float(element_bytes * o.m * o.k)) for name, o in graph.products.items()
    )
    # Keys and values come from the cache or from operations of this pass, and go to the cache.
    cached = sum(o.copies * o.elements_kept for o in graph)
    cached += sum(
        o.copies * (o.elements_cached + o.elements_in - o.elements_out)
        for o in graph
        if o.attention is not None and (o.attention.is_causal or o.elements_cached)
    )
    return PassMemory(
        batch=batch,
        weights=weights + float(element_bytes * graph.looked_up),
        cache=float(element_bytes * cached),
        activations=float(element_bytes * graph.most_live),
    )
