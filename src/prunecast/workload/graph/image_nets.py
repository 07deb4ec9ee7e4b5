"""Image networks at fixed sizes: ResNets and VGG at 224 pixels, and U-Nets that denoise latents.

Their sizes are in `image_nets.toml`; this module holds the structure of each kind of network.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from prunecast.files import packaged_toml
from prunecast.plan.conv_shape import ConvShape
from prunecast.workload.graph.blocks import Blocks
from prunecast.workload.graph.model_graph import ModelGraph, Operation, convolved, linear
from prunecast.workload.graph.shapes import Pass, Transformer

PIXELS = 224
"""Height and width of the images of classifiers. Kind: definition, ImageNet."""
CLASSES = 1000
"""Outputs of classifiers. Kind: definition, ImageNet."""
TEXT_TOKENS = 77
"""Text tokens to which U-Nets attend. Kind: definition, context length of CLIP."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UNet:
    """The architecture of a U-Net.

    Parameters
    ----------
    channels : channels at each resolution, the highest first; each next one has half the side
    depths : for each resolution, number of transformers after each of its blocks; they have self-attention
        and attention to the text
    middle : number of transformers in the middle
    heads : heads of every attention; 0 for as many as have `head_width` features each
    head_width : features of a head, if `heads` is 0
    text : features of a token of the text
    blocks : residual blocks of each resolution in the encoder; the decoder has one more
    side, latent : side of the latents in pixels, and number of their channels
    """

    channels: Sequence[int]
    depths: Sequence[int]
    middle: int
    text: int
    blocks: int
    side: int
    latent: int
    heads: int = 0
    head_width: int = 0


@cache
def image_nets() -> dict[str, dict[str, Any]]:
    """Return the kind and the sizes of each network by name, see `image_nets.toml`."""
    return packaged_toml(__package__, "image_nets.toml")


def build_image_net(name: str, *, batch: int) -> ModelGraph:
    """Return the graph of one forward pass over `batch` images of 224 x 224 pixels, or over `batch` latents.

    With classifier-free guidance, an image needs two latents.
    """
    sizes = dict(image_nets()[name])
    kind, _ = sizes.pop("kind"), sizes.pop("source")
    if kind == "unet":
        return _unet(name, UNet(**sizes), batch=batch)
    net = _Chain(name, batch, "image", 3, PIXELS)
    if kind == "vgg":
        _add_vgg(net, **sizes)
    else:
        _add_resnet(net, **sizes)
    return net.model


