"""Operators between CuPy and torch on a GPU: nothing is copied, streams and graphs are the caller's."""

import numpy as np
import pytest

from prunecast.choice import fastest_plan
from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.kernels import compile
from prunecast.patterns import dense_tile_map, element_map_from_mask
from prunecast.patterns.n_of_m import prune_balanced
from tests.kernels.cuda.plans import plan_of

cp = pytest.importorskip("cupy")
pytestmark = pytest.mark.gpu

H200 = load_gpu("h200-sxm")
M, K = 256, 320


def weights():
    return np.random.default_rng(0).standard_normal((M, K), dtype=np.float32)


def balanced(n, dtype="fp32"):
    mask = prune_balanced(np.random.default_rng(1).random((M, K)), 0.75, width=64)
    plan = fastest_plan("balanced", element_map_from_mask(mask, "balanced:64"), n, dtype, H200)
    return compile(plan, weights()), weights() * mask


def tiles(n, dtype="fp16"):
    return compile(plan_of(dense_tile_map(M, K, 128), n, 128, 128, dtype=dtype), weights()), weights()


def near(c, wanted, dtype):
    error = abs(np.asarray(c, np.float64) - wanted).max() / abs(wanted).max()
    return error < {"fp32": 1e-5, "fp16": 2e-3, "bf16": 2e-2}[dtype]


@pytest.mark.parametrize("n", [1, 64, 200, 201])
@pytest.mark.parametrize(
    ("make", "dtype"), [(balanced, "fp32"), (balanced, "bf16"), (tiles, "fp16"), (tiles, "bf16")]
)
def test_tensors_go_in_and_come_back(make, dtype, n):
    torch = pytest.importorskip("torch")
    operator, a = make(n, dtype)
    kind = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[dtype]
    b = torch.randn(K, n, dtype=kind, device="cuda")
    wanted = a @ b.double().cpu().numpy()
    c = operator(b)
    assert isinstance(c, torch.Tensor)
    assert c.dtype == kind
    assert near(c.double().cpu().numpy(), wanted, dtype)
    out = torch.full((M, n), float("nan"), dtype=kind, device="cuda")
    assert operator(b, out=out) is out
    assert near(out.double().cpu().numpy(), wanted, dtype)


def test_rows_that_are_not_aligned_are_copied():
    operator, a = balanced(64)
    wide = cp.random.standard_normal((K, 67), dtype=cp.float32)
    out = cp.full((M, 67), cp.nan, cp.float32)
    operator(wide[:, 3:], out=out[:, 1:65])
    assert near(out[:, 1:65].get(), a @ wide[:, 3:].get().astype(np.float64), "fp32")
    assert cp.isnan(out[:, 0]).all()
    assert cp.isnan(out[:, 65:]).all()


@pytest.mark.parametrize("make", [balanced, tiles])
def test_padding_of_rows_of_b_is_read_and_comes_to_nothing(make):
    operator, a = make(203)
    kind = cp.float32 if make is balanced else cp.float16
    wide = cp.full((K, 256), cp.nan, kind)
    b = wide[:, :203]
    b[...] = cp.random.standard_normal((K, 203), dtype=cp.float32)
    wanted = a @ b.get().astype(np.float64)
    assert near(operator(b).get(), wanted, "fp16")
    out = cp.full((M, 256), cp.nan, kind)
    operator(b, out=out[:, :203])
    assert near(out[:, :203].get(), wanted, "fp16")
    assert cp.isnan(out[:, 203:]).all()


@pytest.mark.parametrize(("make", "n"), [(balanced, 1), (balanced, 64), (tiles, 64)])
def test_work_goes_to_the_stream_of_torch(make, n):
    """The product must wait for a fill that a slow stream makes, and the reader for the product."""
    torch = pytest.importorskip("torch")
    operator, a = make(n)
    kind = torch.float32 if make is balanced else torch.float16
    source = torch.randn(K, n, dtype=kind, device="cuda")
    operator(source)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        b = torch.zeros_like(source)
        torch.cuda._sleep(20_000_000)
        b.copy_(source)
        c = operator(b).double()
    stream.synchronize()
    assert near(c.cpu().numpy(), a @ source.double().cpu().numpy(), "fp16")


