"""`ExpertPart`: the part of a fused MoE layer's time that belongs to one operation of a model graph.

An inference engine runs the dense experts of a layer as one library call. A model graph has several
operations for it (sorting of tokens, products, activation, sum), and the time of the call is divided among
them. If a product of the layer is sparse, its operations are timed separately, since the grouped launches of
engines multiply only dense experts.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from prunecast.hardware import GpuSpec
from prunecast.kernels.libraries.call import LibraryCall
from prunecast.kernels.libraries.experts.call import ExpertLayer, fused_experts

FUSED_DTYPES = ("fp16", "bf16", "fp8")
"""Number formats in which one call of a library can run all experts of a layer, with a known time."""


class ExpertPart(NamedTuple):
    """Part of the time of a fused MoE layer that belongs to one operation of a model graph."""

    layer: str
    """Name of the layer."""
    part: str
    """Key of `LibraryCall.parts`."""
    share: float
    """Fraction of the time of `part` that belongs to the operation: 0.5 each for gate and up."""
    sizes: ExpertLayer
    is_product: bool
    """True if the operation is a product, which runs once for each active expert; others run once."""

    def seconds(self, gpu: GpuSpec, dtype: str, state: str) -> float:
        """Return the seconds of one run of the operation."""
        part_s = self.share * fused_call(self.sizes, gpu, dtype, state).parts[self.part]
        return part_s / active_experts(self.sizes) if self.is_product else part_s

    def in_any_layer(self) -> "ExpertPart":
        """Return a copy without the name of the layer: parts of equal layers then compare equal."""
        return self._replace(layer="")


@lru_cache(maxsize=256)
def fused_call(sizes: ExpertLayer, gpu: GpuSpec, dtype: str, state: str) -> LibraryCall:
    """Return the library call that runs the dense experts of a layer (cached)."""
    return fused_experts(sizes, gpu, dtype=dtype, state=state)


def are_fused(gpu: GpuSpec, dtype: str) -> bool:
    """Return True if inference engines run dense experts of this format in grouped launches on this GPU."""
    rate = {"fp8": gpu.tensor_fp8_fma_per_clk_per_sm, "bf16": gpu.tensor_bf16_fma_per_clk_per_sm}
    return dtype in FUSED_DTYPES and rate.get(dtype, gpu.tensor_fp16_fma_per_clk_per_sm) > 0


def active_experts(sizes: ExpertLayer) -> int:
    """Return the number of experts that get at least one token."""
    return int(np.count_nonzero(sizes.loads))
