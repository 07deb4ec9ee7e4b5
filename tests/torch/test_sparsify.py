"""`sparsify` on plain models: what it finds, fuses, refuses and leaves."""

import copy

import pytest
from safetensors.numpy import load_file

from prunecast.codesign.search.prune_model import prune_model
from prunecast.codesign.search.targets import Targets
from prunecast.codesign.tile_maps import read_tile_maps
from prunecast.errors import BadInput

torch = pytest.importorskip("torch")

from prunecast.codesign.recipe import read_recipe  # noqa: E402
from prunecast.torch import sparsify  # noqa: E402
from prunecast.torch.choose_tiles import choose_tiles  # noqa: E402
from prunecast.torch.find import find_layers  # noqa: E402
from prunecast.torch.packed import PackedProduct  # noqa: E402
from prunecast.torch.sparse_linear import SparseLinear  # noqa: E402

OPTIONS = {"gpu": "h200-sxm", "max_tokens": 256, "quiet": True}
PATTERN = "tile-wise:32"


class Gated(torch.nn.Module):
    """A gated MLP as Llama has it."""

    def __init__(self, act):
        super().__init__()
        self.gate_proj, self.up_proj = torch.nn.Linear(64, 96), torch.nn.Linear(64, 96, bias=False)
        self.down_proj, self.act_fn = torch.nn.Linear(96, 64), act

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class Chain(torch.nn.Module):
    """Two layers and an activation, as ViT and GPT-2 have them."""

    def __init__(self, act):
        super().__init__()
        self.fc1, self.fc2, self.activation_fn = torch.nn.Linear(64, 96), torch.nn.Linear(96, 64), act

    def forward(self, x):
        return self.fc2(self.activation_fn(self.fc1(x)))


class Twice(Chain):
    """Not what its names say."""

    def forward(self, x):
        return self.fc2(self.activation_fn(self.activation_fn(self.fc1(x))))


SILU, GELU, TANH = torch.nn.SiLU(), torch.nn.GELU(), torch.nn.GELU(approximate="tanh")
FEED_FORWARDS = {
    "gated silu": (Gated, SILU, 2, True),
    "gated tanh": (Gated, TANH, 2, True),
    "gated function": (Gated, torch.nn.functional.silu, 2, True),
    "gated other": (Gated, torch.nn.Tanh(), 2, False),
    "chain gelu": (Chain, GELU, 2, True),
    "chain relu": (Chain, torch.nn.ReLU(), 2, True),
    "chain other": (Chain, torch.nn.Sigmoid(), 2, False),
    "something else": (Twice, GELU, 2, False),
}


@pytest.mark.parametrize("case", FEED_FORWARDS)
@pytest.mark.parametrize("tokens", [(3, 5), (1, 1), (2, 100)])
def test_activations_become_epilogues_where_the_module_computes_what_its_names_say(case, tokens):
    kind, act, launches, is_fused = FEED_FORWARDS[case]
    torch.manual_seed(0)
    sparse, plain = (torch.nn.Sequential(kind(act)).half().eval() for _ in range(2))
    done = sparsify(sparse, PATTERN, sparsity=0.5, **OPTIONS)
    assert done.launches == launches
    products = {id(m): m for m in sparse.modules() if isinstance(m, PackedProduct)}.values()
    assert any(product.epilogue.features_first for product in products) == is_fused
    assert list(sparse.state_dict()) == list(plain.state_dict())
    plain.load_state_dict(sparse.state_dict())
    again = torch.nn.Sequential(kind(act)).half().eval()
    again.load_state_dict(sparse.state_dict())
    half = {"0.gate_proj": "tile-wise:16", "0.up_proj": "tile-wise:16"} if kind is Gated and is_fused else {}
    names = [name for name, module in plain.named_modules() if isinstance(module, torch.nn.Linear)]
    rows = [{"layer": name, "pattern": half.get(name, PATTERN), "sparsity": 0.45} for name in names]
    assert sparsify(again, {"pattern": PATTERN, "layers": rows}, **OPTIONS).launches == launches
    x = torch.randn(*tokens, 64).half()
    with torch.no_grad():
        assert torch.allclose(sparse(x), plain(x), rtol=2**-6, atol=5e-3)
        assert torch.equal(again(x), sparse(x))


