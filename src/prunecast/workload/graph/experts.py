"""`ExpertPart`: the part of a fused layer of experts that an operation of the graph is, and its seconds.

Dense experts are one call of a library: its parts are divided among the operations that a graph of single
products has. An operation of a layer with a sparse product is timed by itself, since the grouped launches of
engines multiply dense experts only.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from prunecast.hardware import GpuSpec
from prunecast.kernels.libraries.call import LibraryCall
from prunecast.kernels.libraries.experts.call import ExpertLayer, fused_experts

FUSED_DTYPES = ("fp16", "bf16", "fp8")
"""Formats of fused experts."""


class ExpertPart(NamedTuple):
    """A part of a fused layer of experts."""

    layer: str
    """Name of the layer."""
    part: str
    """Key of `LibraryCall.parts`."""
    share: float
    """Share of this part that the operation is: half for a gate and for an up."""
    sizes: ExpertLayer
    is_product: bool
    """The operation is a product that runs once for each active expert; otherwise it runs once."""

    def seconds(self, gpu: GpuSpec, dtype: str, state: str) -> float:
        """Return the seconds of one run of the operation."""
        part_s = self.share * fused_call(self.sizes, gpu, dtype, state).parts[self.part]
        return part_s / active_experts(self.sizes) if self.is_product else part_s

    def in_any_layer(self) -> "ExpertPart":
        """Return the part without the name of its layer, to compare parts of equal time."""
        return self._replace(layer="")


@lru_cache(maxsize=256)
def fused_call(sizes: ExpertLayer, gpu: GpuSpec, dtype: str, state: str) -> LibraryCall:
    """Return the call that runs a layer of experts."""
    return fused_experts(sizes, gpu, dtype=dtype, state=state)


def are_fused(gpu: GpuSpec, dtype: str) -> bool:
    """Return whether engines run dense experts of a format in grouped launches on this GPU."""
    rate = {"fp8": gpu.tensor_fp8_fma_per_clk_per_sm, "bf16": gpu.tensor_bf16_fma_per_clk_per_sm}
    return dtype in FUSED_DTYPES and rate.get(dtype, gpu.tensor_fp16_fma_per_clk_per_sm) > 0


def active_experts(sizes: ExpertLayer) -> int:
    """Return the number of experts that get a token."""
    return int(np.count_nonzero(sizes.loads))