@pytest.mark.parametrize(("make", "n"), [(balanced, 1), (balanced, 200), (tiles, 200), (tiles, 203)])
def test_it_is_captured_in_a_graph_of_torch(make, n):
    torch = pytest.importorskip("torch")
    operator, a = make(n)
    kind = torch.float32 if make is balanced else torch.float16
    b = torch.randn(K, n, dtype=kind, device="cuda")
    operator(b)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        c = operator(b)
    b.copy_(torch.randn_like(b))
    graph.replay()
    torch.cuda.synchronize()
    assert near(c.double().cpu().numpy(), a @ b.double().cpu().numpy(), "fp16")


@pytest.mark.parametrize(("make", "n"), [(balanced, 1), (balanced, 200), (tiles, 200)])
def test_it_is_captured_in_a_graph_of_cupy(make, n):
    operator, a = make(n)
    dtype = cp.float32 if make is balanced else cp.float16
    b = cp.random.standard_normal((K, n), dtype=cp.float32).astype(dtype)
    c = cp.full((M, n), cp.nan, dtype)
    stream = cp.cuda.Stream(non_blocking=True)
    cp.cuda.Device().synchronize()
    with stream:
        operator(b, out=c)
        stream.begin_capture()
        operator(b, out=c)
        graph = stream.end_capture()
        b[...] = cp.random.standard_normal((K, n), dtype=cp.float32).astype(dtype)
        c[...] = cp.nan
        graph.launch(stream)
    stream.synchronize()
    assert near(c.get(), a @ b.get().astype(np.float64), "fp16")


def test_what_does_not_fit_is_refused_before_the_launch():
    torch = pytest.importorskip("torch")
    operator, _ = balanced(64)
    before = operator.clock.get()
    good = torch.zeros((K, 64), device="cuda")
    for wrong in (good[:-1], good.half(), good.cpu(), good.t(), good.clone().requires_grad_()):
        with pytest.raises(BadInput):
            operator(wrong)
    with pytest.raises(BadInput, match="C must be of torch like B"):
        operator(good, out=cp.zeros((M, 64), cp.float32))
    assert (operator.clock.get() == before).all()


def test_a_copy_has_memory_of_its_own():
    operator, _ = balanced(64)
    other = operator.copy()
    b = cp.random.standard_normal((K, 64), dtype=cp.float32)
    assert (other(b) == operator(b)).all()
    assert other.clock.data.ptr != operator.clock.data.ptr


@pytest.mark.parametrize("layout", ["tokens_first", "features_first"])
def test_the_module_is_the_linear_layer(layout):
    torch = pytest.importorskip("torch")
    from prunecast.torch import SparseLinear

    linear = torch.nn.Linear(4096, 4096, dtype=torch.float16, device="cuda").eval()
    kept = dense_tile_map(4096, 4096, 128)
    module = SparseLinear.from_linear(linear, kept, gpu=H200, max_tokens=300, layout=layout)
    with torch.no_grad():
        for shape in ((1, 4096), (2, 33, 4096), (300, 4096)):
            x = torch.randn(shape, dtype=torch.float16, device="cuda")
            wanted = linear(x)
            if layout == "tokens_first":
                y = module(x)
            else:
                y = module(x.reshape(-1, 4096).t().contiguous()).t().reshape(wanted.shape)
            assert y.shape == wanted.shape
            assert (y - wanted).abs().max() < 4e-3 * wanted.abs().max()


def test_a_chain_of_layers_copies_nothing_features_first():
    torch = pytest.importorskip("torch")
    from prunecast.torch import SparseLinear

    linear = torch.nn.Linear(4096, 4096, dtype=torch.float16, device="cuda").eval()
    options = {"gpu": H200, "max_tokens": 128, "layout": "features_first"}
    module = SparseLinear.from_linear(linear, dense_tile_map(4096, 4096, 128), **options)
    with torch.no_grad():
        hidden = torch.relu(module(torch.randn(4096, 128, dtype=torch.float16, device="cuda")))
        assert hidden.is_contiguous()
        module(hidden)
        torch.cuda.synchronize()
        before = torch.cuda.memory_stats()["allocation.all.allocated"]
        y = module(hidden)
        assert torch.cuda.memory_stats()["allocation.all.allocated"] - before == 1  # C alone
        wanted = linear(hidden.t()).t()
        assert (y - wanted).abs().max() < 4e-3 * wanted.abs().max()
