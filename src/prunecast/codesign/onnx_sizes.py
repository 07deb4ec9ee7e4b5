"""Sizes that an ONNX file says: tokens of every product, convolutions, and what is no product."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from prunecast.codesign.layers import LoadedLayers
from prunecast.codesign.onnx_model import read_onnx_model
from prunecast.codesign.skipped import Skipped
from prunecast.errors import BadInput
from prunecast.kernels import ConvShape

__all__ = ["OnnxSizes", "onnx_sizes"]


class OnnxSizes(NamedTuple):
    """Layer -> sizes, of all products of a file."""

    path: str
    tokens: Mapping[str, int]
    convolutions: Mapping[str, ConvShape]

    def products_of(self, loaded: LoadedLayers) -> LoadedLayers:
        """The layers that are products; others, as grouped convolutions, are skipped with the reason."""
        layers = {name: layer for name, layer in loaded.layers.items() if name in self.tokens}
        if not layers:
            raise BadInput(
                f"{self.path}: none of the selected weights belongs to a product, wanted one or more"
            )
        others = [
            Skipped(
                layer=name, kernel=None, reason="no product in the graph: a grouped convolution or a constant"
            )
            for name in loaded.layers
            if name not in layers
        ]
        return LoadedLayers(layers, (*loaded.skipped, *others))


def onnx_sizes(path: str | Path, *, batch: int, tokens: int) -> OnnxSizes:
    """Read them; `batch` and `tokens` are the sizes that the file leaves free. Raises BadInput."""
    graph = read_onnx_model(path, batch=batch, tokens=tokens).graph
    convolutions = {}
    for name, product in graph.products.items():
        conv = product.convolution
        if conv is not None:
            pixels = conv.height_out * conv.width_out
            convolutions[name] = ConvShape(
                channels=conv.in_channels,
                height=conv.height,
                width=conv.width,
                kernel_h=conv.kernel,
                kernel_w=conv.kernel,
                stride=conv.stride,
                padding=conv.padding,
                batch=max(product.n // pixels, 1),
            )
    return OnnxSizes(f"{path}", {name: product.n for name, product in graph.products.items()}, convolutions)
