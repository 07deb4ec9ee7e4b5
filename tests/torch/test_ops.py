"""The operators under torch's own checks, torch.compile, torch.export and autograd, on a CPU."""

import pytest

from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.patterns import parse_pattern

torch = pytest.importorskip("torch")

from prunecast.torch import layer_table, ops  # noqa: E402
from prunecast.torch.epilogue import ACTIVATIONS, Epilogue, activation_of, interleaved  # noqa: E402
from prunecast.torch.layer_plans import layouts_for  # noqa: E402
from prunecast.torch.ops import columns_of, linear  # noqa: E402
from prunecast.torch.packed import (  # noqa: E402
    PackedProduct,
    ProductRows,
    interleaved_tiles,
)
from prunecast.torch.sparse_linear import SparseLinear  # noqa: E402
from prunecast.workload.graph import Operation  # noqa: E402
from prunecast.workload.graph.transposes import transpose_for  # noqa: E402

# Inductor's own
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

M, K, GPU = 320, 192, load_gpu("h200-sxm")


def dense(dtype=torch.float16, seed=0):
    torch.manual_seed(seed)
    weight = torch.randn(M, K).to(dtype)
    pattern = parse_pattern("tile-wise:64")
    mask = pattern.prune({"w": weight.abs().float().numpy()}, 0.6)["w"]
    return weight * torch.from_numpy(mask), pattern.map(mask)


def product(dtype=torch.float16, *, bias=True, few_tokens=True, max_tokens=512):
    weight, tiles = dense(dtype)
    name = "fp16" if dtype == torch.float16 else "bf16"
    layouts = layouts_for(tiles, name, GPU, max_tokens, few_tokens=few_tokens)
    added = torch.randn(M).to(dtype) if bias else None
    made = PackedProduct(weight, tiles, added, gpu=GPU, max_tokens=max_tokens, layouts=layouts)
    return made, weight, added


