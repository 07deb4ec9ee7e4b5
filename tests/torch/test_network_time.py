"""The predicted time of whole convolutional networks, and which stay dense, without a GPU."""

import copy
import warnings
from collections import Counter
from dataclasses import replace
from itertools import combinations, pairwise

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.nn import functional  # noqa: E402

from prunecast.errors import BadInput  # noqa: E402
from prunecast.hardware import load_gpu  # noqa: E402
from prunecast.torch import SparseConv2d, sparsify  # noqa: E402
from prunecast.torch.network import trace  # noqa: E402
from prunecast.torch.network_time import LEAST_SAVED, NetworkTime  # noqa: E402
from prunecast.workload.graph import Pass, load_pass  # noqa: E402
from prunecast.workload.graph.convolutions import in_planes  # noqa: E402
from prunecast.workload.graph.runtimes import rewritten, torch_costs, torch_seconds, with_sparse  # noqa: E402
from prunecast.workload.torch_model.read_module import read_module  # noqa: E402
from tests.torch.test_network import (  # noqa: E402
    Block,
    Bottleneck,
    Mixer,
    Pyramid,
    ResNet,
    UNet,
    calls,
    ready,
    resnet18,
    vgg,
)

GPU = "h200-sxm"


class Inverted(nn.Module):
    """A block of a MobileNetV3: a depthwise convolution between two of 1x1, whose channels are weighted."""

    def __init__(self, channels, wide):
        super().__init__()
        self.expand = nn.Sequential(nn.Conv2d(channels, wide, 1, bias=False), nn.BatchNorm2d(wide))
        self.depthwise = nn.Sequential(
            nn.Conv2d(wide, wide, 5, padding=2, groups=wide, bias=False), nn.BatchNorm2d(wide)
        )
        self.pool, self.fc1, self.fc2 = (
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(wide, 24, 1),
            nn.Conv2d(24, wide, 1),
        )
        self.project = nn.Sequential(nn.Conv2d(wide, channels, 1, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x):
        y = functional.hardswish(self.depthwise(functional.hardswish(self.expand(x))))
        scale = functional.hardsigmoid(self.fc2(functional.relu(self.fc1(self.pool(y)))))
        return x + self.project(scale * y)


def mobilenet():
    stem = nn.Conv2d(3, 40, 3, 2, 1), nn.Hardswish()
    end = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(40, 1000)
    return ready(nn.Sequential(*stem, Inverted(40, 120), Inverted(40, 240), *end))


def converted(model, shape, **options):
    options = {"sparsity": 0.75, "gpu": GPU, "max_tokens": 64, "quiet": True, "example": shape} | options
    return sparsify(model, "tile-wise:128", convolutions=True, **options)


def content(graph):
    return Counter((o.kind, o.m, o.k, o.n, o.convolution, o.elements_in, o.elements_out) for o in graph)


@pytest.mark.parametrize("norms", [True, False])
def test_a_traced_resnet_is_the_standard_one(norms):
    model = ready(resnet18())
    if not norms:
        for name, module in list(model.named_modules()):
            if isinstance(module, nn.BatchNorm2d):
                model.set_submodule(name, nn.Identity())
    read = read_module(trace(model).graph, model, [(32, 3, 224, 224)])
    assert content(read.graph) == content(load_pass("resnet18", Pass(32, 1)))
    assert set(read.module_of) == set(read.graph.products)


def conversions(model, shape):
    """Copies into planes and out of them: of the graph that is priced, and of the code that runs."""
    network = trace(model)
    read = read_module(network.graph, model, [shape])
    convs = [n for n, m in model.named_modules() if isinstance(m, nn.Conv2d) and m.groups == 1]
    sparse = [n for n in convs if model.get_submodule(n).in_channels % 8 == 0]
    own = frozenset(name for name in read.module_of if read.module_of[name] in sparse)
    graph = with_sparse(rewritten(read.graph, "torch", by_matrix=True), own)
    planes = in_planes(graph)
    into = sum(o.kind == "transpose" for o in graph)
    into += sum(
        o.name in planes and not o.is_sparse and any(each.copied for each in o.extra_moves)
        for o in graph.products.values()
    )
    out = sum(
        (o.name not in planes or not graph.readers(o.name)) and any(each.copied > 0 for each in o.extra_moves)
        for o in graph
    )
    converted(model, shape, target=sparse, only_gains=False)
    names = Counter(calls(model))
    return (into, out), (names["into_planes"], names["as_images"])


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (lambda: ResNet(Block(32, 64), Block(64, 64, 2)), (8, 3, 32, 32)),
        (lambda: ResNet(Bottleneck(32, 16, 64), Bottleneck(64, 32, 64, 2)), (8, 3, 32, 32)),
        (resnet18, (8, 3, 64, 64)),
        (vgg, (8, 3, 16, 16)),
        (UNet, (8, 8, 12, 8)),
        (Pyramid, (8, 8, 12, 8)),
        (Mixer, (8, 8, 9, 7)),
        (mobilenet, (8, 3, 32, 32)),
    ],
)
def test_copies_that_are_priced_are_those_of_the_code(model, shape):
    priced, run = conversions(ready(model()), shape)
    assert priced == run


