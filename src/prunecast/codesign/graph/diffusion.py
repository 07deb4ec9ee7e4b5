"""Stable Diffusion's denoiser: a U-Net of residual blocks and transformers over 64 x 64 latents."""

from dataclasses import dataclass

from prunecast.codesign.graph.blocks import Blocks
from prunecast.codesign.graph.model_graph import Convolution, ModelGraph, Operation
from prunecast.codesign.graph.passes import Pass
from prunecast.codesign.graph.shapes import Transformer

TEXT_TOKENS = 77


@dataclass(frozen=True, slots=True, kw_only=True)
class UNet:
    """An architecture.

    Parameters
    ----------
    channels : of each resolution, the highest first; every next one has half the side
    attends : whether its blocks attend, to themselves and to the text
    heads : of every attention
    text : features of a token of the text
    blocks : residual blocks of each resolution on the way down; one more on the way up
    side : pixels of the latents, which have `latent` channels
    """

    channels: tuple[int, ...]
    attends: tuple[bool, ...]
    heads: int
    text: int
    blocks: int = 2
    side: int = 64
    latent: int = 4


UNETS = {
    "stable-diffusion-1.5": UNet(
        channels=(320, 640, 1280, 1280), attends=(True, True, True, False), heads=8, text=768
    )
}
"""R. Rombach et al. 2022, and the configuration of the U-Net of Stable Diffusion 1.5 (512 x 512 pixels)."""


def build_unet(name: str, shape: UNet, *, batch: int) -> ModelGraph:
    """The graph of one step over `batch` latents; guidance doubles the images' number."""
    net = _Denoiser(ModelGraph(name=name), shape, batch)
    skips = [net.convolve("stem", shape.channels[0], 3)]
    for level, channels in enumerate(shape.channels):
        for block in range(shape.blocks):
            skips.append(net.block(f"down{level}.{block}", channels, attends=shape.attends[level]))
        if level + 1 < len(shape.channels):
            skips.append(net.convolve(f"down{level}.half", channels, 3, stride=2))
    net.block("middle.0", shape.channels[-1], attends=True)
    net.block("middle.1", shape.channels[-1], attends=False)
    for level in reversed(range(len(shape.channels))):
        for block in range(shape.blocks + 1):
            net.join(f"up{level}.{block}.join", skips.pop())
            net.block(f"up{level}.{block}", shape.channels[level], attends=shape.attends[level])
        if level:
            net.double(f"up{level}.double")
    net.convolve("head", shape.latent, 3)
    return net.model


class _Denoiser:
    """Appends blocks; knows the tensor at the end of the chain."""

    def __init__(self, model: ModelGraph, shape: UNet, batch: int) -> None:
        self.model, self._shape, self._batch = model, shape, batch
        self._channels, self._side = shape.latent, shape.side
        self._last = model.add(self._input("latents", self._elements(shape.latent)))
        self._text = model.add(self._input("text", shape.text * TEXT_TOKENS * batch))
        time = model.add(self._input("time", shape.channels[0] * batch))
        wide = 4 * shape.channels[0]
        self._time = self._linear(
            "time.2", wide, wide, [self._linear("time.1", wide, wide // 4, [time], batch)], batch
        )
        self._sides = {model[self._last].name: (self._channels, self._side)}

    def convolve(self, name: str, channels: int, kernel: int, *, stride: int = 1) -> str:
        """A convolution that the chain goes through."""
        conv = Convolution(self._channels, self._side, self._side, kernel, stride, kernel // 2)
        pixels = self._batch * conv.height_out * conv.width_out
        product = Operation(
            name=name,
            kind="gemm",
            m=channels,
            k=self._channels * kernel**2,
            n=pixels,
            convolution=conv,
            elements_in=self._elements(self._channels),
            elements_out=channels * pixels,
        )
        return self._move(self.model.add(product, [self._last]), channels, conv.height_out)

    def block(self, name: str, channels: int, *, attends: bool) -> str:
        """A residual block, and a transformer after it."""
        before, came = self._last, self._channels
        self._normalise(f"{name}.norm1")
        self.convolve(f"{name}.conv1", channels, 3)
        time = self._linear(f"{name}.time", channels, 4 * self._shape.channels[0], [self._time], self._batch)
        self._normalise(f"{name}.norm2", [time])
        branch = self.convolve(f"{name}.conv2", channels, 3)
        if came != channels:
            self._move(before, came, self._side)
            before = self.convolve(f"{name}.shortcut", channels, 1)
        self._add(f"{name}.sum", 2, [branch, before])
        if attends:
            self._transformer(f"{name}.transformer")
        return self._last

    def join(self, name: str, skip: str) -> None:
        """Put the channels of `skip` beside those of the chain: a copy."""
        channels = self._channels + self._sides[skip][0]
        self._channels = channels
        self._add(name, 1, [self._last, skip])

    def double(self, name: str) -> None:
        """Twice the side: every pixel four times, then a convolution."""
        self._side *= 2
        self._add(f"{name}.pixels", 1, [self._last])
        self.convolve(name, self._channels, 3)

    def _transformer(self, name: str) -> None:
        """Attention to all pixels, then to the text, then a gated feed-forward part."""
        before, width, tokens = self._last, self._channels, self._side**2
        shape = Transformer(
            layers=1,
            hidden=width,
            heads=self._shape.heads,
            feed_forward=4 * width,
            gated=True,
            fused_gate=True,
            causal=False,
        )
        blocks = Blocks(self.model, shape, Pass(self._batch, tokens))
        self._normalise(f"{name}.norm")
        stream = blocks.attention(name, self.convolve(f"{name}.in", width, 1))
        columns = self._batch * TEXT_TOKENS
        keys = [
            self._linear(f"{name}.text.{part}", width, self._shape.text, [self._text], columns)
            for part in ("key", "value")
        ]
        stream = blocks.cross_attention(f"{name}.text", stream, keys, TEXT_TOKENS)
        self._move(blocks.feed_forward(name, stream), width, self._side)
        self._add(f"{name}.sum", 2, [self.convolve(f"{name}.out", width, 1), before])

    def _linear(self, name: str, m: int, k: int, after: list[str], n: int) -> str:
        product = Operation(name=name, kind="gemm", m=m, k=k, n=n, elements_in=k * n, elements_out=m * n)
        return self.model.add(product, after)

    def _normalise(self, name: str, more: list[str] | None = None) -> None:
        each = self._elements(self._channels)
        norm = Operation(name=name, kind="normalise", elements_in=each, elements_out=each)
        self._move(self.model.add(norm, [self._last, *(more or [])]), self._channels, self._side)

    def _add(self, name: str, tensors: int, after: list[str]) -> None:
        each = self._elements(self._channels)
        done = Operation(name=name, kind="elementwise", elements_in=tensors * each, elements_out=each)
        self._move(self.model.add(done, after), self._channels, self._side)

    def _move(self, name: str, channels: int, side: int) -> str:
        self._last, self._channels, self._side = name, channels, side
        if hasattr(self, "_sides"):
            self._sides[name] = (channels, side)
        return name

    def _input(self, name: str, elements: int) -> Operation:
        return Operation(name=name, kind="input", elements_out=elements)

    def _elements(self, channels: int) -> int:
        return channels * self._side**2 * self._batch
