"""Convolutions among the layers: what the weights do not say, as a user says it.

Filters (out, in, kernel_h, kernel_w) fix M and K. The number of output pixels N follows from the size of the
input, the stride, the padding and the batch. Each is given for all convolutions, or for those that a selector
names: `56x56`, `layer1.0.conv1=56x56`, `re:layer2=28x28`. Where several fit, the last one counts.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from prunecast.errors import BadInput, check_choice
from prunecast.kernels import ConvShape
from prunecast.patterns.sources import Layer
from prunecast.patterns.sources.weight_set import select_names

PRODUCTS = ("best", "implicit", "im2col")
"""How a convolution becomes a product: without B, with B written first, or the faster of the two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvSettings:
    """What is said about the convolutions of a model.

    Parameters
    ----------
    input_size : `HxW` or `SELECTOR=HxW`, one or several; convolutions that none names are products with
        `tokens` columns
    stride : whole numbers from 1, in the same way; 1 where none fits
    padding : whole numbers from 0, in the same way; half of the filter where none fits, so that a stride of 1
        keeps the size
    batch : images
    product : one of `PRODUCTS`

    Raises
    ------
    BadInput : a batch below 1, or an unknown product

    """

    input_size: Sequence[str] = ()
    stride: Sequence[str] = ()
    padding: Sequence[str] = ()
    batch: int = 1
    product: str = "best"

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise BadInput(f"batch must be at least 1, got {self.batch}")
        check_choice("convolution", self.product, PRODUCTS)


class _Said(NamedTuple):
    """One value, and the layers that it is for."""

    text: str
    numbers: tuple[int, ...]
    layers: frozenset[str]


def conv_shapes(layers: Sequence[Layer], settings: ConvSettings) -> dict[str, ConvShape]:
    """Layer -> convolution, for the layers of filters whose input size is known.

    Raises
    ------
    BadInput : a value that cannot be read, a selector that names no convolution, or filters that do not fit

    """
    names = [layer.name for layer in layers if layer.filters is not None]
    sizes = [_said("input", text, r"(\d+)x(\d+)", names) for text in settings.input_size]
    strides = [_said("stride", text, r"(\d+)", names) for text in settings.stride]
    paddings = [_said("padding", text, r"(\d+)", names) for text in settings.padding]
    found = {}
    for layer in layers:
        size = _last(sizes, layer.name)
        if layer.filters is None or size is None:
            continue
        kernel = layer.filters
        (stride,) = _last(strides, layer.name) or (1,)
        (padding,) = _last(paddings, layer.name) or (min(kernel.height, kernel.width) // 2,)
        try:
            found[layer.name] = ConvShape(
                channels=kernel.channels,
                height=size[0],
                width=size[1],
                kernel_h=kernel.height,
                kernel_w=kernel.width,
                stride=stride,
                padding=padding,
                batch=settings.batch,
            )
        except BadInput as error:
            raise BadInput(f"{layer.name}: {error}") from error
    return found


def _said(option: str, text: str, grammar: str, names: list[str]) -> _Said:
    selector, _, value = text.rpartition("=")
    match = re.fullmatch(grammar, value)
    if match is None or any(len(number) > 6 for number in match.groups()):
        wanted = "HxW" if "x" in grammar else "a whole number"
        raise BadInput(f"{option}: wanted {wanted} or SELECTOR={wanted}, got {text!r}")
    if not names:
        raise BadInput(f"{option} {text!r}: no layer is a convolution, whose filters have four dimensions")
    chosen = select_names(names, [selector] if selector else ())
    return _Said(text, tuple(int(number) for number in match.groups()), frozenset(chosen))


def _last(said: list[_Said], name: str) -> tuple[int, ...] | None:
    return next((one.numbers for one in reversed(said) if name in one.layers), None)
