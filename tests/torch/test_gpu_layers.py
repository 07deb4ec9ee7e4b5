"""Layers on a GPU: kernels without wgmma under torch, convolutions, weights that are read in a capture."""

import warnings

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cupy")

from prunecast.hardware import load_gpu  # noqa: E402
from prunecast.patterns import parse_pattern  # noqa: E402
from prunecast.torch import SparseConv2d, SparseLinear, sparsify  # noqa: E402
from prunecast.torch.weight_layouts import layout_of  # noqa: E402

pytestmark = pytest.mark.gpu

GPU = "h200-sxm"


def pruned(layer, pattern, sparsity=0.6):
    weight = layer.weight.detach().flatten(1).abs().float().cpu().numpy()
    mask = parse_pattern(pattern).prune({"w": weight}, sparsity)["w"]
    with torch.no_grad():
        layer.weight *= torch.from_numpy(mask).view_as(layer.weight).to(layer.weight)
    return layer, mask


def assert_near(y, wanted, dtype=torch.float16):
    error = (y.double() - wanted.double()).abs().max() / wanted.double().abs().max()
    assert error < {torch.float16: 4e-3, torch.bfloat16: 2e-2, torch.float32: 2e-6}[dtype]


@pytest.mark.parametrize("tokens", [1, 13, 200, 2048])
@pytest.mark.parametrize(
    ("gpu", "dtype", "kind"),
    [
        ("h200-sxm", torch.float32, "none"),
        ("a100-sxm4-80gb", torch.float16, "mma"),
        ("a100-sxm4-80gb", torch.bfloat16, "mma"),
        ("a100-sxm4-80gb", torch.float32, "none"),
    ],
)
def test_kernels_without_wgmma_run_on_newer_gpus_too(gpu, dtype, kind, tokens, monkeypatch):
    """Planned for another GPU, of which this one runs the code."""
    from prunecast.torch import choose_layers
    from prunecast.torch.cuda import launches

    monkeypatch.setattr(launches, "check_gpu", lambda *_: None)
    monkeypatch.setattr(choose_layers, "check_gpu", lambda *_: None)
    torch.manual_seed(0)
    layer, _ = pruned(torch.nn.Linear(512, 768, device="cuda").to(dtype).eval(), "tile-wise:64")
    model = torch.nn.Sequential(layer, torch.nn.GELU())
    wanted_of = torch.nn.Sequential(torch.nn.Linear(512, 768), torch.nn.GELU()).double().cuda()
    wanted_of.load_state_dict(model.state_dict())
    sparsify(model, "tile-wise:64", gpu=gpu, max_tokens=2048, few_tokens=False, quiet=True)
    assert layout_of(model[0].product.images[0]).kind == kind
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(tokens, 512, device="cuda").to(dtype)
            assert_near(model(x), wanted_of(x.double()), dtype)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Inductor's own, which the reset imports
            torch._dynamo.reset()
            y = torch.compile(model, fullgraph=True)(x)
        assert_near(y, wanted_of(x.double()), dtype)


def test_gpu_spec_is_that_of_the_device():
    assert load_gpu(GPU).has_wgmma


