"""Convolutional networks: ResNet-18, -34 and -50 (v1.5, stride in the 3x3) and VGG-16, at 224 pixels."""

from dataclasses import dataclass

from prunecast.codesign.graph.model_graph import Convolution, ModelGraph, Operation

PIXELS = 224
CLASSES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvNet:
    """An architecture: ResNets give blocks per stage, VGG its channels per convolution."""

    blocks: tuple[int, ...] = ()
    bottleneck: bool = False
    plain: tuple[tuple[int, ...], ...] = ()
    """Channels of the convolutions of each stage; a 2x2 pool ends a stage (VGG)."""


CONV_NETS = {
    "resnet18": ConvNet(blocks=(2, 2, 2, 2)),
    "resnet34": ConvNet(blocks=(3, 4, 6, 3)),
    "resnet50": ConvNet(blocks=(3, 4, 6, 3), bottleneck=True),
    "vgg16": ConvNet(plain=((64, 64), (128, 128), (256,) * 3, (512,) * 3, (512,) * 3)),
}
"""K. He et al. 2016, K. Simonyan and A. Zisserman 2015."""


def build_conv_net(name: str, shape: ConvNet, *, batch: int) -> ModelGraph:
    """The graph of one forward pass over `batch` images of 224 x 224 pixels."""
    net = _Net(ModelGraph(name=name), batch)
    if shape.plain:
        _add_vgg(net, shape)
    else:
        _add_resnet(net, shape)
    return net.model


class _Net:
    """Appends layers; knows the tensor at the end of the chain."""

    def __init__(self, model: ModelGraph, batch: int) -> None:
        self.model, self.batch = model, batch
        self.channels, self.side = 3, PIXELS
        image = Operation(name="image", kind="input", elements_out=self._elements(3, PIXELS))
        self.last = model.add(image)

    def convolve(self, name: str, channels: int, kernel: int, stride: int, after: str | None = None) -> str:
        """A convolution of the last tensor, or of `after`, which has the same shape."""
        conv = Convolution(self.channels, self.side, self.side, kernel, stride, kernel // 2)
        pixels = self.batch * conv.height_out * conv.width_out
        product = Operation(
            name=name,
            kind="gemm",
            m=channels,
            k=self.channels * kernel**2,
            n=pixels,
            convolution=conv,
            elements_in=self._elements(self.channels, self.side),
            elements_out=channels * pixels,
        )
        return self.model.add(product, [after or self.last])

    def move_to(self, name: str, channels: int, side: int) -> None:
        """The chain now ends in `name`."""
        self.last, self.channels, self.side = name, channels, side

    def chain(self, name: str, channels: int, kernel: int, stride: int) -> None:
        """A convolution that the chain goes through; its bias and ReLU are fused."""
        self.move_to(self.convolve(name, channels, kernel, stride), channels, -(-self.side // stride))

    def pool(self, name: str, side: int) -> None:
        before, after = self._elements(self.channels, self.side), self._elements(self.channels, side)
        pool = Operation(name=name, kind="pool", elements_in=before, elements_out=after)
        self.move_to(self.model.add(pool, [self.last]), self.channels, side)

    def add_residual(self, name: str, shortcut: str) -> None:
        elements = self._elements(self.channels, self.side)
        total = Operation(name=name, kind="elementwise", elements_in=2 * elements, elements_out=elements)
        self.last = self.model.add(total, [self.last, shortcut])

    def classify(self, name: str, classes: int) -> None:
        """A linear layer over everything that one image has become."""
        k = self.channels * self.side**2
        n = self.batch
        linear = Operation(
            name=name, kind="gemm", m=classes, k=k, n=n, elements_in=k * n, elements_out=classes * n
        )
        self.move_to(self.model.add(linear, [self.last]), classes, 1)

    def _elements(self, channels: int, side: int) -> int:
        return channels * side**2 * self.batch


def _add_resnet(net: _Net, shape: ConvNet) -> None:
    net.chain("stem", 64, 7, 2)
    net.pool("stem.pool", 56)
    for stage, blocks in enumerate(shape.blocks):
        for block in range(blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            _add_block(net, f"stage{stage + 1}.{block}", 64 * 2**stage, stride, bottleneck=shape.bottleneck)
    net.pool("average", 1)
    net.classify("classifier", CLASSES)


def _add_block(net: _Net, name: str, width: int, stride: int, *, bottleneck: bool) -> None:
    out = 4 * width if bottleneck else width
    shortcut = net.last
    if stride != 1 or net.channels != out:
        shortcut = net.convolve(f"{name}.shortcut", out, 1, stride)
    if bottleneck:
        net.chain(f"{name}.conv1", width, 1, 1)
        net.chain(f"{name}.conv2", width, 3, stride)
        net.chain(f"{name}.conv3", out, 1, 1)
    else:
        net.chain(f"{name}.conv1", width, 3, stride)
        net.chain(f"{name}.conv2", width, 3, 1)
    net.add_residual(f"{name}.sum", shortcut)


def _add_vgg(net: _Net, shape: ConvNet) -> None:
    for stage, convolutions in enumerate(shape.plain):
        for place, channels in enumerate(convolutions):
            net.chain(f"stage{stage + 1}.conv{place + 1}", channels, 3, 1)
        net.pool(f"stage{stage + 1}.pool", net.side // 2)
    for name, classes in (("fc6", 4096), ("fc7", 4096), ("fc8", CLASSES)):
        net.classify(name, classes)
