"""Images in torch: what is launched around convolutions, dense ones of cuDNN and sparse ones in planes.

A bias and ReLU are a pass over memory behind a dense convolution, and the epilogue of a sparse one. A sparse
one reads planes that another one wrote, or a sum added to in place; channels-last images come into planes by
two launches: they are turned as a matrix, then laid between zeros. One more clears the borders of what each
sparse one writes. A dense one behind planes, and a sum of tensors in both layouts, move one element of a
sector at a time.
"""

from typing import NamedTuple

from prunecast.codesign.graph.model_graph import ModelGraph, Operation
from prunecast.hardware import GpuSpec
from prunecast.hardware.spec import SECTOR_BYTES

PASSES = ("relu", "elementwise")
"""Kinds that work in place, on the first tensor that they read."""
BORDER = 1
"""Zeros around images, in pixels. Kind: choice, `prunecast.torch.TileSparseConv2d`."""
_ELEMENT_BYTES = 2


class ImageForm(NamedTuple):
    """A pass over images with some of its convolutions sparse."""

    model: ModelGraph
    sparse: frozenset[str]
    gpu: GpuSpec

    def in_planes(self, name: str) -> bool:
        """Whether an operation writes planes."""
        o = self.model[name]
        if o.kind == "gemm":
            return name in self.sparse
        sources = self._sources(o)
        return o.kind in PASSES and bool(sources) and self.in_planes(sources[0])

    def passing(self, o: Operation) -> float:
        """Seconds of a sum, or of a bias and ReLU."""
        sources, lies = self._sources(o), self.in_planes(o.name)
        if o.kind == "relu" and lies:
            return 0.0
        strange = sum(self.model[name].elements_out for name in sources if self.in_planes(name) != lies)
        return self._moved(o.elements_in + o.elements_out) + self._scattered(strange)

    def beside(self, o: Operation) -> float:
        """Seconds of the launch beside a convolution: borders are cleared, or images leave their planes."""
        if o.convolution is None:
            return 0.0
        if o.name in self.sparse:
            return self.gpu.graph_launch_s + self._border_bytes(o) / self.gpu.l2_bytes_per_s
        if not any(map(self.in_planes, self._sources(o))):
            return 0.0
        return self._moved(2 * o.elements_in) + self._scattered(o.elements_in)

    def laid(self, o: Operation) -> float:
        """Seconds of laying turned images between zeros, for a convolution that reads them."""
        conv = o.convolution
        if conv is None:
            return 0.0
        larger = (conv.height + BORDER) * (conv.width + BORDER) / (conv.height * conv.width)
        return self._moved(round((1.0 + larger) * o.elements_in))

    def _moved(self, elements: int) -> float:
        """A launch that moves so many: through DRAM where L2 does not hold them."""
        moved, gpu = elements * _ELEMENT_BYTES, self.gpu
        rate = gpu.l2_bytes_per_s if moved <= gpu.l2_usable_bytes else gpu.dram_copy_bytes_per_s
        return gpu.graph_launch_s + moved / rate

    def _scattered(self, elements: int) -> float:
        """What it takes more to read each from a sector of its own."""
        return elements * (SECTOR_BYTES - _ELEMENT_BYTES) / self.gpu.l2_bytes_per_s

    def _border_bytes(self, o: Operation) -> int:
        conv = o.convolution
        assert conv is not None
        between = BORDER * (conv.width_out + BORDER) + BORDER
        return (o.m + 1) * between * o.n // (conv.height_out * conv.width_out) * _ELEMENT_BYTES

    def _sources(self, o: Operation) -> list[str]:
        return list(self.model.graph.predecessors(o.name))
