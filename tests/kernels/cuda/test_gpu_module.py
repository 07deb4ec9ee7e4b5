"""`SparseLinear` on a GPU, called again: streams, graphs, threads, devices, memory that comes round."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from prunecast.errors import BadInput
from prunecast.patterns import dense_tile_map, parse_pattern

cp = pytest.importorskip("cupy")
torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("without_gradients")]

M, K = 512, 256
LAYOUTS = ("tokens_first", "features_first")


@pytest.fixture
def without_gradients():
    with torch.no_grad():
        yield


def layers(layout="tokens_first", dtype=torch.float16, device="cuda", **options):
    """The module, and nn.Linear with the same zeros; some rows keep nothing."""
    from prunecast.torch import SparseLinear

    torch.manual_seed(0)
    linear = torch.nn.Linear(K, M, dtype=dtype, device=device).eval()
    mask = parse_pattern("tile-wise:128").prune({"w": np.random.default_rng(0).random((M, K))}, 0.5)["w"]
    mask[128:256] = False
    linear.weight *= torch.from_numpy(mask).to(linear.weight)
    options = {"gpu": "h200-sxm", "max_tokens": 600, "layout": layout, **options}
    return SparseLinear.from_linear(linear, mask, pattern="tile-wise:128", **options), linear


def given(x, layout):
    return x if layout == "tokens_first" else x.t().contiguous()


def assert_near(y, wanted, layout="tokens_first"):
    found = y if layout == "tokens_first" else y.t()
    assert found.shape == wanted.shape
    assert (found.float() - wanted.float()).abs().max() < 1e-2 * wanted.float().abs().max()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("tokens", [1, 7, 64, 197, 200, 512])
def test_calls_again_are_like_the_first(layout, tokens, dtype):
    module, linear = layers(layout, dtype)
    for _ in range(4):
        x = torch.randn(tokens, K, device="cuda", dtype=dtype)
        y = module(given(x, layout))
        assert_near(y, linear(x), layout)
        assert torch.equal(module(given(x, layout)), y)
        module.product._eager = None
        assert torch.equal(module(given(x, layout)), y)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_inputs_that_begin_elsewhere_and_calls_between_them(layout):
    module, linear = layers(layout)
    memory = torch.randn(K * 200 + 64, device="cuda", dtype=torch.float16)
    for offset in (0, 8, 1, 8, 4, 0, 16):
        x = memory[offset:][: 200 * K].view(*((200, K) if layout == "tokens_first" else (K, 200)))
        assert_near(module(x), linear(x if layout == "tokens_first" else x.t()), layout)


def test_work_goes_to_the_current_stream_and_memory_comes_round():
    """B of one call is freed at once, and the next call on the stream takes its memory."""
    module, linear = layers()
    x = torch.randn(300, K, device="cuda", dtype=torch.float16)
    module(x)
    streams = [torch.cuda.current_stream(), torch.cuda.Stream()]
    for turn in range(40):
        stream = streams[turn % 2]
        with torch.cuda.stream(stream):
            source = torch.randn(300, K, device="cuda", dtype=torch.float16)
            x = torch.zeros_like(source)
            torch.cuda._sleep(2_000_000)
            x.copy_(source)
            y = module(x)
            filler = torch.full((K, 320), float("nan"), device="cuda", dtype=torch.float16)
            kept = y.clone()
        stream.synchronize()
        assert_near(kept, linear(source))
        del filler


@pytest.mark.parametrize("tokens", [1, 64, 300])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_prepared_call_is_captured(layout, tokens):
    module, linear = layers(layout)
    source = given(torch.randn(tokens, K, device="cuda", dtype=torch.float16), layout)
    for _ in range(3):
        module(source)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = module(source)
        z = module(source) + 1
    for _ in range(3):
        source.copy_(torch.randn_like(source))
        module(source + 1)  # other addresses between the replays
        graph.replay()
        torch.cuda.synchronize()
        x = source if layout == "tokens_first" else source.t()
        assert_near(y, linear(x), layout)
        assert torch.equal(z, y + 1)


def test_threads_of_their_own_call_it_too():
    """A thread that has used no GPU has no context, though memory is there for it."""
    module, _ = layers()
    x = torch.randn(64, K, device="cuda", dtype=torch.float16)
    wanted, gate = module(x), threading.Barrier(4)
    torch.cuda.synchronize()

    def work(_):
        with torch.no_grad():
            gate.wait()
            return [module(x).clone() for _ in range(50)]

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(work, range(4)))
    torch.cuda.synchronize()
    assert all(torch.equal(y, wanted) for one in found for y in one)


def test_a_thread_launches_before_it_does_anything_else():
    module, _ = layers("features_first")
    x = torch.randn(K, 64, device="cuda", dtype=torch.float16)
    wanted, found = module(x), []
    module(x)
    thread = threading.Thread(target=torch.no_grad()(lambda: found.append(module(x))))
    thread.start()
    thread.join()
    torch.cuda.synchronize()
    assert torch.equal(found[0], wanted)


def test_what_is_wrong_is_refused_after_right_calls():
    module, _ = layers()
    x = torch.randn(64, K, device="cuda", dtype=torch.float16)
    module(x)
    for wrong in (x.float(), x.cpu(), x[:, 8:], x.bfloat16(), x.expand(10, 64, K)):
        with pytest.raises(BadInput):
            module(wrong)
    with torch.enable_grad():
        assert module(x.clone().requires_grad_()).requires_grad
        assert not module.eval()(x).requires_grad


def test_inference_mode_and_weights_that_change():
    module, linear = layers()
    with torch.inference_mode():
        x = torch.randn(64, K, device="cuda", dtype=torch.float16)
        for _ in range(3):
            assert_near(module(x), linear(x))
    state = {name: value.clone() for name, value in module.state_dict().items()}
    state["bias"] += 1
    module.load_state_dict(state)
    x = torch.randn(64, K, device="cuda", dtype=torch.float16)
    for _ in range(3):
        assert_near(module(x), linear(x) + 1)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_module_on_another_device_than_the_current_one():
    module, linear = layers(device="cuda:1")
    x = torch.randn(64, K, device="cuda:1", dtype=torch.float16)
    for _ in range(3):
        assert torch.cuda.current_device() == 0
        assert_near(module(x), linear(x))
    module.to("cuda:0")
    linear.to("cuda:0")
    for _ in range(3):
        assert_near(module(x.to("cuda:0")), linear(x.to("cuda:0")))


def test_dense_tiles_in_the_form_of_256_rows():
    from prunecast.torch import SparseLinear

    linear = torch.nn.Linear(1024, 1024, dtype=torch.float16, device="cuda").eval()
    kept = dense_tile_map(1024, 1024, 256)
    module = SparseLinear.from_linear(linear, kept, gpu="h200-sxm", max_tokens=4096)
    for _ in range(3):
        x = torch.randn(4096, 1024, device="cuda", dtype=torch.float16)
        assert_near(module(x), linear(x))