def test_a_resnet_that_gains_is_sparse():
    model = ready(ResNet(Block(64, 64), Block(64, 128, 2), Block(128, 128), stem=64, last=128))
    done = converted(model, (64, 3, 224, 224), ignore=["fc"])
    assert len(done.layers) >= 5
    assert sum(isinstance(module, SparseConv2d) for module in model.modules()) >= 5


@pytest.mark.parametrize("example", [(32, 3, 224, 224), torch.empty(32, 3, 224, 224).half(), None])
def test_a_network_that_cannot_gain_stays_dense_and_unchanged(example):
    model = mobilenet()
    state, kind = copy.deepcopy(model.state_dict()), type(model)
    with pytest.warns(UserWarning, match=r"left dense: predicted \d+ us sparse, \d+ us dense"):
        done = converted(model, example, quiet=False, max_tokens=32)
    assert done.layers == ()
    assert "the network is left dense: predicted" in done.left[0]
    assert type(model) is kind
    assert state.keys() == model.state_dict().keys()
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


def toy(seconds_of_layer, channels):
    """A chain of convolutions with given seconds if they are sparse, and with given channels between them."""
    model = ready(nn.Sequential(*(nn.Conv2d(*both, 3, padding=1) for both in pairwise(channels))))
    read = read_module(trace(model).graph, model, [(8, channels[0], 56, 56)])
    sparse = {str(i): (lambda _, s=s: s) for i, s in enumerate(seconds_of_layer)}
    return NetworkTime(read, sparse, load_gpu(GPU), "fp16")


ALIKE = (64,) * 6
UNEVEN = (64, 8, 512, 8)


@pytest.mark.parametrize(
    ("seconds", "channels"),
    [
        ((1e-6,) * 5, ALIKE),
        ((1e-3,) * 5, ALIKE),
        ((1e-3, 1e-6, 1e-6, 1e-6, 1e-6), ALIKE),
        ((1e-6, 1e-3, 1e-6, 1e-3, 1e-6), ALIKE),
        ((1e-3, 1e-3, 1e-6, 1e-6, 1e-6), ALIKE),
        ((1e-6, 1e-6, 1e-3, 1e-3, 1e-3), ALIKE),
        # Only the first layer gains, but either other one by itself costs more dense, with its copies
        ((1e-6, 13e-6, 59e-6), UNEVEN),
    ],
)
def test_the_best_layers_are_those_of_all_sets(seconds, channels):
    time = toy(seconds, channels)
    every = [set(found) for count in range(6) for found in combinations(time.layers, count)]
    least = min(time.seconds(each) for each in every)
    assert time.seconds(time.best) <= least / (1.0 - LEAST_SAVED) ** len(seconds)


def run(model, *shapes):
    """Call a model without computing."""
    with torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True):
        for shape in shapes:
            model(torch.empty(shape).half())


def test_a_network_warns_once_at_a_size_at_which_it_is_slower():
    model, large = mobilenet(), (64, 3, 224, 224)
    converted(model, large, only_gains=False)
    with pytest.warns(UserWarning, match="network at 64 x 3 x 224 x 224: .* it is faster dense") as said:
        run(model, large, large)
    assert len(said) == 1


