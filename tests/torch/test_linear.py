"""`SparseLinear.from_linear`: kept weights, layouts, and the weights that it shows."""

import copy

import numpy as np
import pytest

from prunecast.errors import BadInput
from prunecast.patterns import parse_pattern

torch = pytest.importorskip("torch")

from prunecast.torch import SparseLinear, TileSparseLinear  # noqa: E402
from prunecast.torch import packed as packed_module  # noqa: E402
from prunecast.torch.weight_layouts import FRAGMENTS, layout_of  # noqa: E402

M, K = 96, 64
PATTERN = "tile-wise:32"
OPTIONS = {"gpu": "h200-sxm", "max_tokens": 300}
DTYPES = [torch.float16, torch.bfloat16, torch.float32]


def linear(dtype=torch.float16, *, bias=True, seed=0):
    torch.manual_seed(seed)
    return torch.nn.Linear(K, M, bias=bias, dtype=dtype).eval()


def mask(sparsity=0.5, seed=0):
    scores = np.random.default_rng(seed).random((M, K))
    return parse_pattern(PATTERN).prune({"w": scores}, sparsity)["w"]


def layer(seed=0, sparsity=0.5, **options):
    return SparseLinear.from_linear(
        linear(seed=seed), mask(sparsity, seed), pattern=PATTERN, **{**OPTIONS, **options}
    )


def test_the_earlier_name_is_the_same_class():
    assert TileSparseLinear is SparseLinear


def test_a_layer_that_nobody_pruned_is_refused():
    with pytest.raises(BadInput, match="wanted a pruned layer"):
        SparseLinear.from_linear(linear(), pattern=PATTERN, **OPTIONS)


@pytest.mark.parametrize("kind", ["tiles", "tensor", "zeros"])
def test_what_is_kept_may_be_said_in_three_ways(kind):
    plain, kept = linear(torch.bfloat16), mask()
    tiles = parse_pattern(PATTERN).map(kept)
    with torch.no_grad():
        plain.weight *= torch.from_numpy(kept)
    said = {"tiles": tiles, "tensor": torch.from_numpy(kept), "zeros": None}[kind]
    pattern = None if kind == "tiles" else PATTERN
    sparse = SparseLinear.from_linear(plain, said, pattern=pattern, **OPTIONS)
    assert sparse.product.tile_map.fingerprint() == tiles.fingerprint()
    assert torch.equal(sparse.dense_weight(), plain.weight)
    assert torch.equal(sparse.bias, plain.bias)
    assert not list(sparse.parameters())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bias", [True, False])
def test_both_layouts_are_what_torch_computes(dtype, bias):
    plain, kept = linear(dtype, bias=bias), mask()
    x = torch.randn(5, 3, K).to(dtype)
    with torch.no_grad():
        plain.weight *= torch.from_numpy(kept)
        wanted = torch.nn.functional.linear(
            x.float(), plain.weight.float(), plain.bias.float() if bias else None
        ).to(dtype)
        first, second = (
            SparseLinear.from_linear(plain, kept, pattern=PATTERN, layout=layout, **OPTIONS)
            for layout in ("tokens_first", "features_first")
        )
        torch.testing.assert_close(first(x), wanted)
        torch.testing.assert_close(second(x.reshape(-1, K).t()), wanted.reshape(-1, M).t())
    with pytest.raises(BadInput, match=r"x must be \(in_features, tokens\)"):
        second(x)


def test_a_dense_copy_loads_the_state_and_the_other_way_round():
    sparse, plain = layer(), linear(seed=3)
    plain.load_state_dict(sparse.state_dict())
    assert torch.equal(plain.weight, sparse.dense_weight())
    other = copy.deepcopy(sparse)
    with torch.no_grad():
        plain.weight *= 2
    other.load_state_dict(plain.state_dict())
    assert torch.equal(other.dense_weight(), 2 * sparse.dense_weight())


