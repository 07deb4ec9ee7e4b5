"""Whole convolutional networks in planes, without a GPU: what is rewritten, and that it computes the same."""

import copy
import warnings

import pytest

torch = pytest.importorskip("torch")

from torch import fx, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from prunecast.errors import BadInput  # noqa: E402
from prunecast.torch import SparseConv2d, passes, sparsify  # noqa: E402
from prunecast.torch.network import trace  # noqa: E402
from prunecast.torch.passes import NodeOfPass, pass_of, window_of  # noqa: E402

GPU = "h200-sxm"


class Block(nn.Module):
    """A residual block of two 3x3 convolutions."""

    def __init__(self, channels, filters, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, filters, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(filters)
        self.conv2 = nn.Conv2d(filters, filters, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(filters)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or channels != filters:
            conv = nn.Conv2d(channels, filters, 1, stride, bias=False)
            self.downsample = nn.Sequential(conv, nn.BatchNorm2d(filters))

    def forward(self, x):
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += x if self.downsample is None else self.downsample(x)
        return self.relu(out)


class Bottleneck(nn.Module):
    """A residual block of 1x1, 3x3 and 1x1 convolutions."""

    def __init__(self, channels, filters, out, stride=1):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, filters, 1, bias=False), nn.BatchNorm2d(filters)
        self.conv2 = nn.Conv2d(filters, filters, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(filters)
        self.conv3, self.bn3 = nn.Conv2d(filters, out, 1, bias=False), nn.BatchNorm2d(out)
        self.downsample = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        y = functional.relu(self.bn1(self.conv1(x)))
        y = functional.relu(self.bn2(self.conv2(y)))
        return functional.relu(self.bn3(self.conv3(y)) + self.downsample(x))


class ResNet(nn.Module):
    """The stem of a ResNet, blocks and the classifier."""

    def __init__(self, *blocks, stem=32, last=64, classes=16):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, stem, 7, 2, 3, bias=False), nn.BatchNorm2d(stem)
        self.relu, self.maxpool = nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        self.blocks = nn.Sequential(*blocks)
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d((1, 1)), nn.Linear(last, classes)

    def forward(self, x):
        x = self.blocks(self.maxpool(self.relu(self.bn1(self.conv1(x)))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


def resnet18():
    """ResNet-18 as torchvision builds it."""
    widths = ((64, 64), (64, 64), (64, 128), (128, 128), (128, 256), (256, 256), (256, 512), (512, 512))
    blocks = (Block(before, after, 1 if before == after else 2) for before, after in widths)
    return ResNet(*blocks, stem=64, last=512, classes=1000)


def vgg():
    layers = [nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(True), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(True)]
    layers += [nn.MaxPool2d(2, 2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(True), nn.AdaptiveAvgPool2d(4)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, 32), nn.ReLU(True), nn.Dropout())


class UNet(nn.Module):
    """Down, up, and a concatenation between them; SiLU and average pools."""

    def __init__(self):
        super().__init__()
        self.first, self.down = nn.Conv2d(8, 16, 3, padding=1), nn.AvgPool2d(2)
        self.middle, self.last = nn.Conv2d(16, 32, 3, padding=1), nn.Conv2d(48, 8, 3, padding=1)
        self.up = nn.Upsample(scale_factor=2)

    def forward(self, x):
        first = functional.silu(self.first(x))
        middle = functional.silu(self.middle(self.down(first))) * 0.5
        up = functional.interpolate(middle, scale_factor=2.0, mode="nearest")
        return torch.sigmoid(self.last(torch.cat([first, up], 1)))


class Mixer(nn.Module):
    """As ConvNeXt: a depthwise convolution that stays dense, and two 1x1 convolutions."""

    def __init__(self):
        super().__init__()
        self.stem, self.depthwise = nn.Conv2d(8, 16, 1), nn.Conv2d(16, 16, 7, padding=3, groups=16)
        self.wide, self.narrow = nn.Conv2d(16, 64, 1), nn.Conv2d(64, 16, 1)
        self.scale = nn.Parameter(torch.randn(16, 1, 1))

    def forward(self, x):
        x = self.stem(x)
        y = self.narrow(functional.gelu(self.wide(self.depthwise(x))))
        return (x + self.scale * y).mean((2, 3))


class Pyramid(nn.Module):
    """As a feature pyramid: sums with upsampled maps, of the size of another one; a head that is shared."""

    def __init__(self):
        super().__init__()
        self.low, self.high = nn.Conv2d(8, 16, 3, padding=1), nn.Conv2d(16, 16, 3, 2, 1)
        self.inner_low, self.inner_high = nn.Conv2d(16, 16, 1), nn.Conv2d(16, 16, 1)
        self.head = nn.Conv2d(16, 8, 3, padding=1)

    def forward(self, x):
        low = functional.relu(self.low(x))
        high = functional.relu6(self.high(low))
        top, side = self.inner_high(high), self.inner_low(low)
        inner = side + functional.interpolate(top, size=side.shape[-2:], mode="nearest")
        return {"low": self.head(inner), "high": functional.relu(self.head(top))}


def ready(model, seed=0):
    """The model in fp16, with norms that do something."""
    torch.manual_seed(seed)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0.0, 0.1)
            module.running_var.uniform_(0.5, 2.0)
            module.weight.data.uniform_(0.5, 1.5)
            module.bias.data.normal_(0.0, 0.1)
    return model.eval().half()


def converted(model, ignore=(), **options):
    """The sparse model, and a dense copy with the weights that it keeps."""
    dense = copy.deepcopy(model)
    options = {"sparsity": 0.5, "gpu": GPU, "max_tokens": 64, "ignore": ignore, "quiet": True} | options
    options = {"only_gains": False} | options
    done = sparsify(model, "tile-wise:32", convolutions=True, **options)
    dense.load_state_dict(model.state_dict())
    return model, dense.float(), done


def same(model, dense, *shapes):
    """Both compute the same for images of all shapes and layouts."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="network at")  # small ones are faster dense
        for shape in shapes:
            x = torch.randn(shape).half()
            wanted = dense(x.float())
            strided = torch.randn(*shape[:3], 2 * shape[3]).half()[..., ::2].copy_(x)
            for lies in (x, x.to(memory_format=torch.channels_last), strided):
                found = model(lies)
                pairs = (
                    [(found, wanted)]
                    if torch.is_tensor(found)
                    else zip(found.values(), wanted.values(), strict=True)
                )
                for own, exact in pairs:
                    torch.testing.assert_close(own.float(), exact, rtol=4e-3, atol=4e-3)


def calls(model):
    """Names of the functions and modules that the new code calls."""
    return [getattr(node.target, "__name__", node.target) for node in model.planes_graph.nodes][1:-1]


def resnet(*blocks):
    return ready(ResNet(*blocks)), ["conv1", "fc"]


@pytest.mark.parametrize(
    "blocks",
    [
        lambda: (Block(32, 64), Block(64, 64, 2)),
        lambda: (Bottleneck(32, 16, 64), Bottleneck(64, 32, 64, 2)),
    ],
)
def test_a_resnet_is_copied_into_planes_once(blocks):
    model, ignore = resnet(*blocks())
    model, dense, _ = converted(model, ignore)
    names = calls(model)
    assert names[:3] == ["into_planes", "conv1", "pooled"]
    convs = [name for name, module in model.named_modules() if isinstance(module, SparseConv2d)]
    copies = {"into_planes": 1, "pooled": 1, "mean_as_images": 1, "flatten": 1, "fc": 1}
    assert {name: names.count(name) for name in copies} == copies
    assert sorted(set(names) - set(copies)) == sorted(convs)
    assert sum(model.get_submodule(name).adds for name in convs) == 2
    same(model, dense, (3, 3, 40, 48), (9, 3, 32, 32))


def test_a_vgg_stays_in_planes_from_the_image_on():
    model, dense, done = converted(ready(vgg()), ["0"])
    assert calls(model)[:6] == ["into_planes", "0", "2", "pooled", "5", "averaged_to"]
    assert model[0].density == 1.0
    assert "0" not in done.layers
    same(model, dense, (3, 3, 16, 16), (1, 3, 8, 8))


def test_a_unet_pools_upsamples_and_concatenates_in_planes():
    model, dense, _ = converted(ready(UNet()))
    names = calls(model)
    assert (names.count("into_planes"), names.count("as_images"), names.count("pooled")) == (1, 1, 2)
    same(model, dense, (5, 8, 12, 8))


def test_what_is_not_in_planes_costs_a_copy():
    model, dense, _ = converted(ready(Mixer()))
    assert calls(model).count("into_planes") == 2
    assert type(model.depthwise) is nn.Conv2d
    same(model, dense, (5, 8, 9, 7))


def test_a_pyramid_with_a_shared_head():
    model, dense, _ = converted(ready(Pyramid()))
    assert model.head.activation == "none"
    same(model, dense, (5, 8, 12, 8), (5, 8, 7, 9))


def test_norms_that_are_loaded_later_are_folded_again():
    model, ignore = resnet(Block(32, 64))
    model, dense, _ = converted(model, ignore)
    torch.manual_seed(5)
    state = {
        name: torch.rand_like(value.float()).add(0.5).to(value.dtype)
        if ".bn" in name or "bn1" in name
        else value
        for name, value in dense.half().state_dict().items()
    }
    dense.load_state_dict(state)
    model.load_state_dict(state)
    same(model, dense.float(), (2, 3, 32, 32))
    same(copy.deepcopy(model), dense, (2, 3, 32, 32))


def test_hooks_of_convolutions_see_their_images():
    model, _, _ = converted(ready(vgg()), ["0"])
    shapes = []
    model[2].register_forward_hook(
        lambda _, given, y: shapes.append((given[0].images().shape, y.images().shape))
    )
    with torch.no_grad():
        model(torch.randn(3, 3, 8, 8).half())
    assert shapes == [((3, 16, 8, 8), (3, 16, 8, 8))]


def test_the_last_sizes_are_kept():
    model, _, _ = converted(ready(vgg()), ["0"])
    with torch.no_grad():
        for side in range(8, 30, 2):
            model(torch.randn(1, 3, side, 8).half())
    assert [call.height for call in model[2]._launches] == list(range(14, 30, 2))


@pytest.mark.slow
@pytest.mark.parametrize("how", ["compile", "export"])
def test_the_network_is_ordinary_operators(how):
    model, ignore = resnet(Bottleneck(32, 16, 64))
    model, _, _ = converted(model, ignore)
    x = torch.randn(3, 3, 32, 32).half()
    torch._dynamo.reset()
    with torch.no_grad():
        wanted = model(x)
        if how == "compile":
            found = torch.compile(model, fullgraph=True, backend="aot_eager")(x)
        else:
            found = torch.export.export(model, (x,)).module()(x)
    assert torch.equal(found, wanted)


def test_a_part_of_a_network_is_not_called_alone():
    model, _, _ = converted(ready(vgg()), ["0"])
    with pytest.raises(BadInput, match="part of a rewritten network: call the whole model"):
        model[2](torch.zeros(1, 16, 8, 8).half())
    with pytest.raises(BadInput, match=r"no gradients: call eval\(\)"):
        model.train()(torch.zeros(1, 3, 8, 8).half())


def images(*shape):
    return torch.zeros(shape).half()


@pytest.mark.parametrize(
    ("x", "said"),
    [
        (
            lambda: images(2, 5, 32, 32),
            "must have 3 channels of torch.float16 on cpu like its weights, got 5",
        ),
        (lambda: images(2, 3, 32, 32).float(), "like its weights, got 3 channels of torch.float32"),
        (lambda: images(2, 3, 32, 32).bfloat16(), "like its weights, got 3 channels of torch.bfloat16"),
        (lambda: images(3, 32, 32), r"wanted images \(batch, channels, height, width\), got \(3, 32, 32\)"),
        (lambda: images(0, 3, 32, 32), r"wanted images .*, got \(0, 3, 32, 32\)"),
        (lambda: images(2, 3, 32, 32).numpy(), "wanted images .*, got ndarray"),
    ],
)
def test_other_inputs_are_one_line(x, said):
    model, ignore = resnet(Block(32, 64))
    model, _, _ = converted(model, ignore)
    with torch.no_grad(), pytest.raises(BadInput, match=said) as error:
        model(x())
    assert "\n" not in str(error.value)


def test_sizes_batches_and_layouts_may_change_between_calls():
    """Ten sizes, more than are kept, odd batches and views; and the first one again."""
    model, ignore = resnet(Block(32, 64), Block(64, 64, 2))
    model, dense, _ = converted(model, ignore)
    sizes = [(1 + i % 7, 3, 32 + 2 * i, 33 + i) for i in range(10)]
    same(model, dense, *sizes, sizes[0])
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one = torch.randn(1, 3, 32, 32).half()
        many = one.expand(5, 3, 32, 32)
        cut = torch.randn(9, 3, 40, 40).half()[::2, :, 4:36, 4:36]
        for x in (many, cut, one.flip(3), one.transpose(2, 3)):
            torch.testing.assert_close(model(x).float(), dense(x.float()), rtol=4e-3, atol=4e-3)


def test_training_mode_is_refused_and_eval_computes_again():
    model, ignore = resnet(Block(32, 64))
    model, dense, _ = converted(model, ignore)
    x = images(2, 3, 32, 32)
    with pytest.raises(BadInput, match=r"no gradients: call eval\(\)"):
        model.train()(x)
    with pytest.raises(BadInput, match=r"no gradients: call eval\(\) and use"):
        model.eval()(x.requires_grad_())
    same(model.eval(), dense, (2, 3, 32, 32))


def test_norms_come_back_if_the_model_cannot_be_converted():
    model, _ = resnet(Block(32, 64))
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(BadInput):
        sparsify(
            model, "tile-wise:nothing", gpu=GPU, max_tokens=64, sparsity=0.5, convolutions=True, quiet=True
        )
    with pytest.raises(BadInput, match="no layer has enough zeros"):
        sparsify(model, "tile-wise:32", gpu=GPU, max_tokens=64, convolutions=True, quiet=True)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


class Branches(nn.Module):
    """Its code depends on data."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(8, 16, 3, padding=1)

    def forward(self, x):
        return self.conv(x) if x.sum() > 0 else self.conv(-x)


@pytest.mark.parametrize(
    ("trains", "why"), [(False, "torch.fx cannot trace it"), (True, "it is in training mode")]
)
def test_a_network_without_a_graph_is_converted_as_before(trains, why):
    model = ready(Branches()).train(trains)
    model, dense, done = converted(model)
    assert any(why in line for line in done.left)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = torch.randn(2, 8, 6, 6).half()
        with torch.no_grad():
            found = model.eval()(x)
            torch.testing.assert_close(found.float(), dense.eval()(x.float()), rtol=4e-3, atol=4e-3)


def test_the_reason_is_the_first_line_of_what_torch_says():
    class Refuses(nn.Module):
        def forward(self, x):
            raise ValueError(self.said)

    model = Refuses().eval()
    for said, shown in (
        ("no\nstack", "ValueError: no"),
        ("x" * 200, "ValueError: " + "x" * 80),
        ("", "ValueError: "),
    ):
        model.said = said
        assert trace(model).why == f"torch.fx cannot trace it ({shown})"


def pooled(model):
    """The window of the last call of a network."""
    graph, modules = fx.Tracer().trace(model), dict(model.named_modules())
    node = next(each for each in reversed(graph.nodes) if each.op.startswith("call"))
    read, window = window_of(node, modules)
    assert (read is node) == (window is None)
    return window


@pytest.mark.parametrize(
    ("given", "window"),
    [
        ({"kernel_size": 3}, (3, 3, 0)),  # torch's default stride is the size
        ({"kernel_size": 3, "stride": 2}, (3, 2, 0)),
        ({"kernel_size": 2, "stride": 3}, (2, 3, 0)),
        ({"kernel_size": (3, 3), "stride": (2, 2), "padding": (1, 1)}, (3, 2, 1)),
        ({"kernel_size": 3, "padding": 1}, (3, 3, 1)),
        ({"kernel_size": (3, 2)}, None),
        ({"kernel_size": 3, "stride": (1, 2)}, None),
        ({"kernel_size": 3, "padding": (1, 0)}, None),
        ({"kernel_size": 3, "dilation": 2}, None),
        ({"kernel_size": 3, "ceil_mode": True}, None),
        ({"kernel_size": 3, "return_indices": True}, None),
    ],
)
def test_a_window_is_that_of_the_pool_however_it_is_called(given, window):
    class Pool(nn.Module):
        def __init__(self, call):
            super().__init__()
            self.call = call

        def forward(self, x):
            return self.call(x)

    size, others = given["kernel_size"], {name: each for name, each in given.items() if name != "kernel_size"}
    assert pooled(nn.Sequential(nn.MaxPool2d(**given))) == window
    if "return_indices" in given:
        return
    assert pooled(Pool(lambda x: functional.max_pool2d(x, **given))) == window
    assert pooled(Pool(lambda x: functional.max_pool2d(x, size, **others))) == window
    assert pooled(Pool(lambda x: torch.max_pool2d(x, size, **others))) == window
    if len(others) < 2 and "stride" in given:
        assert pooled(Pool(lambda x: functional.max_pool2d(x, size, given["stride"]))) == window


def test_what_is_no_max_pool_has_no_window():
    assert pooled(nn.Sequential(nn.AvgPool2d(2))) is None
    assert pooled(nn.Sequential(nn.ReLU())) is None


@pytest.mark.parametrize(
    ("call", "is_flat"),
    [
        (lambda x: torch.flatten(x, 1), True),
        (lambda x: x.flatten(1), True),
        (torch.flatten, False),
        (lambda x: torch.flatten(x, 2), False),
        (lambda x: torch.flatten(x, 1, 2), False),
        (lambda x: x.flatten(start_dim=1, end_dim=2), False),
        (nn.Flatten(), True),
        (nn.Flatten(0), False),
        (nn.Flatten(1, 2), False),
    ],
)
def test_planes_become_rows_where_all_of_an_image_is_flattened(call, is_flat):
    class Flat(nn.Module):
        def __init__(self):
            super().__init__()
            self.call = call

        def forward(self, x):
            return self.call(x)

    model = Flat()
    graph, modules = fx.Tracer().trace(model), dict(model.named_modules())
    node = next(each for each in graph.nodes if each.op.startswith("call"))
    assert (pass_of(node, modules) is not None) == is_flat


def planes(x, border=1):
    """Images in planes, as the first module of a rewritten network copies them."""
    return passes.into_planes(x, border)


@pytest.fixture
def no_images(monkeypatch):
    """Makes a pass fail that copies planes to images."""
    monkeypatch.setattr(passes, "as_images", lambda _: pytest.fail("the planes are copied to images"))


@pytest.mark.parametrize("border", [0, 1, 2])
@pytest.mark.parametrize("shape", [(3, 5, 6, 4), (8, 1, 1, 7), (9, 2, 3, 3)])
def test_planes_give_their_images_back(shape, border):
    x = torch.randn(shape)
    found = planes(x, border)
    assert found.shape == found.size() == x.shape
    assert found.data.shape[1] % 8 == 0
    assert torch.equal(passes.as_images(found), x)
    assert torch.equal(passes.flat(found), x.flatten(1))


def test_a_copy_into_planes_may_begin_with_a_relu_and_a_max_pool():
    x = torch.randn(3, 4, 9, 6)
    found = passes.into_planes(x, 1, True, 3, 2, 1)
    assert torch.equal(passes.as_images(found), functional.max_pool2d(functional.relu(x), 3, 2, 1))


@pytest.mark.parametrize("size", [(12, 8), (18, 12), (6, 4), (12, 4), (9, 6), (3, 2), (5, 8)])
def test_planes_are_resized_as_images_are(size):
    x = torch.randn(3, 5, 6, 4)
    found = passes.resized(planes(x), size)
    assert torch.equal(passes.as_images(found), functional.interpolate(x, size))
    assert found.border == 1


def test_planes_are_resized_by_a_whole_factor_without_a_copy_to_images(no_images):
    x = planes(torch.randn(3, 5, 4, 4))
    assert passes.resized(x, 4) is x
    assert passes.resized(x, 8).shape == passes.resized(x, (8, 8)).shape == (3, 5, 8, 8)
    assert passes.resized(x, 12).shape == (3, 5, 12, 12)


@pytest.mark.parametrize("size", [(1, 1), (2, 2), (3, 3), (7, 7), (2, 5), (5, 2)])
def test_means_of_planes_are_those_of_their_images(size, no_images):
    x = torch.randn(9, 3, *size)
    wanted = x.mean((2, 3))
    torch.testing.assert_close(passes.mean(planes(x)), wanted)
    torch.testing.assert_close(passes.mean_as_images(planes(x)), wanted[:, :, None, None])


@pytest.mark.parametrize("size", [(1, 1), (2, 3), (6, 4), (3, 4)])
def test_planes_are_averaged_to_a_size_as_images_are(size):
    x = torch.randn(3, 5, 6, 4)
    found = passes.as_images(passes.averaged_to(planes(x), *size))
    torch.testing.assert_close(found, functional.adaptive_avg_pool2d(x, size))


def test_planes_of_the_wanted_size_are_not_averaged(no_images):
    x = planes(torch.randn(3, 5, 6, 4))
    assert passes.averaged_to(x, 6, 4) is x


@pytest.mark.parametrize("name", ["add", "mul", "sub", "maximum"])
def test_two_batches_of_planes_are_combined_pixel_by_pixel(name):
    x, y = torch.randn(2, 3, 5, 6, 4)
    wanted = getattr(torch, name)(x, y)
    for border in (1, 2):  # planes of another border are combined as images
        found = passes.combined(planes(x), planes(y, border), name)
        assert torch.equal(passes.as_images(found), wanted)
        assert found.border == 1


def test_planes_of_equal_borders_are_combined_without_a_copy_to_images(no_images):
    x, y = (planes(each) for each in torch.randn(2, 3, 5, 6, 4))
    assert torch.equal(passes.combined(x, y, "sub").data, x.data - y.data)


@pytest.mark.parametrize("border", [0, 1, 2])
def test_planes_are_concatenated_along_the_channels(border, no_images):
    parts = [torch.randn(3, channels, 6, 4) for channels in (2, 1, 5)]
    found = passes.concatenated(*(planes(each, border) for each in parts))
    assert torch.equal(found.data, planes(torch.cat(parts, 1), border).data)
    assert found.channels == 8


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (torch.zeros(3, 4, 4), r"got \(3, 4, 4\)"),
        (torch.zeros(0, 3, 4, 4), r"got \(0, 3, 4, 4\)"),
        ([1.0], "got list"),
    ],
)
def test_only_images_are_copied_into_planes(x, words):
    with pytest.raises(BadInput, match=words):
        planes(x)