def test_a_network_does_not_warn_at_a_size_at_which_it_gains():
    model = ready(ResNet(Block(64, 64), Block(64, 128, 2), stem=64, last=128))
    converted(model, (64, 3, 224, 224), ignore=["fc"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(model, (64, 3, 224, 224))


@pytest.mark.parametrize(
    ("sparse_us", "words"),
    [
        (140.0, None),
        (149.0, None),
        (150.0, "150 us sparse, 150 us dense"),
        (151.0, "151 us sparse, 150 us dense"),
    ],
)
def test_a_network_warns_from_the_time_on_that_it_needs_dense(sparse_us, words, monkeypatch):
    model, shape = mobilenet(), (2, 3, 64, 64)
    converted(model, shape, only_gains=False)
    times = {True: 1e-6 * sparse_us, False: 150e-6}
    monkeypatch.setattr(NetworkTime, "seconds", lambda self, sparse=frozenset(): times[bool(sparse)])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        run(model, shape)
    assert [words in str(each.message) for each in said] == ([True] if words else [])
    assert all(f"on {GPU}" in str(each.message) for each in said)


def test_a_network_left_dense_tells_both_times(monkeypatch):
    times = {True: 160e-6, False: 150e-6}
    monkeypatch.setattr(NetworkTime, "seconds", lambda self, sparse=frozenset(): times[bool(sparse)])
    with pytest.warns(UserWarning, match="predicted 160 us sparse, 150 us dense"):
        assert converted(mobilenet(), (2, 3, 64, 64), quiet=False).layers == ()


class PixelMlp(nn.Module):
    """A block of a ConvNeXt as torchvision writes it: linear layers read the pixels of all images."""

    def __init__(self, channels):
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm, self.wide = nn.LayerNorm(channels), nn.Linear(channels, 4 * channels)
        self.narrow = nn.Linear(4 * channels, channels)

    def forward(self, x):
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + self.narrow(functional.gelu(self.wide(y))).permute(0, 3, 1, 2)


def test_linear_layers_that_read_pixels_are_planned_for_those_of_the_example():
    model = ready(nn.Sequential(nn.Conv2d(3, 64, 4, 4), PixelMlp(64), PixelMlp(64)))
    dense, x = copy.deepcopy(model), torch.randn(5, 3, 40, 24).half()
    done = converted(model, (5, 3, 40, 24), target=["re:.*(wide|narrow)"], max_tokens=5, only_gains=False)
    assert len(done.layers) == 4
    dense.load_state_dict(model.state_dict())
    with torch.no_grad():
        wanted = dense.float()(x.float())
        torch.testing.assert_close(model(x).float(), wanted, rtol=0.02, atol=0.02)


def test_an_activation_between_linear_layers_of_a_sequence_is_fused():
    middle = nn.Linear(64, 256), nn.GELU(), nn.Dropout(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 64)
    model = ready(nn.Sequential(nn.LayerNorm(64), *middle))
    dense, x = copy.deepcopy(model), torch.randn(5, 7, 64).half()
    sparsify(model, "tile-wise:64", gpu=GPU, max_tokens=64, sparsity=0.5, quiet=True)
    assert type(model[2]) is nn.Identity
    dense.load_state_dict(model.state_dict())
    with torch.no_grad():
        wanted = dense.float()(x.float())
        torch.testing.assert_close(model(x).float(), wanted, rtol=0.02, atol=0.02)


def test_a_convolution_in_groups_needs_the_time_of_its_multiplications():
    model, shape = ready(nn.Sequential(nn.Conv2d(64, 64, 7, padding=3, groups=64))), (32, 64, 56, 56)
    (o,) = (o for o in read_module(trace(model).graph, model, [shape]).graph if o.kind == "depthwise")
    assert o.flops == 2 * 49 * o.elements_out == 2 * 49 * 32 * 64 * 56 * 56
    gpu = load_gpu(GPU)
    wide, slim = (torch_seconds(each, gpu) for each in (o, replace(o, flops=o.flops / 49)))
    start = torch_costs(gpu)["depthwise_s"]
    assert slim == pytest.approx(start + 4 * o.elements_out / gpu.dram_copy_bytes_per_s)
    assert wide == pytest.approx(
        start + 0.5 * o.flops * torch_costs(gpu)["depthwise_clk"] / gpu.sm_count / gpu.clock_burst_hz[0]
    )


def test_an_example_that_does_not_fit_is_one_line_and_changes_nothing():
    model = ready(ResNet(Block(32, 64)))
    state = copy.deepcopy(model.state_dict())
    with pytest.raises(BadInput, match=r"does not run on inputs of \(2, 5, 32, 32\)") as error:
        converted(model, (2, 5, 32, 32))
    assert "\n" not in str(error.value)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