def arguments(made, x, activation="none", *, features_first=False):
    bias = made.fp32_bias
    x_t = columns_of(x)
    return (
        x_t,
        made.images,
        made.tiles,
        bias,
        len(x),
        M,
        activation,
        False,
        features_first,
        "h200-sxm",
        made.plan,
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("tokens", [1, 3, 64, 200])
def test_y_is_that_of_the_dense_layer_with_the_same_zeros(dtype, tokens):
    made, weight, bias = product(dtype)
    x = torch.randn(tokens, K).to(dtype)
    wanted = torch.nn.functional.linear(x.float(), weight.float(), bias.float()).to(dtype)
    y = made(x)
    assert y.is_contiguous()
    assert torch.equal(y, wanted) or torch.allclose(y, wanted, rtol=2**-7, atol=1e-2)


@pytest.mark.parametrize("activation", [name for name in ACTIVATIONS if name != "none"])
def test_an_activation_comes_behind_the_bias(activation):
    made, weight, bias = product()
    x = torch.randn(16, K).half()
    sums = torch.nn.functional.linear(x.float(), weight.float(), bias.float())
    wanted = ACTIVATIONS[activation](sums).half()
    assert torch.allclose(linear(*arguments(made, x, activation)), wanted, rtol=2e-3, atol=2e-3)


def sum_arguments(made, x, y):
    x_t, images, tiles, bias, *_, gpu, plan = arguments(made, x)
    return y, x_t, images, tiles, bias, len(x), M, gpu, plan


def test_a_sum_is_that_of_the_product_rounded_first():
    made, _, _ = product()
    x, y = torch.randn(16, K).half(), torch.randn(1, 16, M).half()
    wanted = y + made(x)
    torch.ops.prunecast.linear_add_.default(*sum_arguments(made, x, y))
    assert torch.equal(y, wanted)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_known_by_what_they_compute(name):
    assert activation_of(ACTIVATIONS[name]) == name
    assert activation_of(lambda x: ACTIVATIONS[name](x) + 1e-4) is None
    assert activation_of(lambda x, y: x) is None
    assert activation_of(lambda x: x.tolist()) is None
    assert activation_of(lambda x: ACTIVATIONS[name](x)[None]) is None


@pytest.mark.parametrize("tokens", [1, 13, 64, 200])
def test_a_product_that_is_written_features_first_is_read_by_the_next_one(tokens):
    made, weight, bias = product()
    made.epilogue = Epilogue("gelu", features_first=True)
    x = torch.randn(2, tokens, K).half()
    wanted = torch.nn.functional.gelu(torch.nn.functional.linear(x.float(), weight.float(), bias.float()))
    y = made(x)
    assert y.shape == wanted.shape
    assert torch.allclose(y.float(), wanted, rtol=2e-3, atol=2e-3)
    turned = columns_of(y.reshape(-1, M))
    assert torch.equal(turned[:, : 2 * tokens].t(), y.reshape(-1, M))
    if 2 * tokens % 8 == 0:
        assert turned.data_ptr() == y.data_ptr()


@pytest.mark.parametrize("tokens", [1, 13, 64])
def test_a_gated_unit_is_that_of_its_two_layers(tokens):
    gate, half = dense(seed=1)
    up = torch.where(gate != 0, torch.randn(M, K).half(), 0)
    weight, tiles = interleaved(gate, up), interleaved_tiles(half, "both")
    assert torch.equal(torch.from_numpy(tiles.mask()), weight != 0)
    layouts = layouts_for(tiles, "fp16", GPU, 512, few_tokens=True)
    biases = torch.randn(2, M).half()
    options = {"gpu": GPU, "max_tokens": 512, "layouts": layouts}
    epilogue = Epilogue("silu", glu=True, features_first=True)
    made = PackedProduct(weight, tiles, interleaved(*biases), epilogue=epilogue, **options)
    x = torch.randn(tokens, K).half()
    sums = [
        torch.nn.functional.linear(x.float(), w.float(), b.float())
        for w, b in zip((gate, up), biases, strict=True)
    ]
    wanted = torch.nn.functional.silu(sums[0]) * sums[1]
    assert torch.allclose(made(x).float(), wanted, rtol=2e-3, atol=2e-3)
    for number, own in enumerate((gate, up)):
        part = SparseLinear(made, ProductRows(number, M, interleaved=True), "tile-wise:64", has_bias=True)
        assert torch.equal(part.weight, own)
        assert torch.equal(part.bias, biases[number])
        assert part.density == pytest.approx(half.density)
        assert torch.allclose(part(x).float(), sums[number], rtol=2e-3, atol=2e-3)
        part.load_state_dict({"weight": 2 * own, "bias": biases[number]})
        assert torch.equal(part.weight, 2 * own)


@pytest.mark.parametrize("features_first", [False, True])
@pytest.mark.parametrize("tokens", [1, 13, 72])
def test_torch_checks_the_operators(tokens, features_first):
    made, _, _ = product()
    x = torch.randn(tokens, K).half()
    given = arguments(made, x, "silu", features_first=features_first)
    torch.library.opcheck(torch.ops.prunecast.linear.default, given)
    torch.library.opcheck(torch.ops.prunecast.linear.default, arguments(made, x))
    torch.library.opcheck(torch.ops.prunecast.columns.default, (x, 80))
    given = sum_arguments(made, x, torch.randn(tokens, M).half())
    torch.library.opcheck(torch.ops.prunecast.linear_add_.default, given)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (torch.zeros(16, M), "a sum of torch.float16 .16, 320. like y, got torch.float32"),
        (torch.zeros(15, M).half(), "got torch.float16 .15, 320."),
        (torch.zeros(M, 16).half().t(), "y must be contiguous, got strides .1, 16."),
    ],
)
def test_a_sum_that_is_not_like_y_is_refused(y, message):
    made, _, _ = product()
    with pytest.raises(BadInput, match=message):
        torch.ops.prunecast.linear_add_.default(*sum_arguments(made, torch.randn(16, K).half(), y))