def test_zeros_of_a_gate_and_up_that_were_pruned_together_are_taken_as_they_are():
    model, x = torch.nn.Sequential(Gated(SILU)).half(), torch.randn(5, 64).half()
    sparsify(model, PATTERN, gpu="h200-sxm", max_tokens=64, sparsity=0.5, quiet=True)
    again = torch.nn.Sequential(Gated(SILU)).half()
    again.load_state_dict(model.state_dict())
    assert sparsify(again, PATTERN, gpu="h200-sxm", max_tokens=64, quiet=True).launches == 2
    assert torch.equal(again(x), model(x))


def test_gate_and_up_are_pruned_together_only_where_their_product_is_gated():
    together, apart = (torch.nn.Sequential(Gated(SILU)).half().eval() for _ in range(2))
    sparsify(together, PATTERN, sparsity=0.5, **OPTIONS)
    sparsify(apart, PATTERN, sparsity=0.5, ignore=["0.down_proj"], **OPTIONS)
    assert together[0].gate_proj.pattern == "tile-wise:16"
    assert apart[0].gate_proj.pattern == PATTERN
    assert isinstance(apart[0], Gated)


@pytest.mark.parametrize("case", ["gated silu", "chain gelu"])
def test_a_fused_model_is_exported_for_any_number_of_tokens(case):
    kind, act, *_ = FEED_FORWARDS[case]
    model = torch.nn.Sequential(kind(act)).half().eval()
    sparsify(model, PATTERN, sparsity=0.5, **OPTIONS)
    tokens = torch.export.Dim("tokens", min=2, max=100)
    exported = torch.export.export(model, (torch.randn(2, 8, 64).half(),), dynamic_shapes=({1: tokens},))
    targets = [str(node.target) for node in exported.graph.nodes]
    turns = sum("pad" in target or "columns" in target for target in targets)
    assert turns == 1, "nothing runs between the two products"
    for count in (2, 7, 100):
        x = torch.randn(2, count, 64).half()
        assert torch.equal(exported.module()(x), model(x))


def test_a_trained_model_has_the_state_of_the_dense_one():
    sparse, plain = torch.nn.Sequential(Chain(GELU)).half(), torch.nn.Sequential(Chain(GELU)).half()
    sparsify(sparse, PATTERN, sparsity=0.5, trainable=True, **OPTIONS)
    state = sparse.state_dict()
    assert list(state) == list(plain.state_dict())
    plain.load_state_dict({name: 2 * value for name, value in state.items()})
    sparse.load_state_dict(plain.state_dict())
    assert all(torch.equal(value, 2 * state[name]) for name, value in sparse.state_dict().items())


def test_a_cast_that_is_refused_leaves_weights_as_they_were():
    sparse = torch.nn.Sequential(Chain(GELU)).half().eval()
    sparsify(sparse, PATTERN, sparsity=0.5, **OPTIONS)
    x = torch.randn(8, 64).half()
    before = sparse(x)
    with pytest.raises(BadInput, match=r"as torch\.float16 cannot become torch\.float32: cast the model"):
        sparse.float()
    assert torch.equal(sparse(x), before)
    assert sparse.bfloat16()(x.bfloat16()).dtype is torch.bfloat16


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.zeros(257, 64).half(), "planned for at most 256 tokens, got 257"),
        (torch.zeros(8, 64), r"x must be torch\.float16 like the weights, got torch\.float32"),
        (torch.zeros(8, 32).half(), r"x must have 64 features, got \(8, 32\)"),
        (torch.tensor(1.0).half(), r"x must have 64 features, got \(\)"),
        (torch.zeros(0, 64).half(), "x has no tokens"),
        (
            torch.zeros(8, 64).half().requires_grad_(),
            "no gradient through a fused gelu: sparsify with fuse=False",
        ),
    ],
)
def test_an_input_is_refused_in_one_line(x, message):
    sparse = torch.nn.Sequential(Chain(GELU)).half().eval()
    sparsify(sparse, PATTERN, sparsity=0.5, **OPTIONS)
    with pytest.raises(BadInput, match=message) as refused:
        sparse(x)
    assert "\n" not in str(refused.value)


