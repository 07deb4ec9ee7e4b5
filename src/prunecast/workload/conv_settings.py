"""`ConvSettings`: sizes of convolutions that a weight file does not contain.

Filters (out, in, kernel_h, kernel_w) determine M and K. The number of output pixels N also depends on the
size of the input, the stride, the padding and the batch, which a weight file does not contain. Input size,
stride and padding are set for all convolutions or for those that a selector names: `56x56`,
`layer1.0.conv1=56x56`, `re:layer2=28x28`. If several texts match a convolution, the last one is used.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from prunecast.arguments import check_fields
from prunecast.errors import BadInput, check_choice
from prunecast.kernels import ConvShape
from prunecast.patterns.sources import Layer
from prunecast.patterns.sources.weight_set import listed, select_names

PRODUCTS = ("best", "implicit", "im2col")
"""Ways to compute a convolution: `implicit` computes the addresses of pixels and has no B in memory, `im2col`
writes B with a separate kernel first, and `best` is the faster of the two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvSettings:
    """Settings of the convolutions of a model.

    Parameters
    ----------
    input_size : height and width in pixels as `HxW` or `SELECTOR=HxW`, one text or several. A convolution
        that no selector matches is a product with `tokens` columns
    stride : integers from 1, in the same form; the default is 1
    padding : integers from 0, in the same form; the default is half of the filter, so that a stride of 1
        keeps the size
    batch : number of images of a convolution (1 if None), or of images or sequences of a standard model
    product : way to compute convolutions, one of `PRODUCTS`

    Raises
    ------
    BadInput : a batch below 1, or an unknown product
    """

    input_size: str | Sequence[str] = ()
    stride: str | Sequence[str] = ()
    padding: str | Sequence[str] = ()
    batch: int | None = None
    product: str = "best"

    def __post_init__(self) -> None:
        check_fields(self, "ConvSettings")
        if self.batch is not None and self.batch < 1:
            raise BadInput(f"batch must be at least 1, got {self.batch}")
        check_choice("convolution", self.product, PRODUCTS)


def conv_shapes(layers: Sequence[Layer], settings: ConvSettings) -> dict[str, ConvShape]:
    """Return layer name -> convolution, for convolution layers with a known input size.

    Raises
    ------
    BadInput : a value that cannot be parsed, a selector without a match, or filters larger than the input
    """
    names = [layer.name for layer in layers if layer.filters is not None]
    sizes = _said("input", settings.input_size, r"(\d+)x(\d+)", names)
    strides = _said("stride", settings.stride, r"(\d+)", names)
    paddings = _said("padding", settings.padding, r"(\d+)", names)
    if not sizes and (idle := [*listed(settings.stride), *listed(settings.padding)]):
        raise BadInput(f"stride and padding are of convolutions with --input, got {idle[0]} without one")
    found = {}
    for layer in layers:
        size = sizes.get(layer.name)
        if layer.filters is None or size is None:
            continue
        kernel = layer.filters
        (stride,) = strides.get(layer.name, (1,))
        (padding,) = paddings.get(layer.name, (min(kernel.height, kernel.width) // 2,))
        try:
            found[layer.name] = ConvShape(
                channels=kernel.channels,
                height=size[0],
                width=size[1],
                kernel_h=kernel.height,
                kernel_w=kernel.width,
                stride=stride,
                padding=padding,
                batch=settings.batch or 1,
            )
        except BadInput as error:
            raise BadInput(f"{layer.name}: {error}") from error
    return found


def image_sizes(settings: ConvSettings, inputs: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Return name of a model input -> (height, width), for the inputs that `input_size` names.

    Raises
    ------
    BadInput : a value that cannot be parsed, or a selector that names no input
    """
    found: dict[str, tuple[int, int]] = {}
    for text in listed(settings.input_size):
        selector, height, width = _selector_and_numbers("input", text, r"(\d+)x(\d+)")
        if not inputs:
            raise BadInput(f"input {text!r}: no input of the file is an image, which has four dimensions")
        try:
            chosen = select_names(inputs, [selector] if selector else ())
        except BadInput as error:
            raise BadInput(
                f"input {text!r}: wanted HxW or NAME=HxW with an input of the file ({', '.join(inputs):.200})"
            ) from error
        found |= dict.fromkeys(chosen, (height, width))
    return found


def _said(
    option: str, values: str | Sequence[str], grammar: str, names: Sequence[str]
) -> dict[str, tuple[int, ...]]:
    """Return layer name -> numbers of the last one of an option's values whose selector matches the layer."""
    found: dict[str, tuple[int, ...]] = {}
    for text in listed(values):
        selector, *numbers = _selector_and_numbers(option, text, grammar)
        if not names:
            raise BadInput(
                f"{option} {text!r}: no layer is a convolution, whose filters have four dimensions"
            )
        chosen = select_names(names, [selector] if selector else ())
        found |= dict.fromkeys(chosen, tuple(numbers))
    return found


def _selector_and_numbers(option: str, text: str, grammar: str) -> tuple[Any, ...]:
    """Split `SELECTOR=VALUE` or `VALUE` into the selector (empty if absent) and the numbers of the value."""
    selector, _, value = text.rpartition("=")
    match = re.fullmatch(grammar, value)
    if match is None or any(len(number) > 6 for number in match.groups()):
        wanted = "HxW" if "x" in grammar else "a whole number"
        raise BadInput(f"{option}: wanted {wanted} or SELECTOR={wanted}, got {text!r}")
    return (selector, *(int(number) for number in match.groups()))
