"""`SparseConv2d` without a GPU: what it takes over, computes, refuses, and how images come into planes."""

import copy
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from prunecast.errors import BadInput  # noqa: E402
from prunecast.hardware import load_gpu  # noqa: E402
from prunecast.kernels import ConvGrid, run_reference  # noqa: E402
from prunecast.models import estimate  # noqa: E402
from prunecast.patterns import parse_pattern  # noqa: E402
from prunecast.plan.conv_shape import ConvShape  # noqa: E402
from prunecast.torch import Pruner, SparseConv2d, TileSparseConv2d, sparsify  # noqa: E402
from prunecast.torch.cuda import conv as conv_launches  # noqa: E402
from prunecast.torch.epilogue import PLAIN, PackedLayer  # noqa: E402
from prunecast.torch.planes import images_in, in_planes, planes_behind, planes_of  # noqa: E402
from tests.naive.convolution import planes_of_images  # noqa: E402

GPU = "h200-sxm"


def pruned_conv(size=3, stride=1, channels=12, filters=32, **options):
    torch.manual_seed(0)
    conv = torch.nn.Conv2d(channels, filters, size, stride=stride, padding=size // 2, **options).half()
    pruner = Pruner(torch.nn.Sequential(conv.float()), "tile-wise:16", 0.6)
    pruner.prepare()
    (mask,) = pruner.masks.values()
    return conv.half().eval(), mask


def test_planes_are_those_that_the_grid_describes():
    conv, mask = pruned_conv(stride=2)
    module = SparseConv2d.from_conv(conv, mask, pattern="tile-wise:16", gpu=GPU)
    grid = module.call(5, 7, 9).grid
    x = torch.randn(5, 12, 7, 9)
    images = np.zeros((12, 7, 9, 8))
    images[..., :5] = x.permute(1, 2, 3, 0).numpy()
    wanted = planes_of_images(grid.source, images).astype(np.float32)
    np.testing.assert_array_equal(planes_of(x, 8, 1).numpy(), wanted)
    for lies in (x.to(memory_format=torch.channels_last), torch.randn(5, 12, 9, 7).transpose(2, 3).copy_(x)):
        np.testing.assert_array_equal(planes_of(lies, 8, 1).numpy(), wanted)


@pytest.mark.slow
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_a_compiled_graph_copies_images_by_the_operator(memory_format):
    targets = []

    def seen(graph, _):
        targets.extend(str(node.target) for node in graph.graph.nodes)
        return graph.forward

    def planes(x):
        return planes_of(x.relu(), 16, 1) + 0

    torch._dynamo.reset()
    x = torch.randn(9, 12, 7, 9).to(memory_format=memory_format)
    assert torch.equal(torch.compile(planes, fullgraph=True, backend=seen)(x), planes(x))
    assert sum("prunecast.into_planes" in target for target in targets) == 1


@pytest.mark.parametrize(("size", "stride"), [(1, 1), (1, 2), (3, 1), (3, 2), (5, 1)])
def test_the_plan_on_its_planes_is_what_torch_computes(size, stride):
    conv, mask = pruned_conv(size, stride)
    module = SparseConv2d.from_conv(conv, mask, pattern="tile-wise:16", gpu=GPU, border=max(size // 2, 1))
    sizes, x = module.call(3, 6, 5), torch.randn(3, 12, 6, 5).half()
    plan, grid = module.plan(sizes), sizes.grid
    weights = module.dense_weight().flatten(1).double().numpy()
    c = run_reference(plan, weights, planes_of(x, 8, grid.border).numpy())
    output = grid.output(32)
    out = torch.zeros(output.pixels, 8, dtype=torch.float64)
    for m, row in enumerate(c):
        at = output.first + m * output.plane
        out[at : at + grid.n // 8] = torch.from_numpy(row).view(-1, 8)
    options = {"stride": stride, "padding": size // 2}
    wanted = torch.nn.functional.conv2d(
        x.double(), torch.from_numpy(weights).view(32, 12, size, size), **options
    )
    torch.testing.assert_close(images_in(out, output, 3), wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("sparsity", "slow"), [(0.05, True), (0.75, False)])
def test_a_layer_that_dense_would_be_faster_warns(sparsity, slow):
    conv = torch.nn.Conv2d(128, 128, 3, padding=1).half()
    weights = conv.weight.detach().flatten(1).float().abs().numpy()
    mask = parse_pattern("tile-wise:128").prune({"": weights}, sparsity)[""]
    module = SparseConv2d.from_conv(conv, mask, pattern="tile-wise:128", gpu=GPU)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        module._prepare(module.call(32, 28, 28), torch.empty(0))
    assert ["leave this layer dense" in str(each.message) for each in found] == [True] * slow


def test_zeros_of_the_weights_are_enough():
    conv, mask = pruned_conv()
    module = SparseConv2d.from_conv(conv, pattern="tile-wise:16", gpu=GPU, activation="relu")
    assert np.array_equal(module.product.tile_map.mask(), mask)
    wanted = conv.weight * torch.from_numpy(mask).view_as(conv.weight)
    torch.testing.assert_close(module.dense_weight(), wanted.detach())
    assert "32, 3x3, stride=1, relu" in repr(module)
    assert TileSparseConv2d is SparseConv2d


def test_a_dense_copy_loads_the_state_and_the_other_way_round():
    conv, mask = pruned_conv()
    module, plain = SparseConv2d.from_conv(conv, mask, pattern="tile-wise:16", gpu=GPU), copy.deepcopy(conv)
    assert list(module.state_dict()) == ["weight", "bias"]
    plain.load_state_dict(module.state_dict())
    assert torch.equal(plain.weight, module.dense_weight())
    again = copy.deepcopy(module)
    again.load_state_dict({name: 2 * value for name, value in plain.state_dict().items()})
    assert torch.equal(again.weight, 2 * module.dense_weight())
    assert (module.weight.shape, module.weight.dtype) == (conv.weight.shape, torch.float16)


@pytest.mark.parametrize("gpu", ["h200-sxm", "a100-sxm4-80gb", "t4"])
@pytest.mark.parametrize(("size", "stride", "activation"), [(1, 1, "none"), (3, 2, "relu"), (5, 1, "gelu")])
def test_it_computes_what_torch_does(size, stride, activation, gpu):
    conv, mask = pruned_conv(size, stride)
    options = {"activation": activation, "border": max(size // 2, 1)}
    module = SparseConv2d.from_conv(conv, mask, pattern="tile-wise:16", gpu=gpu, **options)
    plain = copy.deepcopy(conv).float()
    plain.load_state_dict(module.state_dict())
    function = {"none": lambda y: y, "relu": torch.relu, "gelu": torch.nn.functional.gelu}[activation]
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for count, height, width in ((3, 6, 5), (9, 7, 4)):
            x = torch.randn(count, 12, height, width).half()
            wanted = function(plain(x.float()))
            for lies in (x, x.to(memory_format=torch.channels_last)):
                y = module(lies)
                assert y.shape == wanted.shape
                torch.testing.assert_close(y.float(), wanted, rtol=2e-3, atol=2e-3)


def test_layers_behind_one_another_share_planes():
    conv, mask = pruned_conv(channels=32)
    first = SparseConv2d.from_conv(conv, mask, pattern="tile-wise:16", gpu=GPU)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = first(torch.randn(3, 32, 6, 5).half())
        assert in_planes(y) is y
        assert planes_behind(y.relu_()) is not None
        assert in_planes(y + 1) is not y


@pytest.mark.slow
def test_a_compiled_graph_has_ordinary_operators():
    conv, mask = pruned_conv()
    module = SparseConv2d.from_conv(conv, mask, pattern="tile-wise:16", gpu=GPU)
    targets = []

    def seen(graph, _):
        targets.extend(str(node.target) for node in graph.graph.nodes)
        return graph.forward

    torch._dynamo.reset()
    x = torch.randn(9, 12, 7, 9).half()
    with torch.no_grad():
        wanted = torch.relu(module(x)) + module(x)
        found = torch.compile(lambda x: torch.relu(module(x)) + module(x), fullgraph=True, backend=seen)(x)
    assert torch.equal(found, wanted)
    assert sum("prunecast.conv" in target for target in targets) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"groups": 2}, "odd square filters, half of that as padding, one group"),
        ({"dilation": 2}, "odd square filters"),
        ({"padding_mode": "circular"}, "odd square filters"),
    ],
)
def test_convolutions_that_it_does_not_run(options, message):
    conv = torch.nn.Conv2d(8, 16, 3, padding=1, **options).half()
    with pytest.raises(BadInput, match=message):
        SparseConv2d.from_conv(conv, pattern="tile-wise:16", gpu=GPU)


def test_other_refusals():
    conv, mask = pruned_conv()
    with pytest.raises(BadInput, match=r"runs fp16 and bf16 weights, got torch\.float32"):
        SparseConv2d.from_conv(copy.deepcopy(conv).float(), mask, pattern="tile-wise:16", gpu=GPU)
    with pytest.raises(BadInput, match="reach across a border of 0"):
        SparseConv2d.from_conv(conv, mask, pattern="tile-wise:16", gpu=GPU, border=0)
    module = SparseConv2d.from_conv(conv, mask, pattern="tile-wise:16", gpu=GPU)
    with torch.no_grad():
        with pytest.raises(
            BadInput, match=r"x must be \(batch, 12 channels, height, width\), got \(1, 3, 4, 4\)"
        ):
            module(torch.zeros(1, 3, 4, 4).half())
        with pytest.raises(BadInput, match="on cpu like the weights"):
            module(torch.zeros(1, 12, 4, 4))
    with pytest.raises(BadInput, match="no gradients"):
        module.train()(torch.zeros(1, 12, 4, 4).half())


def test_sparsify_takes_convolutions_where_asked():
    torch.manual_seed(1)
    stem, body = torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.Conv2d(16, 32, 3, padding=1)
    wide, head = torch.nn.Conv2d(32, 32, 5, padding=2, bias=False), torch.nn.Linear(32, 8)
    model = torch.nn.Sequential(stem, torch.nn.ReLU(), torch.nn.Sequential(body, torch.nn.ReLU()), wide, head)
    model = model.half().eval()
    done = sparsify(
        model,
        "tile-wise:16",
        gpu=GPU,
        max_tokens=64,
        sparsity=0.6,
        ignore=["4"],
        convolutions=True,
        only_gains=False,
        quiet=True,
    )
    assert done.layers == ("2.0", "3")
    assert any("0: 16 x 27 is no multiple of 8" in line for line in done.left)
    assert [type(module).__name__ for module in model] == [
        "SparseConv2d",
        "ReLU",
        "Sequential",
        "SparseConv2d",
        "Linear",
    ]
    assert (model[2][0].activation, model[3].activation, model[2][0].border) == ("relu", "none", 2)
    assert 0.55 < 1 - model[3].density < 0.65


def test_sparsify_leaves_convolutions_where_not():
    model = torch.nn.Sequential(torch.nn.Conv2d(16, 32, 3, padding=1), torch.nn.Linear(32, 32)).half()
    done = sparsify(model, "tile-wise:16", gpu=GPU, max_tokens=64, sparsity=0.6, target=["1"], quiet=True)
    assert done.layers == ("1",)
    assert type(model[0]) is torch.nn.Conv2d


def test_the_seconds_of_a_call_are_those_of_its_plan():
    conv, mask = pruned_conv(channels=64, filters=64)
    module = SparseConv2d.from_conv(conv, mask, pattern="tile-wise:16", gpu=GPU)
    of_14 = SimpleNamespace(convolution=SimpleNamespace(batch=8, height=14, width=14))
    plan = module.plan(module.call(8, 14, 14))
    assert plan.n >= 8 * 14 * 14
    assert module.seconds(of_14) == estimate(plan, load_gpu(GPU)).seconds


@pytest.fixture
def launched(monkeypatch):
    """Calls of the operator of a prepared launch with 24 filters, which reads the second packed weights."""
    calls = []
    operator = SimpleNamespace(plan=SimpleNamespace(m=24), at=lambda *given: calls.append(given))
    prepared = SimpleNamespace(operator=operator, image=1)
    monkeypatch.setattr(conv_launches, "prepared_launch", lambda layer, grid, planes: prepared)
    monkeypatch.setattr(conv_launches, "stream_of", lambda device: 77)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: -1, raising=False)  # that of the CPU
    return calls


@pytest.mark.parametrize("second", [0, 24])
@pytest.mark.parametrize("has_bias", [False, True])
def test_a_launch_reads_and_writes_planes_where_they_lie(launched, second, has_bias):
    grid = ConvGrid(conv=ConvShape.square(12, 7, 3, padding=1, batch=16), border=2, second=second)
    images, bias = [torch.zeros(4) for _ in range(2)], torch.zeros(24) if has_bias else None
    layer = PackedLayer(images, torch.zeros(1), bias, GPU, 0, PLAIN)
    planes = torch.zeros(grid.source.pixels, 16).half()
    launch = conv_launches.ConvLaunch.of(grid, layer, planes)
    more = torch.zeros(grid.output(second).pixels, 16).half() if second else None
    out = launch(planes, more)
    assert out.shape == (grid.output(24).pixels, 16)
    ((call, read, written, stream, added),) = launched
    assert (read, stream, added) == (planes.data_ptr(), 77, more.data_ptr() if second else 0)
    assert (call.weights, call.bias) == (images[1].data_ptr(), bias.data_ptr() if has_bias else 0)
    pixel = 16 * 2  # images of two bytes
    # A line has 7 pixels and 2 zeros behind them; the first image begins in the third pixel of the third line
    assert written == out.data_ptr() + (2 * 9 + 2) * pixel
    assert (call.b_row_bytes, call.c_row_bytes, call.tokens) == (pixel, 9 * 9 * pixel, grid.n)


def test_planes_of_other_sizes_are_not_launched(launched):
    grid = ConvGrid(conv=ConvShape.square(12, 7, 3, padding=1, batch=16), border=2, second=24)
    layer = PackedLayer([torch.zeros(4)] * 2, torch.zeros(1), None, GPU, 0, PLAIN)
    planes, more = (torch.zeros(pixels, 16).half() for pixels in (grid.source.pixels, grid.output(24).pixels))
    launch = conv_launches.ConvLaunch.of(grid, layer, planes)
    for given in ((planes,), (planes[1:], more), (planes, more[1:]), (planes.t().contiguous().t(), more)):
        with pytest.raises(BadInput, match="wanted contiguous planes"):
            launch(*given)
    assert launched == []