@pytest.mark.parametrize("name", ["weight", "bias"])
def test_a_tensor_of_another_shape_is_named(name):
    sparse = layer()
    state = sparse.state_dict()
    with pytest.raises(RuntimeError, match=f"size mismatch for {name}"):
        sparse.load_state_dict({**state, name: state[name][:-1]})
    with pytest.raises(RuntimeError, match="Unexpected key"):
        sparse.load_state_dict({**state, "scale": state[name]})
    with pytest.raises(RuntimeError, match="Missing key"):
        sparse.load_state_dict({own: tensor for own, tensor in state.items() if own != name})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layout": "rows"}, "layout must be one of tokens_first, features_first, got 'rows'"),
        ({"max_tokens": 0}, "max_tokens must be at least 1"),
        ({"pattern": None}, "a mask needs the pattern"),
        ({"pattern": "2:4"}, "2:4"),
        ({"gpu": "v100-sxm2-32gb"}, "no kernel runs fp16 weights on v100-sxm2-32gb"),
    ],
)
def test_construction_is_refused_in_words(change, message):
    with pytest.raises(BadInput, match=message):
        SparseLinear.from_linear(linear(), mask(), **{"pattern": PATTERN, **OPTIONS, **change})
    with pytest.raises(BadInput, match="the mask must have the weights' shape"):
        SparseLinear.from_linear(linear(), mask()[1:], pattern=PATTERN, **OPTIONS)


@pytest.fixture
def unreadable(monkeypatch):
    """Unpacking fails, as it does while a CUDA graph is captured."""

    def refused(*_):
        raise AssertionError("weights were unpacked")

    monkeypatch.setattr(packed_module, "unpack", refused)


def test_attributes_of_weights_are_read_without_unpacking(unreadable):
    sparse = layer()
    weight = sparse.weight
    assert (weight.dtype, weight.device, weight.shape) == (torch.float16, torch.device("cpu"), (M, K))
    assert (weight.ndim, weight.numel(), weight.size(0), weight.is_cuda) == (2, M * K, M, False)
    assert isinstance(weight, torch.Tensor)
    assert not weight.requires_grad
    assert weight.is_floating_point()
    with pytest.raises(AssertionError, match="were unpacked"):
        weight + 1


def test_values_of_weights_are_read_as_those_of_a_tensor():
    sparse = layer()
    dense, weight = sparse.dense_weight(), sparse.weight
    assert type(weight + 0) is torch.Tensor
    assert torch.equal(weight, dense)
    assert torch.equal(weight.t() @ torch.ones(M).half(), dense.t() @ torch.ones(M).half())
    assert torch.equal(weight.detach().float(), dense.float())
    assert torch.equal(torch.cat([weight, weight])[:M], dense)
    assert np.array_equal(weight.numpy(), dense.numpy())
    assert torch.equal(weight[3], dense[3])
    assert weight.abs().max().item() == dense.abs().max().item()
    x = torch.randn(4, K).half()
    assert torch.equal(torch.nn.functional.linear(x, weight), torch.nn.functional.linear(x, dense))
    assert weight.tolist() == dense.tolist()
    assert repr(weight) == repr(dense)


class AsT5(torch.nn.Module):
    """Reads attributes of the weights in its forward, as T5 does."""

    def __init__(self, own):
        super().__init__()
        self.wo = own

    def forward(self, x):
        if isinstance(self.wo.weight, torch.Tensor) and x.dtype != self.wo.weight.dtype:
            x = x.to(self.wo.weight.dtype)
        return self.wo(x)


@pytest.mark.slow
def test_a_compiled_graph_reads_attributes_and_values():
    own = layer()
    x = torch.randn(8, K)
    torch._dynamo.reset()
    with torch.no_grad():
        compiled = torch.compile(AsT5(own), fullgraph=True, backend="eager")
        assert torch.equal(compiled(x), own(x.half()))
        summed = torch.compile(lambda y: y * own.weight.abs().sum(), fullgraph=True, backend="eager")
        assert torch.equal(summed(x), x * own.dense_weight().abs().sum())


@pytest.mark.parametrize("max_tokens", [64, 65])
def test_a_layer_always_has_weights_for_few_tokens(max_tokens):
    kinds = [layout_of(image).kind for image in layer(max_tokens=max_tokens).product.images]
    assert kinds[-1] == FRAGMENTS
    assert len(kinds) == (1 if max_tokens <= 64 else 2)