def on_planes(function, *inputs):
    """What the passes of a function's nodes give for images in planes; None if a node has no pass."""
    traced = fx.symbolic_trace(nn.Sequential(function) if isinstance(function, nn.Module) else function)
    modules, graph, own, plain = dict(traced.named_modules()), fx.Graph(), {}, {}
    for node in traced.graph.nodes:
        if node.op == "placeholder":
            own[node] = graph.placeholder(node.name)
        elif node.op == "output":
            (last,) = node.all_input_nodes
            graph.output(own.get(last, plain.get(last)))
        elif node.all_input_nodes[0] in own:
            add = pass_of(node, modules)
            made = None if add is None else add(NodeOfPass(graph, own, node, plain.__getitem__))
            if made is None:
                return None
            (own if made.is_planes else plain)[node] = made.node
        else:
            plain[node] = graph.node_copy(node, plain.__getitem__)
    found = fx.GraphModule(traced, graph)(*map(planes, inputs))
    return passes.as_images(found) if isinstance(found, passes.Planes) else found


def drawn(count):
    return torch.randn(count, 3, 8, 6, 6, generator=torch.Generator().manual_seed(1)).unbind()


@pytest.mark.parametrize(
    "function",
    [
        *(nn.ReLU(), nn.ReLU6(), nn.SiLU(), nn.GELU(), nn.Hardswish(), nn.LeakyReLU(0.3), nn.Tanh()),
        *(nn.Identity(), nn.Dropout2d().eval()),
        *(lambda x: functional.relu(x), lambda x: x.relu(), lambda x: torch.tanh(x)),
        lambda x: functional.gelu(x, approximate="tanh"),
        *(lambda x: x * 3, lambda x: x / 1.5, lambda x: torch.mul(x, 0.5), lambda x: x.contiguous()),
        *(nn.AvgPool2d(2), nn.AvgPool2d(3, 2, 1), nn.AvgPool2d(3, 1), nn.MaxPool2d(3, 2, 1), nn.MaxPool2d(2)),
        *(nn.Upsample(scale_factor=2), nn.Upsample(scale_factor=3.0, mode="nearest")),
        lambda x: functional.interpolate(x, scale_factor=2),
        lambda x: functional.interpolate(x, scale_factor=2.0, mode="nearest"),
        *(nn.AdaptiveAvgPool2d(1), nn.AdaptiveAvgPool2d((3, 3)), nn.AdaptiveAvgPool2d((1, 1))),
        lambda x: functional.adaptive_avg_pool2d(x, 2),
        lambda x: functional.adaptive_avg_pool2d(x, output_size=(1, 1)),
        *(lambda x: x.mean((2, 3)), lambda x: x.mean([-1, -2]), lambda x: x.mean((2, 3), True)),
        *(lambda x: torch.mean(x, dim=(3, 2), keepdim=True), lambda x: torch.mean(x, (-2, 3), keepdim=False)),
        *(nn.Flatten(), lambda x: torch.flatten(x, 1), lambda x: x.flatten(1)),
    ],
)
def test_a_pass_over_planes_computes_what_its_node_does_on_images(function):
    (x,) = drawn(1)
    found = on_planes(function, x)
    assert found is not None
    torch.testing.assert_close(found, function(x))