def test_torch_checks_the_gradients():
    made, _, _ = product(few_tokens=False)
    x = torch.randn(8, K).half()
    given = list(arguments(made, x))
    given[0] = given[0].clone().requires_grad_()
    given[1] = [image.clone().requires_grad_() for image in given[1]]
    given[3] = given[3].clone().requires_grad_()
    torch.library.opcheck(torch.ops.prunecast.linear.default, tuple(given))


def test_gradients_are_those_of_the_dense_layer_where_weights_are_kept():
    made, weight, bias = product(few_tokens=False)
    layer = SparseLinear(made, ProductRows(0, M), "tile-wise:64", has_bias=True).trainable()
    x = torch.randn(2, 9, K).half().requires_grad_()
    gradient = torch.randn(2, 9, M).half()
    layer(x).backward(gradient)
    image = made.images[0]
    plain_x, plain_w = x.detach().clone().requires_grad_(), weight.clone().requires_grad_()
    torch.nn.functional.linear(plain_x, plain_w, bias).backward(gradient)
    assert torch.allclose(x.grad, plain_x.grad, rtol=1e-2, atol=5e-2)
    from prunecast.torch.weight_layouts import layout_of, pack

    wanted = pack(plain_w.grad, made.tile_map, layout_of(image))
    assert torch.allclose(image.grad, wanted, rtol=1e-2, atol=5e-2)


def test_a_fused_activation_has_no_gradient():
    made, _, _ = product()
    x = torch.randn(8, K).half().requires_grad_()
    with pytest.raises(BadInput, match="no gradient through a fused gelu"):
        linear(*arguments(made, x, "gelu"))


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True])
def test_it_compiles_whole(dynamic):
    made, _, _ = product()
    torch._dynamo.reset()
    compiled = torch.compile(made, fullgraph=True, dynamic=dynamic)
    for tokens in (37, 5, 64, 1):
        x = torch.randn(2, tokens, K).half()
        with torch.no_grad():
            assert torch.allclose(compiled(x), made(x), rtol=2e-3, atol=2e-3)


@pytest.mark.slow
def test_a_large_x_and_few_tokens_are_turned_by_the_operator_in_a_compiled_graph(monkeypatch):
    made, _, _ = product()
    monkeypatch.setattr(ops, "SEPARATE_TRANSPOSE_ELEMENTS", 64 * K)
    monkeypatch.setattr(ops, "SEPARATE_TRANSPOSE_TOKENS", 4)
    for tokens, turns in ((1, 0), (3, 1), (8, 0), (64, 1), (70, 1)):
        targets = []

        def seen(graph, _, targets=targets):
            targets.extend(str(node.target) for node in graph.graph.nodes)
            return graph.forward

        torch._dynamo.reset()
        x = torch.randn(tokens, K).half()
        with torch.no_grad():
            assert torch.equal(torch.compile(made, fullgraph=True, backend=seen)(x), made(x))
        assert sum("prunecast.columns" in target for target in targets) == turns


@pytest.mark.parametrize("tokens", [1, 63, 64, 65, 127, 128, 129, 1024])
@pytest.mark.parametrize("features", [16, 8191, 8192, 8193])
def test_a_compiled_graph_launches_the_transposes_that_predictions_count(tokens, features):
    norm = Operation(name="norm", kind="rms norm")
    product = Operation(name="o", kind="gemm", m=64, k=features, n=tokens, elements_in=tokens * features)
    is_separate = transpose_for(norm, product).kind == "transpose"
    assert ops._has_separate_transpose(torch.empty(tokens, features, device="meta")) == is_separate


class Three(torch.nn.Module):
    """Attention's inputs, as models write them."""

    def __init__(self, made):
        super().__init__()
        self.q = SparseLinear(made, ProductRows(0, 128), "tile-wise:64", has_bias=True)
        self.k = SparseLinear(made, ProductRows(128, 64), "tile-wise:64", has_bias=True)
        self.v = SparseLinear(made, ProductRows(192, 128), "tile-wise:64", has_bias=True)

    def forward(self, x):
        x = torch.nn.functional.layer_norm(x, (K,))
        return torch.cat((self.q(x) * 2, self.k(x), self.v(x)), -1)