def test_a_layer_that_is_fused_is_not_trained():
    sparse = torch.nn.Sequential(Chain(GELU)).half()
    sparsify(sparse, PATTERN, sparsity=0.5, trainable=True, few_tokens=False, **OPTIONS)
    assert sparse[0].activation_fn is GELU
    sparse(torch.randn(8, 64).half()).sum().backward()
    assert all(parameter.grad is not None for parameter in sparse.parameters())


class Mlp(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj, self.up_proj = torch.nn.Linear(64, 96, bias=False), torch.nn.Linear(64, 96)
        self.down_proj, self.head = torch.nn.Linear(96, 64), torch.nn.Linear(64, 10)

    def forward(self, x):
        gated = torch.nn.functional.silu(self.gate_proj(x)) * self.up_proj(x)
        return self.head(self.down_proj(gated))


def model(dtype=torch.float16, seed=0):
    torch.manual_seed(seed)
    return Mlp().to(dtype).eval()


def unchanged(plain):
    return not any(isinstance(module, SparseLinear) for module in plain.modules())


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", [Gated, Chain])
def test_autocast_casts_what_layers_read(kind, compiled):
    torch.manual_seed(0)
    sparse, plain = (
        torch.nn.Sequential(torch.nn.LayerNorm(64), kind(SILU), torch.nn.Linear(64, 64)).eval() for _ in "ab"
    )
    for each in (sparse, plain):
        each[1].bfloat16()
    sparsify(sparse, PATTERN, sparsity=0.5, **OPTIONS)
    plain.load_state_dict(sparse.state_dict())
    torch._dynamo.reset()
    run = torch.compile(sparse, backend="aot_eager") if compiled else sparse
    x = torch.randn(5, 64)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        y, wanted = run(x), plain(x)
    assert torch.allclose(y.float(), wanted.float(), rtol=2**-6, atol=2e-2)
    with pytest.raises(BadInput, match="x must be"):
        sparse(x)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_pruned_model_computes_what_the_dense_one_with_its_zeros_does(dtype):
    sparse, plain = model(dtype), model(dtype)
    done = sparsify(sparse, PATTERN, sparsity=0.5, **OPTIONS)
    assert done.layers == ("gate_proj", "up_proj", "down_proj")
    assert done.launches == 2
    assert done.left == ("head: 10 x 64 is no multiple of 8",)
    assert list(sparse.state_dict()) == list(plain.state_dict())
    plain.load_state_dict(sparse.state_dict())
    x = torch.randn(3, 5, 64).to(dtype)
    with torch.no_grad():
        assert torch.allclose(sparse(x), plain(x), rtol=2**-6, atol=2e-2)


def test_zeros_are_taken_as_they_are():
    first, second = model(), model()
    sparsify(first, PATTERN, sparsity=0.5, **OPTIONS)
    second.load_state_dict(first.state_dict())
    done = sparsify(second, PATTERN, fuse=False, **OPTIONS)
    assert done.launches == len(done.layers) == 3
    x = torch.randn(4, 64).half()
    with torch.no_grad():
        assert torch.equal(first(x), second(x))


def test_weights_keep_their_share_of_memory_with_one_image():
    torch.manual_seed(0)
    big = torch.nn.Sequential(torch.nn.Linear(1024, 1024, bias=False)).half()
    done = sparsify(big, "tile-wise:128", sparsity=0.75, few_tokens=False, **OPTIONS)
    assert done.bytes_after < 0.30 * done.bytes_before
    assert "now" in str(done)


def test_a_recipe_says_patterns_and_sparsities():
    made = model()
    sparsify(made, PATTERN, sparsity=0.5, **OPTIONS)
    state = made.state_dict()
    rows = [{"layer": "down_proj.weight", "pattern": PATTERN, "sparsity": 0.5}]
    loaded = model()
    loaded.load_state_dict(state)
    done = sparsify(loaded, {"pattern": PATTERN, "layers": rows}, **OPTIONS)
    assert done.layers == ("down_proj",)
    assert "gate_proj: not in the recipe" in done.left


def test_what_a_recipe_removed_counts_not_what_its_pattern_was_told():
    made = model()
    sparsify(made, PATTERN, sparsity=0.5, **OPTIONS)
    row = {"layer": "down_proj.weight", "pattern": PATTERN, "sparsity": 0.7, "removed": 0.5}
    loaded = model()
    loaded.load_state_dict(made.state_dict())
    assert sparsify(loaded, {"layers": [row]}, **OPTIONS).layers == ("down_proj",)
    own = read_recipe(
        {"layers": [{**row, "sparsity": None}, {"layer": "up_proj", "pattern": "dense", "removed": 0.0}]}
    )
    assert own.sparsities == {"down_proj": 0.5}  # 2:4 is told no sparsity


def test_progress_is_told():
    told = []
    sparsify(model(), PATTERN, sparsity=0.5, progress=lambda *step: told.append(step), **OPTIONS)
    assert told == [("packing", 1, 2), ("packing", 2, 2)]


def with_adapter():
    plain = model()
    plain.down_proj.lora_A = torch.nn.Linear(96, 4)
    return plain


def strange_zeros():
    plain = model()
    with torch.no_grad():
        plain.down_proj.weight[:, ::2] = 0
        plain.down_proj.weight[5, ::2] = 1
    return plain


BAD = {
    "fp64": (lambda: model(torch.float64), PATTERN, {"sparsity": 0.5}, "cast the model first"),
    "no zeros": (model, PATTERN, {}, "no layer has enough zeros"),
    "pattern": (model, "tile-wide:3", {}, "tile-wide"),
    "no tiles": (model, "2:4", {}, "mask is not 2:4"),
    "gpu": (model, PATTERN, {"gpu": "h900"}, "unknown GPU"),
    "bf16 on Turing": (lambda: model(torch.bfloat16), PATTERN, {"sparsity": 0.5, "gpu": "t4"}, "t4"),
    "Volta": (
        model,
        PATTERN,
        {"sparsity": 0.5, "gpu": "v100-sxm2-32gb"},
        "no kernel runs fp16 weights",
    ),
    "adapter": (with_adapter, PATTERN, {"sparsity": 0.5}, "LoRA adapter"),
    "recipe": (
        strange_zeros,
        {"pattern": PATTERN, "layers": [{"layer": "down_proj", "sparsity": 0.5}]},
        {},
        "down_proj: mask is not tile-wise:32",
    ),
    "weights that are not pruned": (
        model,
        {"pattern": PATTERN, "layers": [{"layer": "down_proj", "sparsity": 0.5}]},
        {},
        "the weights have 0.0%: load the pruned weights into the model first",
    ),
    "no such folder": (model, "pruned/model", {}, "there is no such folder"),
    "neither": (model, "pruned", {}, "a pattern or a folder with recipe.json, got neither"),
    "unknown layer": (
        model,
        {"pattern": PATTERN, "layers": [{"layer": "middle_proj", "sparsity": 0.5}]},
        {},
        "no linear layer",
    ),
    "sparsity": (model, PATTERN, {"sparsity": 1.5}, r"must be in \[0, 1\)"),
    "tokens": (model, PATTERN, {"sparsity": 0.5, "max_tokens": 0}, "a whole number from 1 to 1048576, got 0"),
    "too many tokens": (model, PATTERN, {"sparsity": 0.5, "max_tokens": 2**40}, "from 1 to 1048576"),
    "a sparsity in words": (
        model,
        {"pattern": PATTERN, "layers": [{"layer": "down_proj", "sparsity": "half"}]},
        {},
        r"wanted a sparsity in \[0, 1\) of 'down_proj', got 'half'",
    ),
    "meta": (lambda: model().to("meta"), PATTERN, {"sparsity": 0.5}, "load the model first"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_converted_is_refused_whole(case):
    make, recipe, options, message = BAD[case]
    plain = make()
    with pytest.raises(BadInput, match=message):
        sparsify(plain, recipe, **{**OPTIONS, **options})
    assert unchanged(plain)


def test_a_deep_copy_is_a_model_of_its_own():
    sparse = model()
    sparsify(sparse, PATTERN, sparsity=0.5, **OPTIONS)
    other = copy.deepcopy(sparse)
    assert other.gate_proj.product is other.up_proj.product
    assert other.gate_proj.product is not sparse.gate_proj.product
    x = torch.randn(4, 64).half()
    with torch.no_grad():
        assert torch.equal(other(x), sparse(x))


def pruned_folder(tmp_path, families=("atp",), share=0.6):
    """A model whose weights `prune --latency --uneven` pruned, and the folder that it wrote."""
    torch.manual_seed(0)
    made = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.Linear(1024, 512)).half()
    weights = {name: each.detach().numpy() for name, each in made.named_parameters() if each.dim() == 2}
    targets, out = Targets(latency_share=share), tmp_path / "pruned"
    options = {"gpu": "h200-sxm", "tokens": 8192, "engine": "model", "even": False}
    prune_model(weights, targets, families=families, out=out, **options)
    stored = load_file(out / "weights.safetensors")
    made.load_state_dict({**made.state_dict(), **{name: torch.from_numpy(stored[name]) for name in weights}})
    return made, out


def test_a_pruned_folder_is_packed_in_the_tiles_that_were_planned(tmp_path):
    made, out = pruned_folder(tmp_path)
    planned = read_tile_maps(out / "tiles.npz")
    assert len(planned) == 2
    with torch.no_grad():
        for name, tiles in planned.items():
            rows, columns = tiles.row_index[: tiles.row_start[1]], tiles.column_index[0]
            made.get_parameter(name)[rows.tolist(), int(columns)] = 0  # as if by chance
    chosen, _ = choose_tiles(find_layers(made)[0], {"0", "1"}, read_recipe(out), None, [])
    for layer, tiles, _ in chosen:
        for column in ("row_start", "row_index", "column_start", "column_index"):
            wanted = getattr(planned[f"{layer.name}.weight"], column)
            assert getattr(tiles, column).tolist() == wanted.tolist()
    assert sparsify(made, out, **OPTIONS).layers == ("0", "1")


def test_a_pruned_folder_with_two_of_four_is_packed(tmp_path):
    made, out = pruned_folder(tmp_path, ("2:4", "tvw"), 0.75)
    wanted = read_recipe(out)
    assert "2:4" in wanted.patterns.values()  # whose sparsity no pattern is told
    assert sparsify(made, out, **OPTIONS).layers == ("0", "1")
    assert any(getattr(module, "is_two_of_four", False) for module in made.modules())


def test_weights_that_the_planned_tiles_do_not_hold_are_refused(tmp_path):
    made, out = pruned_folder(tmp_path)
    with torch.no_grad():
        weight = made.get_parameter("0.weight")
        weight[tuple((weight == 0).nonzero()[0].tolist())] = 1.0
    with pytest.raises(BadInput, match="0: wanted zeros outside of the recipe's tiles, got 1 weight"):
        sparsify(made, out, **OPTIONS)
    assert unchanged(made)


def test_layers_with_few_zeros_stay_dense_with_their_share_of_zeros():
    model = torch.nn.Sequential(*(torch.nn.Linear(64, 64, bias=False) for _ in range(3))).half()
    with torch.no_grad():
        model[0].weight[:, :48] = 0.0  # 75 %
        model[1].weight[:, :16] = 0.0  # 25 %
    done = sparsify(model, PATTERN, **OPTIONS)
    assert done.layers == ("0",)
    assert done.left == ("1: 25% sparse, dense is faster", "2: 0% sparse, dense is faster")