@pytest.mark.parametrize(
    "function",
    [
        *(lambda x, y: x + y, lambda x, y: x - y, lambda x, y: x * y),
        *(lambda x, y: torch.maximum(x, y), lambda x, y: torch.sub(x, y)),
        *(lambda x, y: x.add(y), lambda x, y: torch.cat([x, y], 1), lambda x, y: torch.cat((y, x), dim=-3)),
        lambda x, y: functional.interpolate(x, size=y.shape[2:]),
        lambda x, y: functional.interpolate(x, size=y.size()[2:], mode="nearest"),
    ],
)
def test_a_pass_over_two_batches_of_planes_computes_what_its_node_does_on_images(function):
    x, y = drawn(2)
    torch.testing.assert_close(on_planes(function, x, y), function(x, y))


@pytest.mark.parametrize(
    "function",
    [
        *(lambda x: x + 1, lambda x: 2 - x, lambda x: x.add(1), lambda x: x.sigmoid(), nn.Sigmoid()),
        *(
            lambda x: 3 / x,
            lambda x: torch.relu(x).cos(),
            lambda x: functional.hardsigmoid(x),
            lambda x: torch.exp(x),
        ),
        nn.AvgPool2d(2, ceil_mode=True),
        nn.AvgPool2d(3, 1, 1, count_include_pad=False),
        nn.AvgPool2d(2, divisor_override=3),
        *(nn.AvgPool2d((2, 3)), nn.AvgPool2d(2, (1, 2)), nn.MaxPool2d(2, dilation=2)),
        *(nn.Upsample(scale_factor=2, mode="bilinear"), nn.Upsample(scale_factor=1.5), nn.Upsample(size=9)),
        *(lambda x: functional.interpolate(x, scale_factor=1.5), lambda x: functional.interpolate(x, 12)),
        lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear"),
        lambda x: functional.interpolate(x, scale_factor=2, recompute_scale_factor=True),
        *(nn.AdaptiveAvgPool2d((2, 3)), nn.AdaptiveAvgPool2d((None, 1)), nn.AdaptiveMaxPool2d(1)),
        *(lambda x: x.mean((1, 2)), lambda x: x.mean(3), lambda x: x.mean(), lambda x: x.mean((1, 2, 3))),
        *(nn.Flatten(2), nn.Flatten(0), nn.Flatten(1, 2), lambda x: x.flatten(2), lambda x: x.flatten(1, 2)),
    ],
)
def test_a_node_without_a_pass_reads_images(function):
    function(*drawn(1))  # which torch computes
    assert on_planes(function, *drawn(1)) is None


@pytest.mark.parametrize(
    "function",
    [
        *(lambda x, y: torch.add(x, y, alpha=2), lambda x, y: torch.cat([x, y]), lambda x, y: x / y),
        *(
            lambda x, y: torch.cat([x, y], 2),
            lambda x, y: torch.minimum(x, y),
            lambda x, y: torch.stack([x, y]),
        ),
    ],
)
def test_a_node_of_two_batches_without_a_pass_reads_images(function):
    function(*drawn(2))  # which torch computes
    assert on_planes(function, *drawn(2)) is None


def test_sizes_of_planes_are_those_of_their_images():
    (x,) = drawn(1)
    for function in (lambda x: x.shape, lambda x: x.size(), lambda x: x.size(2)):
        assert on_planes(function, x) == function(x)