def test_parts_that_read_the_same_x_are_one_product():
    made, weight, bias = product()
    three, calls, forward = Three(made), [], made.forward
    made.forward = lambda x: calls.append(1) or forward(x)
    x = torch.randn(2, 7, K).half()
    wanted = torch.nn.functional.linear(torch.nn.functional.layer_norm(x, (K,)), weight, bias)
    wanted[..., :128] *= 2
    assert torch.allclose(three(x), wanted, rtol=5e-3, atol=5e-3)
    assert len(calls) == 1
    assert made._held is None


def test_parts_of_another_x_or_a_changed_one_are_computed_anew():
    made, _, _ = product()
    three = Three(made)
    x, other = torch.randn(3, K).half(), torch.randn(3, K).half()
    three.q(x)
    assert torch.equal(three.k(other), made(other)[..., 128:192])
    three.q(x)
    x += 1
    assert torch.equal(three.k(x), made(x)[..., 128:192])


@pytest.mark.slow
def test_parts_are_one_product_in_a_compiled_graph_and_an_exported_one():
    made, _, _ = product()
    three, x = Three(made), torch.randn(2, 37, K).half()
    torch._dynamo.reset()
    with torch.no_grad():
        wanted = three(x)
        tokens = torch.export.Dim("tokens", min=2, max=200)
        exported = torch.export.export(three, (x,), dynamic_shapes={"x": {1: tokens}})
        assert sum("prunecast.linear" in str(node.target) for node in exported.graph.nodes) == 1
        other = torch.randn(2, 91, K).half()
        assert torch.allclose(exported.module()(other), three(other), rtol=5e-3, atol=5e-3)
        assert torch.allclose(torch.compile(three, fullgraph=True)(x), wanted, rtol=5e-3, atol=5e-3)


def test_an_exported_graph_runs_where_the_layer_is_not_known(tmp_path, monkeypatch):
    made, _, _ = product()
    x = torch.randn(16, K).half()
    with torch.no_grad():
        wanted = made(x)
        torch.export.save(torch.export.export(made, (x,)), tmp_path / "layer.pt2")
        monkeypatch.setattr(layer_table, "_LAYERS", {})
        assert torch.equal(torch.export.load(tmp_path / "layer.pt2").module()(x), wanted)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.zeros(4, K - 1).half(), "192 features"),
        (torch.zeros(4, K), "torch.float16 like the weights"),
        (torch.zeros(513, K).half(), "at most 512 tokens, got 513"),
        (torch.zeros(0, K).half(), "no tokens"),
    ],
)
def test_what_cannot_run_is_refused_in_a_line(x, message):
    made, _, _ = product()
    with pytest.raises(BadInput, match=message):
        made(x)


def test_weights_packed_twice_are_not_trained():
    made, _, _ = product()
    with pytest.raises(BadInput, match="packed twice"):
        SparseLinear(made, ProductRows(0, M), "tile-wise:64", has_bias=True).trainable()


def test_a_cast_to_fp32_is_refused():
    made, _, _ = product()
    with pytest.raises(BadInput, match="cast the model"):
        made.float()


def test_state_goes_round_and_values_outside_of_the_tiles_are_refused():
    made, weight, _ = product()
    three = Three(made)
    state = three.state_dict()
    assert list(state) == [f"{part}.{name}" for part in "qkv" for name in ("weight", "bias")]
    assert torch.equal(torch.cat([state[f"{part}.weight"] for part in "qkv"]), weight)
    three.load_state_dict({name: tensor * 2 for name, tensor in state.items()})
    assert torch.equal(made.dense_weight(), weight * 2)
    for value in (1.0, float("nan")):
        state["q.weight"] = torch.full_like(state["q.weight"], value)
        with pytest.raises(BadInput, match="outside of the tiles"):
            three.load_state_dict(state)
    assert torch.isfinite(made.fp32_bias).all()
