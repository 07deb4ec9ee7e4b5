"""`TileSparseLinear` as far as it goes without a GPU: what it keeps, refuses, saves and loads."""

import copy

import numpy as np
import pytest

from prunecast.errors import BadInput
from prunecast.patterns import parse_pattern

torch = pytest.importorskip("torch")

from prunecast.torch import TileSparseLinear  # noqa: E402

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


def test_a_layer_that_nobody_pruned_is_refused():
    with pytest.raises(BadInput, match="wanted a pruned layer"):
        TileSparseLinear.from_linear(linear(), pattern=PATTERN, **OPTIONS)


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


def test_a_deep_copy_has_a_state_of_its_own_and_packs_anew():
    own = module()
    own._operators[64] = own  # as after a call
    copied = copy.deepcopy(torch.nn.Sequential(own))[0]
    assert copied._operators == copied._calls == {}
    assert set(own._operators) == {64}
    assert copied.gpu is own.gpu
    copied.values.zero_()
    assert own.dense_weight().abs().sum() > 0
    assert (copied.max_tokens, copied.pattern, copied.layout) == (own.max_tokens, own.pattern, own.layout)


def test_a_state_without_values_is_refused_by_torch():
    state = module().state_dict()
    del state["values"]
    with pytest.raises(RuntimeError, match="values"):
        module().load_state_dict(state)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("bias", [True, False])
def test_without_a_gpu_it_multiplies_too(dtype, bias):
    layer, kept = linear(dtype, bias=bias), mask()
    sparse = TileSparseLinear.from_linear(layer, kept, pattern=PATTERN, **OPTIONS).eval()
    x = torch.randn(5, 3, K).to(dtype)
    with torch.no_grad():
        layer.weight *= torch.from_numpy(kept)
        wanted = torch.nn.functional.linear(
            x.float(), layer.weight.float(), layer.bias.float() if bias else None
        ).to(dtype)
        torch.testing.assert_close(sparse(x), wanted, rtol=0, atol=0)
        turned = TileSparseLinear.from_linear(
            layer, kept, pattern=PATTERN, layout="features_first", **OPTIONS
        ).eval()
        torch.testing.assert_close(turned(x.reshape(-1, K).t()), wanted.reshape(-1, M).t(), rtol=0, atol=0)


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
        (torch.zeros(301, K, dtype=torch.float16), "takes 1 to 300 tokens, got 301"),
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
        ({"token_step": 96}, "token_step must be a multiple of 64, got 96"),
        ({"max_plans": 0}, "max_plans must be at least 1, got 0"),
        ({"token_step": 0}, "token_step must be a multiple of 64, got 0"),
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


def test_plans_are_made_for_whole_lines_and_no_more_than_it_takes():
    sparse = module(max_tokens=8192)
    counts = {1: 8, 8: 8, 9: 16, 24: 32, 64: 64, 65: 128, 300: 320, 6272: 6272, 6304: 6336}
    assert {n: sparse.plan(n).n for n in counts} == counts
    assert sparse.plan(4).dtype == "fp16"
    with pytest.raises(BadInput, match="1 to 8192 tokens, got 8193"):
        sparse.plan(8193)


def test_features_first_reads_whole_groups_of_tokens_as_they_lie():
    sparse = module(max_tokens=8192, layout="features_first")
    assert [sparse.plan(n).n for n in (8, 24, 6304, 6301)] == [8, 24, 6304, 6336]


def test_a_larger_step_makes_fewer_plans():
    sparse = module(max_tokens=8192, token_step=1024)
    assert [sparse.plan(n).n for n in (1, 60, 65, 1025, 6304)] == [8, 64, 1024, 2048, 7168]


class DenseOperator:
    """What `compile` gives, on the CPU in fp32; remembers the B that it was handed."""

    def __init__(self, weights):
        self.weights, self.given = weights.float(), None

    def __call__(self, b):
        self.given = b
        return (self.weights @ b.float()).to(b.dtype)


def on_the_cpu(sparse, *counts):
    sparse._operators = {n: DenseOperator(sparse.dense_weight()) for n in counts}
    return sparse._operators


@pytest.mark.parametrize(("tokens", "planned"), [(1, 8), (64, 64), (100, 128), (200, 256)])
def test_other_tokens_are_never_seen(tokens, planned):
    sparse = module()
    on_the_cpu(sparse, planned)
    x = torch.randn(tokens, K, dtype=torch.float16)
    c = sparse._multiply(x.t())
    assert c.shape == (M, tokens)
    torch.testing.assert_close(c.t(), (x.float() @ sparse.dense_weight().float().t()).half())


def test_the_plan_that_was_not_used_for_longest_makes_room():
    sparse, compiled = module(max_tokens=1024, max_plans=2), []

    def compile_one(tokens):
        compiled.append(tokens)
        return DenseOperator(sparse.dense_weight())

    sparse._compile = compile_one
    for tokens in (100, 200, 100, 300, 100, 200):
        sparse._multiply(torch.ones(tokens, K, dtype=torch.float16).t())
    assert compiled == [128, 256, 320, 256]
    assert list(sparse._operators) == [128, 256]


def test_a_chain_copies_once():
    """What a layer gives lies in whole lines, and the next one reads it there."""
    sparse = module()
    operators = on_the_cpu(sparse, 128)
    c = torch.full((K, 128), torch.nan, dtype=torch.float16)[:, :100]
    c.copy_(torch.ones(K, 100))
    assert torch.isfinite(sparse._multiply(c)).all()
    assert operators[128].given.data_ptr() == c.data_ptr()


def test_rows_of_whole_groups_are_read_in_place_by_a_plan_of_their_own():
    sparse = module()
    operators = on_the_cpu(sparse, 104, 128)
    b = torch.nn.functional.relu(torch.ones(K, 128, dtype=torch.float16)[:, :104].t()).t()
    sparse._multiply(b)
    assert operators[104].given.data_ptr() == b.data_ptr()
    assert operators[128].given is None
