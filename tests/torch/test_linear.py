"""`TileSparseLinear` as far as it goes without a GPU: what it keeps, refuses, saves and loads."""

import numpy as np
import pytest

from prunecast.errors import BadInput
from prunecast.patterns import parse_pattern

torch = pytest.importorskip("torch")

from prunecast.torch import TileSparseLinear  # noqa: E402
from prunecast.torch.linear import token_bucket  # noqa: E402

M, K = 96, 64
PATTERN = "tile-wise:32"
OPTIONS = {"gpu": "h200-sxm", "max_tokens": 300}


def linear(dtype=torch.float16, *, bias=True, seed=0):
    torch.manual_seed(seed)
    return torch.nn.Linear(K, M, bias=bias, dtype=dtype).eval()


def mask(sparsity=0.5, seed=0):
    scores = np.random.default_rng(seed).random((M, K))
    return parse_pattern(PATTERN).prune({"w": scores}, sparsity)["w"]


def module(seed=0, sparsity=0.5, **options):
    return TileSparseLinear.from_linear(
        linear(seed=seed), mask(sparsity, seed), pattern=PATTERN, **{**OPTIONS, **options}
    )


def test_it_keeps_what_the_mask_keeps():
    layer = linear()
    sparse = TileSparseLinear.from_linear(layer, mask(), pattern=PATTERN, **OPTIONS)
    wanted = layer.weight.detach() * torch.from_numpy(mask())
    assert torch.equal(sparse.dense_weight(), wanted)
    assert torch.equal(sparse.bias, layer.bias)
    assert sparse.values.numel() == mask().sum()
    assert not list(sparse.parameters())


@pytest.mark.parametrize("kind", ["tiles", "tensor", "zeros"])
def test_what_is_kept_may_be_said_in_three_ways(kind):
    layer, kept = linear(torch.bfloat16), mask()
    tiles = parse_pattern(PATTERN).map(kept)
    with torch.no_grad():
        layer.weight *= torch.from_numpy(kept)
    said = {"tiles": tiles, "tensor": torch.from_numpy(kept), "zeros": None}[kind]
    pattern = None if kind == "tiles" else PATTERN
    sparse = TileSparseLinear.from_linear(layer, said, pattern=pattern, **OPTIONS)
    assert sparse.tiles().fingerprint() == tiles.fingerprint()
    assert torch.equal(sparse.dense_weight(), layer.weight)


def test_the_state_goes_round_into_a_module_of_other_tiles():
    saved, other = module(seed=0, sparsity=0.5), module(seed=1, sparsity=0.75)
    assert other.values.shape != saved.values.shape
    other.load_state_dict(saved.state_dict())
    assert other.tiles().fingerprint() == saved.tiles().fingerprint()
    assert torch.equal(other.dense_weight(), saved.dense_weight())
    assert torch.equal(other.bias, saved.bias)


def test_a_state_inside_a_model_goes_round_through_a_file(tmp_path):
    saved = torch.nn.Sequential(module(seed=0))
    torch.save(saved.state_dict(), tmp_path / "state.pt")
    loaded = torch.nn.Sequential(module(seed=1, sparsity=0.25))
    loaded.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert torch.equal(loaded[0].dense_weight(), saved[0].dense_weight())


def test_a_state_without_values_is_refused_by_torch():
    state = module().state_dict()
    del state["values"]
    with pytest.raises(RuntimeError, match="values"):
        module().load_state_dict(state)


def test_training_with_gradients_is_refused():
    sparse = module().train()
    with pytest.raises(BadInput, match=r"no gradients: call eval\(\)"):
        sparse(torch.zeros(4, K, dtype=torch.float16))
    with pytest.raises(BadInput, match="no gradients"):
        sparse.eval()(torch.zeros(4, K, dtype=torch.float16, requires_grad=True))


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.zeros(4, K + 1, dtype=torch.float16), "x must be .* with 64 features, got"),
        (torch.zeros(4, K), "x must be torch.float16 on cpu like the module, got torch.float32"),
        (torch.zeros(4, K, dtype=torch.float16), "needs an NVIDIA GPU, the module is on cpu"),
    ],
)
def test_inputs_are_refused_in_one_line(x, message):
    with pytest.raises(BadInput, match=message) as refused:
        module()(x)
    assert "\n" not in str(refused.value)


def test_features_first_wants_two_dimensions():
    with pytest.raises(BadInput, match=r"x must be \(in_features, tokens\)"):
        module(layout="features_first")(torch.zeros(K, 2, 2, dtype=torch.float16))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layout": "rows"}, "layout must be one of tokens_first, features_first, got 'rows'"),
        ({"max_tokens": 0}, "max_tokens must be at least 1"),
        ({"pattern": None}, "a mask needs the pattern"),
        ({"pattern": "2:4"}, "2:4"),
    ],
)
def test_construction_is_refused_in_words(change, message):
    with pytest.raises(BadInput, match=message):
        TileSparseLinear.from_linear(linear(), mask(), **{"pattern": PATTERN, **OPTIONS, **change})


def test_fp32_layers_and_masks_of_another_shape_are_refused():
    with pytest.raises(BadInput, match=r"fp16 or bf16 weights, got torch\.float32"):
        TileSparseLinear.from_linear(linear(torch.float32), mask(), pattern=PATTERN, **OPTIONS)
    with pytest.raises(BadInput, match="the mask must have the weights' shape"):
        TileSparseLinear.from_linear(linear(), mask()[1:], pattern=PATTERN, **OPTIONS)


def test_plans_are_made_for_a_few_numbers_of_tokens():
    sparse = module()
    assert [sparse.plan(n).n for n in (1, 8, 9, 65, 300)] == [8, 8, 16, 96, 384]
    assert sparse.plan(4).dtype == "fp16"
    with pytest.raises(BadInput, match="1 to 300 tokens, got 301"):
        sparse.plan(301)


def test_buckets_never_fall_short_and_waste_a_third_at_most():
    buckets = {token_bucket(n) for n in range(1, 4097)}
    assert len(buckets) == 18
    for n in range(9, 4097):
        assert n <= token_bucket(n) < 2 * n
        assert n <= 16 or token_bucket(n) <= 1.5 * n