class _Chain:
    """Builder of a graph that records the last tensor, its channels and the side of its images in pixels."""

    def __init__(self, name: str, batch: int, source: str, channels: int, side: int) -> None:
        self.model, self.batch = ModelGraph(name=name), batch
        self.channels, self.side = channels, side
        self.last = self.input(source, self._elements(channels))

    def input(self, name: str, elements: int) -> str:
        """Add an input of the model."""
        return self.model.add(Operation(name=name, kind="input", elements_out=elements))

    def convolve(self, name: str, channels: int, kernel: int, *, stride: int = 1) -> str:
        """Add a convolution of the last tensor, with fused bias and activation; the last tensor stays."""
        conv = ConvShape.square(self.channels, self.side, kernel, stride=stride, batch=self.batch)
        return self.model.add(convolved(name, channels, conv), [self.last])

    def chain(self, name: str, channels: int, kernel: int, *, stride: int = 1) -> str:
        """Add a convolution whose output becomes the last tensor."""
        self.convolve(name, channels, kernel, stride=stride)
        return self.move(name, channels, -(-self.side // stride))

    def linear(self, name: str, m: int, k: int, after: list[str], n: int) -> str:
        """Add the product of A (m, k) with `n` columns of `after`. The last tensor does not change."""
        return self.model.add(linear(name, m, k, n), after)

    def work(self, name: str, kind: str, tensors: int, after: list[str]) -> str:
        """Add an operation of `kind` that reads `tensors` tensors, each as large as its output."""
        each = self._elements(self.channels)
        done = Operation(name=name, kind=kind, elements_in=tensors * each, elements_out=each)
        return self.move(self.model.add(done, after), self.channels, self.side)

    def move(self, name: str, channels: int, side: int) -> str:
        """Make the output of `name` the last tensor and return `name`."""
        self.last, self.channels, self.side = name, channels, side
        return name

    def _elements(self, channels: int) -> int:
        return channels * self.side**2 * self.batch


def _add_resnet(net: _Chain, blocks: Sequence[int], *, bottleneck: bool = False) -> None:
    net.chain("stem", 64, 7, stride=2)
    _pool(net, "stem.pool", 56)
    for stage, count in enumerate(blocks):
        for block in range(count):
            stride = 2 if stage > 0 and block == 0 else 1
            _add_block(net, f"stage{stage + 1}.{block}", 64 * 2**stage, stride, bottleneck=bottleneck)
    _pool(net, "average", 1)
    _classify(net, "classifier", CLASSES)


def _add_block(net: _Chain, name: str, width: int, stride: int, *, bottleneck: bool) -> None:
    out = 4 * width if bottleneck else width
    shortcut = net.last
    if stride != 1 or net.channels != out:
        shortcut = net.convolve(f"{name}.shortcut", out, 1, stride=stride)
    if bottleneck:
        net.chain(f"{name}.conv1", width, 1)
        net.chain(f"{name}.conv2", width, 3, stride=stride)
        net.chain(f"{name}.conv3", out, 1)
    else:
        net.chain(f"{name}.conv1", width, 3, stride=stride)
        net.chain(f"{name}.conv2", width, 3)
    net.work(f"{name}.sum", "elementwise", 2, [net.last, shortcut])


def _add_vgg(net: _Chain, channels: Sequence[Sequence[int]]) -> None:
    for stage, convolutions in enumerate(channels):
        for place, filters in enumerate(convolutions):
            net.chain(f"stage{stage + 1}.conv{place + 1}", filters, 3)
        _pool(net, f"stage{stage + 1}.pool", net.side // 2)
    for name, classes in (("fc6", 4096), ("fc7", 4096), ("fc8", CLASSES)):
        _classify(net, name, classes)


def _pool(net: _Chain, name: str, side: int) -> None:
    images = net.channels * net.batch
    pool = Operation(name=name, kind="pool", elements_in=images * net.side**2, elements_out=images * side**2)
    net.move(net.model.add(pool, [net.last]), net.channels, side)


def _classify(net: _Chain, name: str, classes: int) -> None:
    """Add a linear layer over all pixels and channels of an image."""
    net.move(net.linear(name, classes, net.channels * net.side**2, [net.last], net.batch), classes, 1)


def _unet(name: str, shape: UNet, *, batch: int) -> ModelGraph:
    """Return the graph of one denoising step over `batch` latents."""
    net = _Denoiser(name, shape, batch)
    net.chain("stem", shape.channels[0], 3)
    skips = [(net.last, net.channels)]
    for level, channels in enumerate(shape.channels):
        for block in range(shape.blocks):
            net.block(f"down{level}.{block}", channels, depth=shape.depths[level])
            skips.append((net.last, net.channels))
        if level + 1 < len(shape.channels):
            net.chain(f"down{level}.half", channels, 3, stride=2)
            skips.append((net.last, net.channels))
    net.block("middle.0", shape.channels[-1], depth=shape.middle)
    net.block("middle.1", shape.channels[-1], depth=0)
    for level in reversed(range(len(shape.channels))):
        for block in range(shape.blocks + 1):
            skip, channels = skips.pop()  # concatenation of channels: a copy
            net.channels += channels
            net.work(f"up{level}.{block}.join", "elementwise", 1, [net.last, skip])
            net.block(f"up{level}.{block}", shape.channels[level], depth=shape.depths[level])
        if level:  # nearest-neighbour upsampling by 2, then a convolution
            net.side *= 2
            net.work(f"up{level}.double.pixels", "elementwise", 1, [net.last])
            net.chain(f"up{level}.double", net.channels, 3)
    net.chain("head", shape.latent, 3)
    return net.model


class _Denoiser(_Chain):
    """Builder of a U-Net, whose blocks also read the text and the time step."""

    def __init__(self, name: str, shape: UNet, batch: int) -> None:
        super().__init__(name, batch, "latents", shape.latent, shape.side)
        self._shape, wide = shape, 4 * shape.channels[0]
        self._text = self.input("text", shape.text * TEXT_TOKENS * batch)
        time = self.linear("time.1", wide, wide // 4, [self.input("time", shape.channels[0] * batch)], batch)
        self._time = self.linear("time.2", wide, wide, [time], batch)

    def block(self, name: str, channels: int, *, depth: int) -> None:
        """Add a residual block, then `depth` transformers between two projections."""
        before, came = self.last, self.channels
        self.work(f"{name}.norm1", "normalise", 1, [before])
        self.chain(f"{name}.conv1", channels, 3)
        time = self.linear(f"{name}.time", channels, 4 * self._shape.channels[0], [self._time], self.batch)
        self.work(f"{name}.norm2", "normalise", 1, [self.last, time])
        branch = self.chain(f"{name}.conv2", channels, 3)
        if came != channels:
            self.move(before, came, self.side)
            before = self.chain(f"{name}.shortcut", channels, 1)
        self.work(f"{name}.sum", "elementwise", 2, [branch, before])
        if not depth:
            return
        name, before = f"{name}.transformer", self.last
        self.work(f"{name}.norm", "normalise", 1, [before])
        stream = self.chain(f"{name}.in", channels, 1)
        for place in range(depth):
            stream = self._transformer(name if depth == 1 else f"{name}.{place}", stream)
        self.move(stream, channels, self.side)
        self.work(f"{name}.sum", "elementwise", 2, [self.chain(f"{name}.out", channels, 1), before])

    def _transformer(self, name: str, stream: str) -> str:
        """Add attention to all pixels, attention to the text, and a gated feed-forward part."""
        width, tokens = self.channels, self.side**2
        shape = Transformer(
            layers=1,
            hidden=width,
            heads=self._shape.heads or width // self._shape.head_width,
            feed_forward=4 * width,
            gated=True,
            fused_gate=True,
            causal=False,
        )
        blocks = Blocks(self.model, shape, Pass(self.batch, tokens))
        stream = blocks.residual(f"{name}.norm1", [blocks.attention(name, stream)], stream)
        columns = self.batch * TEXT_TOKENS
        keys = [
            self.linear(f"{name}.text.{part}", width, self._shape.text, [self._text], columns)
            for part in ("key", "value")
        ]
        read = blocks.cross_attention(f"{name}.text", stream, keys, TEXT_TOKENS)
        stream = blocks.residual(f"{name}.text.norm", [read], stream)
        return blocks.residual(f"{name}.norm2", [blocks.feed_forward(name, stream)], stream)