@pytest.mark.parametrize("read", ["dtype", "shape"])
def test_attributes_of_weights_are_read_while_a_graph_is_captured(read):
    layer, mask = pruned(torch.nn.Linear(256, 512, device="cuda").half().eval(), "tile-wise:128")
    sparse = SparseLinear.from_linear(layer, mask, pattern="tile-wise:128", gpu=GPU, max_tokens=256)

    def forward(x):
        assert getattr(sparse.weight, read) == getattr(layer.weight, read)
        return sparse(x.to(sparse.weight.dtype))

    with torch.no_grad():
        x = torch.randn(64, 256, device="cuda")
        forward(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = forward(x)
        x.copy_(torch.randn_like(x))
        graph.replay()
        assert_near(y, torch.nn.functional.linear(x.half(), layer.weight, layer.bias))
        assert torch.equal(sparse.weight, layer.weight)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(("size", "stride", "count"), [(3, 1, 8), (3, 2, 5), (1, 1, 16)])
def test_convolutions_are_those_of_torch(size, stride, count, compiled):
    torch.manual_seed(0)
    conv = torch.nn.Conv2d(64, 128, size, stride=stride, padding=size // 2).half().cuda().eval()
    conv, mask = pruned(conv, "tile-wise:128")
    options = {"gpu": GPU, "activation": "relu", "border": 1}
    module = SparseConv2d.from_conv(conv, mask, pattern="tile-wise:128", **options)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch._dynamo.reset()
        run = torch.compile(module, fullgraph=True) if compiled else module
        for height, width in ((28, 28), (14, 15)):
            for layout in (torch.contiguous_format, torch.channels_last):
                x = torch.randn(count, 64, height, width, device="cuda").half().to(memory_format=layout)
                assert_near(run(x), torch.relu(conv.float()(x.float())))
                conv.half()
        module(x)
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            y = module(x)
        x.copy_(torch.randn_like(x))
        graph.replay()
        assert_near(y, torch.relu(conv.float()(x.float())))


class Experts(torch.nn.Module):
    """Gated experts as transformers has them, one after the other."""

    def __init__(self, experts=5, hidden=256, width=192):
        super().__init__()
        shapes = {"gate_up_proj": (experts, 2 * width, hidden), "down_proj": (experts, hidden, width)}
        for name, shape in shapes.items():
            weight = torch.randn(shape, device="cuda") * shape[-1] ** -0.5
            self.register_parameter(name, torch.nn.Parameter(weight))
        self.act_fn = torch.nn.SiLU()

    def forward(self, x, chosen, shares):
        out = torch.zeros_like(x)
        for expert in range(len(self.gate_up_proj)):
            token, place = torch.where(chosen == expert)
            gate, up = (x[token] @ self.gate_up_proj[expert].T).chunk(2, -1)
            y = (self.act_fn(gate) * up) @ self.down_proj[expert].T
            out.index_add_(0, token, y * shares[token, place, None])
        return out


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_experts_are_those_with_their_zeros(dtype):
    """Eager, compiled whole, and replayed with another choice of experts; index 5 is none."""
    torch.manual_seed(0)
    model = torch.nn.ModuleDict({"experts": Experts().to(dtype)})
    zeros = torch.nn.ModuleDict({"experts": Experts().to(dtype)})
    done = sparsify(model, "tile-wise:64", sparsity=0.6, gpu=GPU, max_tokens=256, quiet=True)
    assert done.layers == ("experts.gate_up_proj", "experts.down_proj")
    zeros.load_state_dict(model.state_dict())
    sparse, dense = model["experts"], zeros["experts"].double()
    compiled = torch.compile(sparse, fullgraph=True, backend="aot_eager", dynamic=True)
    with torch.no_grad():
        for tokens in (1, 9, 64, 65, 256):
            x, shares = (
                torch.randn(tokens, 256, device="cuda").to(dtype),
                torch.rand(tokens, 2, device="cuda"),
            )
            chosen = torch.stack([torch.randperm(6, device="cuda")[:2] for _ in range(tokens)])
            assert_near(sparse(x, chosen, shares), dense(x.double(), chosen, shares.double()), dtype)
            assert_near(compiled(x, chosen, shares), dense(x.double(), chosen, shares.double()), dtype)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                y = sparse(x, chosen, shares)
            x.copy_(torch.randn_like(x))
            chosen.copy_((chosen + 1) % 6)
            graph.replay()
            assert_near(y, dense(x.double(), chosen, shares.double()), dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("heads", "width", "periods"), [(3, 64, 37), (64, 128, 8)])
def test_heads_are_rotated_in_place_as_on_a_cpu(heads, width, periods, dtype):
    import prunecast.torch.rotary  # noqa: F401  # defines the operator

    y = torch.randn(296, heads * width + 64, device="cuda").to(dtype)
    cos, sin = torch.randn(2, periods, width, device="cuda").to(dtype)
    wanted = y.cpu().double()
    torch.ops.prunecast.rotate_heads_(wanted, cos.cpu().double(), sin.cpu().double(), heads)
    torch.ops.prunecast.rotate_heads_(y, cos, sin, heads)
    assert_near(y.cpu(), wanted, dtype)
    assert torch.equal(y[:, heads * width :].cpu().double(), wanted[:, heads * width :])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("features", [64, 4096, 11008])
def test_rms_norms_are_quantised_as_on_a_cpu(features, dtype):
    from prunecast.torch.quantise import norm_quantised

    x, weight = (torch.randn(*size, features, device="cuda").to(dtype) for size in ((35,), ()))
    bits, scales = torch.ops.prunecast.norm_quantise(x, weight, 1e-6)
    wanted, right = norm_quantised(x.cpu(), weight.cpu(), 1e-6)
    assert torch.allclose(scales.cpu(), right, rtol=1e-5)
    # Numbers at a limit of e4m3 may go to the other side
    assert (bits.cpu().float() != wanted.float()).float().mean() < 1e-3
