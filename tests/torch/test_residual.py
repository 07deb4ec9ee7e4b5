"""Sums behind sparse products, which torch.compile leaves to the epilogue: where it may, and only there."""

import pytest

torch = pytest.importorskip("torch")

from functorch.compile import make_boxed_func  # noqa: E402
from torch import nn  # noqa: E402
from torch._dynamo.backends.common import aot_autograd  # noqa: E402
from torch._inductor import config  # noqa: E402
from torch._inductor.decomposition import select_decomp_table  # noqa: E402
from torch._inductor.utils import run_and_get_code  # noqa: E402

from prunecast.torch import masked_attention, norm, ops, residual, sparsify  # noqa: E402
from prunecast.workload.graph import ModelGraph, Operation, fusions  # noqa: E402
from prunecast.workload.graph.model_graph import linear  # noqa: E402

# Inductor's own
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

K = 256


@pytest.fixture(autouse=True)
def _sums_of_any_size(monkeypatch):
    monkeypatch.setattr(residual, "RESIDUAL_EPILOGUE_ELEMENTS", 0)


class Sum(nn.Module):
    """One sparse layer, and a forward that is given."""

    def __init__(self, forward):
        super().__init__()
        torch.manual_seed(0)
        self.norm, self.layer, self.act, self.said = nn.LayerNorm(K), nn.Linear(K, K), nn.GELU(), forward

    def forward(self, x):
        return self.said(self, x.sin())  # a residual that is made in the graph


def both(model, x):
    first = model.layer(model.norm(x))
    return x + first, x * 2


FORMS = {
    "what a block does": (lambda m, x: x + m.layer(m.norm(x)), 1),
    "the other way round": (lambda m, x: m.layer(m.norm(x)) + x, 1),
    "sum on sum": (lambda m, x: m.layer(m.norm(y := x + m.layer(m.norm(x)))) + y, 2),
    "parallel": (lambda m, x: x + (m.layer(n := m.norm(x)) + m.layer(n)), 0),
    "parallel with a dense part": (lambda m, x: x + (m.layer(n := m.norm(x)) + n.cos()), 1),
    "the residual is read behind it": (both, 0),
    "and a view of it": (lambda m, x: (x + m.layer(m.norm(x)), x[0]), 0),
    "what is added is read behind it": (lambda m, x: (x + (y := m.layer(m.norm(x))), y), 0),
    "the residual is what is multiplied": (lambda m, x: x[:1, :1] + m.layer(x[:1, :1]), 0),
    "an activation between them": (lambda m, x: x + m.act(m.layer(m.norm(x))), 0),
    "a factor": (lambda m, x: torch.add(x, m.layer(m.norm(x)), alpha=2), 0),
    "one row for all": (lambda m, x: x[:1, :1] + m.layer(m.norm(x)), 0),
    "another type": (lambda m, x: x.float() + m.layer(m.norm(x)), 0),
    "a product with itself": (lambda m, x: (y := m.layer(m.norm(x))) + y, 0),
}


def sums_left(graph):
    return sum(node.target is residual.auto_functionalized for node in graph.nodes)


@torch.no_grad()
def changed(model, x, *, dynamic=False):
    """What the model gives, what its graph gives after the pass, and how many sums were left to products."""
    counts = []

    def through(made, _):
        residual.AddInEpilogue()(made.graph)
        counts.append(sums_left(made.graph))
        made.recompile()
        return make_boxed_func(made)

    torch._dynamo.reset()
    found = torch.compile(model, fullgraph=True, dynamic=dynamic, backend=aot_autograd(fw_compiler=through))(
        x
    )
    return model(x), found, counts


def sparse(said, dtype=None, pattern=None):
    model, tiles = Sum(said).half().eval(), "block:256x32" if dtype == "fp8" else "tile-wise:64"
    sparsity = 0.5 if pattern == "2:4" else 0.6
    options = {"dtype": dtype, "few_tokens": dtype != "fp8", "sparsity": sparsity, "max_tokens": 512}
    sparsify(model, pattern or tiles, gpu="h200-sxm", quiet=True, **options)
    return model


def assert_same(eager, found):
    for one, other in zip(*(y if isinstance(y, tuple) else (y,) for y in (eager, found)), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("dtype", [None, "fp8"])
@pytest.mark.parametrize("name", FORMS)
def test_sums_are_left_to_the_epilogue_where_nothing_else_reads_what_it_overwrites(name, dtype):
    said, wanted = FORMS[name]
    eager, found, counts = changed(sparse(said, dtype), torch.randn(2, 35, K).half())
    assert counts == [wanted]
    assert_same(eager, found)


def test_sums_after_two_of_four_are_left_to_the_norm():
    """The simulated pass counts on it, see `fusions.sums_after`."""
    eager, found, counts = changed(
        sparse(FORMS["sum on sum"][0], pattern="2:4"), torch.randn(2, 35, K).half()
    )
    assert counts == [0]
    assert_same(eager, found)


def test_so_they_are_for_any_number_of_tokens():
    eager, found, counts = changed(sparse(FORMS["sum on sum"][0]), torch.randn(2, 35, K).half(), dynamic=True)
    assert counts == [2]
    assert_same(eager, found)


GRAPHS = {
    "what a block does": [["sparse"]],
    "the other way round": [["sparse"]],
    "sum on sum": [["sparse"], ["sparse"]],
    "an activation between them": [["activation"]],
    "parallel": [["sparse", "sparse"]],
    "parallel with a dense part": [["sparse", "dense"]],
}
"""Form -> the branches that are added to the residual, sum by sum."""


@pytest.mark.parametrize("name", GRAPHS)
def test_predicted_sums_are_those_that_the_pass_leaves_to_products(name, monkeypatch):
    monkeypatch.setattr(fusions, "RESIDUAL_EPILOGUE_ELEMENTS", 0)
    model, size = ModelGraph(name="x"), K * 70
    stream = model.add(Operation(name="x", kind="input", elements_out=size))
    stream = model.add(
        Operation(name="norm", kind="normalise", elements_in=size, elements_out=size), [stream]
    )
    for place, parts in enumerate(GRAPHS[name]):
        branches = []
        for number, part in enumerate(parts):
            own = model.add(linear(f"{place}.{number} {part}", K, K, 70, is_sparse=part != "dense"), [stream])
            sizes = {"elements_in": size, "elements_out": size}
            if part == "activation":
                own = model.add(Operation(name=f"{own} after", kind="activation", **sizes), [own])
            branches.append(own)
        sizes = {"elements_in": (len(branches) + 1) * size, "elements_out": 2 * size, "tensors_out": 2}
        stream = model.add(Operation(name=f"norm {place}", kind="normalise", **sizes), [*branches, stream])
    added = fusions.add_residuals(model)
    assert sum(bool(o.extra_moves) for o in added.products.values()) == FORMS[name][1]
    left = sum(o.tensors_in - 1 for o in added if o.kind == "normalise")
    assert left + FORMS[name][1] == sum(len(parts) for parts in GRAPHS[name])


class Attending(nn.Module):
    """A block as in Whisper: a feature-major residual stream, copies before attention, queries with a
    factor.
    """

    def __init__(self, factor):
        super().__init__()
        torch.manual_seed(0)
        self.factor, self.norm = factor, nn.LayerNorm(K)
        self.query, self.key, self.value, self.out = (nn.Linear(K, K) for _ in range(4))

    def forward(self, x):
        x = x.sin().permute(0, 2, 1)
        for _ in range(2):
            normed = self.norm(x)
            heads = [self.query(normed) * self.factor, self.key(normed), self.value(normed)]
            heads = [each.unflatten(-1, (4, -1)).transpose(1, 2).contiguous() for each in heads]
            mixed = nn.functional.scaled_dot_product_attention(*heads, scale=1.0)
            x = (x + self.out(mixed.transpose(1, 2).flatten(2))).clamp(-1000, 1000)
        return x, x.clone()


@pytest.mark.parametrize(("factor", "factors"), [(2.0**-2, 0), (0.2, 2)])
def test_attention_reads_what_the_product_wrote_and_sums_are_token_major(factor, factors, monkeypatch):
    """A factor that is no power of two would round otherwise: it stays."""
    model, graphs = Attending(factor).half().eval(), []
    sparsify(model, "tile-wise:64", sparsity=0.6, gpu="h200-sxm", max_tokens=512, quiet=True)
    lay_out = residual.lay_out
    monkeypatch.setattr(
        residual, "lay_out", lambda graph, *given: (lay_out(graph, *given), graphs.append(graph))
    )
    eager, found, counts = changed(model, torch.randn(2, K, 36).half())
    assert counts == [2]
    (graph,) = graphs
    live = [node for node in graph.nodes if node.users]
    copied = [node for node in live if node.target is torch.ops.aten.clone.default]
    assert not any(node.meta["val"].dim() == 4 for node in copied)
    assert sum(node.target is torch.ops.aten.mul.Tensor for node in live) == factors
    for one, other in zip(eager, found, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=4e-3)
        assert other.is_contiguous()
    assert found[0].data_ptr() != found[1].data_ptr()


def test_graphs_without_sparse_products_stay_as_they_are():
    model, before = Attending(2.0**-2).half().eval(), []

    def through(made, _):
        before.append([str(node) for node in made.graph.nodes])
        residual.AddInEpilogue()(made.graph)
        before.append([str(node) for node in made.graph.nodes])
        return make_boxed_func(made)

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(model, backend=aot_autograd(fw_compiler=through))(torch.randn(2, K, 36).half())
    assert before[0] == before[1]


@pytest.mark.parametrize(
    ("pattern", "more", "left"),
    [("tile-wise:64", 0, 1), ("tile-wise:64", 1, 0), ("tvw:128", 0, 0), ("tvw:128", 1, 0)],
)
def test_only_large_sums_after_tiles_are(pattern, more, left, monkeypatch):
    monkeypatch.setattr(residual, "RESIDUAL_EPILOGUE_ELEMENTS", 2 * 35 * K + more)
    model = Sum(FORMS["what a block does"][0]).half().eval()
    sparsify(model, pattern, sparsity=0.75, gpu="h200-sxm", max_tokens=512, quiet=True)
    eager, found, counts = changed(model, torch.randn(2, 35, K).half())
    assert counts == [left]
    assert_same(eager, found)


@pytest.mark.parametrize(("least", "registered"), [(512 * K, 1), (512 * K + 1, 0)])
def test_sparsify_registers_the_pass_where_a_model_on_a_gpu_may_gain(least, registered, monkeypatch):
    from prunecast.torch import convert
    from prunecast.torch.packed import PackedProduct

    told = []
    monkeypatch.setattr(convert, "RESIDUAL_EPILOGUE_ELEMENTS", least)
    monkeypatch.setattr(residual, "register", lambda: told.append(1))
    sparse(None)
    assert told == [], "it is on a CPU"
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    monkeypatch.setattr(PackedProduct, "prepare", lambda *_: None)
    sparse(None)
    assert len(told) == registered


def test_an_input_of_the_graph_is_not_overwritten():
    model, r = sparse(None), torch.randn(2, 35, K).half()
    x, kept = torch.randn(2, 35, K).half(), r.clone()
    eager, found, counts = changed(lambda x: r + model.layer(x), x)
    assert counts == [0]
    assert_same(eager, found)
    assert torch.equal(r, kept)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "operator"), [(None, "linear_add_"), ("fp8", "fp8_linear_add_")])
@pytest.mark.filterwarnings("ignore:dynamo_pgo force disabled")
@torch.no_grad()
def test_inductor_adds_in_place(dtype, operator):
    """No copy of the residual is made, and y is that of the model."""
    model, x = sparse(FORMS["sum on sum"][0], dtype), torch.randn(2, 35, K).half()
    torch._dynamo.reset()
    with config.patch(force_disable_caches=True, post_grad_custom_post_pass=None):
        residual.register()
        compiled = torch.compile(model, fullgraph=True)
        found, code = run_and_get_code(compiled, x)
    off = 8e-3 if dtype is None else 8e-2  # the compiled norm is not rounded before it is quantised
    assert torch.allclose(found, model(x), rtol=4e-3, atol=off)
    assert torch.equal(compiled(x), found), "every call makes the residual anew"
    calls = [line for line in code[0].splitlines() if f"ops.prunecast.{operator}." in line]
    assert len(calls) == 2
    assert len({call.partition("(")[2].partition(",")[0] for call in calls}) == 1


class Between(nn.Module):
    """Two layers, and a function of what is between them."""

    def __init__(self, between):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.between = nn.Linear(K, 512), nn.Linear(512, K), between

    def forward(self, x):
        return self.second(self.between(self.first(x.sin())))


BETWEEN = {
    "what the product wrote": (lambda y: y, 1),
    "in another shape": (lambda y: y.reshape(-1, 512), 1),
    "something computes it": (lambda y: y * 2, 0),
}


def in_fp8(model, x):
    """Prune the model to fp8 tiles; what it gives when compiled, and the targets in the changed graph."""
    targets = []
    sparsify(
        model, "block:256x32", sparsity=0.5, gpu="h200-sxm", max_tokens=512, dtype="fp8", few_tokens=False,
        quiet=True,
    )  # fmt: skip

    def through(made, _):
        residual.AddInEpilogue()(made.graph)
        made.graph.lint()
        targets.extend(str(node.target) for node in made.graph.nodes)
        made.recompile()
        return make_boxed_func(made)

    torch._dynamo.reset()
    backend = aot_autograd(fw_compiler=through, decompositions=select_decomp_table())
    return torch.compile(model, fullgraph=True, backend=backend)(x), targets


@pytest.mark.parametrize("case", BETWEEN)
@torch.no_grad()
def test_one_kernel_quantises_what_a_product_wrote(case):
    between, wanted = BETWEEN[case]
    model = Between(between).half().eval()
    x = torch.randn(2, 35, K).half()
    y, found = in_fp8(model, x)
    assert found.count("prunecast.quantise.default") == wanted
    assert found.count("aten.amax.default") == 2 - wanted
    if wanted:
        assert torch.equal(y, model(x))


class NormedFp8(nn.Module):
    """RMS norm, a product in fp8, attention of its parts, another product."""

    def __init__(self, norm, reads_norm):
        super().__init__()
        torch.manual_seed(0)
        self.norm, self.wide, self.out, self.reads_norm = norm, nn.Linear(K, 768), nn.Linear(K, K), reads_norm
        with torch.no_grad():
            for parameter in norm.parameters():
                parameter.normal_()

    def forward(self, x):
        normed = self.norm(x.sin())
        heads = self.wide(normed).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(*heads)
        y = self.out(mixed.transpose(1, 2).flatten(2))
        return (y, normed) if self.reads_norm else (y, y)


@pytest.mark.parametrize(
    ("name", "reads_norm", "wanted"),
    [
        ("rms norm of Llama", False, 1),
        ("rms norm of torch", False, 1),
        ("rms norm of Llama", True, 0),
        ("layer norm", False, 0),
    ],
)
@torch.no_grad()
def test_one_kernel_quantises_an_rms_norm_that_nothing_else_reads(name, reads_norm, wanted):
    model = NormedFp8(norms()[name], reads_norm).bfloat16().eval()
    x = torch.randn(2, 35, K).bfloat16()
    (y, _), found = in_fp8(model, x)
    assert found.count("prunecast.norm_quantise.default") == wanted
    # What attention wrote is quantised by a kernel too
    assert found.count("prunecast.quantise.default") == 1
    eager, _ = model(x)
    # Eager rounds the norm to bf16 before it quantises: numbers near a limit of e4m3 go to the other side
    assert (y - eager).norm() <= 2.0**-5 * eager.norm()


def test_a_pass_of_the_user_stays():
    def mine(graph):
        return None

    with config.patch(post_grad_custom_post_pass=mine):
        residual.register()
        assert config.post_grad_custom_post_pass is mine


class Normed(nn.Module):
    """A norm before a sparse layer, as `said` uses them."""

    def __init__(self, norm, said):
        super().__init__()
        torch.manual_seed(0)
        self.norm, self.layer, self.said = norm, nn.Linear(K, K), said
        with torch.no_grad():
            for parameter in norm.parameters():
                parameter.normal_()

    def forward(self, x):
        return self.said(self, x.sin())


def norms():
    transformers = pytest.importorskip("transformers")
    models = transformers.models
    return {
        "layer norm": nn.LayerNorm(K),
        "layer norm without bias": nn.LayerNorm(K, bias=False),
        "layer norm without parameters": nn.LayerNorm(K, elementwise_affine=False),
        "rms norm of torch": nn.RMSNorm(K),
        "rms norm of Llama": models.llama.modeling_llama.LlamaRMSNorm(K),
        "rms norm of T5": models.t5.modeling_t5.T5LayerNorm(K),
        "rms norm of Qwen3": models.qwen3.modeling_qwen3.Qwen3RMSNorm(K),
    }


NAMES = ("layer norm", "layer norm without bias", "layer norm without parameters", "rms norm of torch")
NAMES += ("rms norm of Llama", "rms norm of T5", "rms norm of Qwen3")


@torch.no_grad()
def compiled(model, x):
    """What the model gives, what its graph gives after the pass, and how often it has each transpose."""
    counts = {}

    def through(made, _):
        residual.AddInEpilogue()(made.graph)
        targets = [str(node.target) for node in made.graph.nodes]
        counts["apart"] = targets.count("prunecast.columns.default")
        counts["normed"] = targets.count("prunecast.norm_columns.default")
        made.graph.lint()
        made.recompile()
        return make_boxed_func(made)

    torch._dynamo.reset()
    backend = aot_autograd(fw_compiler=through, decompositions=select_decomp_table())
    return model(x), torch.compile(model, fullgraph=True, backend=backend)(x), counts


@pytest.fixture
def _transposed_apart(monkeypatch):
    for module in (ops, norm):
        monkeypatch.setattr(module, "SEPARATE_TRANSPOSE_ELEMENTS", 0)


@pytest.mark.usefixtures("_transposed_apart")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_norm_that_only_products_read_is_left_to_the_transpose(name, dtype):
    model = Normed(norms()[name], lambda m, x: (x + m.layer(m.norm(x)), x)).to(dtype).eval()
    sparsify(model, "tile-wise:64", sparsity=0.6, gpu="h200-sxm", max_tokens=512, quiet=True)
    x = 3 * torch.randn(2, 35, K).to(dtype)
    eager, found, counts = compiled(model, x)
    assert counts == {"apart": 0, "normed": 1}
    for one, other in zip(eager, found, strict=True):
        # Sums in another order, and then a rounding of each product's input
        step = 2.0**-8 if dtype is torch.bfloat16 else 2.0**-11
        assert (one - other).float().norm() <= 2 * step * one.float().norm()


KEPT = {
    "its result is a residual": lambda m, x: (y := m.norm(x)) + m.layer(y),
    "something is between": lambda m, x: m.layer(m.norm(x) * 2),
    "no norm": lambda m, x: m.layer(x * x),
}


@pytest.mark.usefixtures("_transposed_apart")
@pytest.mark.parametrize("case", KEPT)
def test_other_transposes_stay(case):
    model = Normed(nn.LayerNorm(K), KEPT[case]).half().eval()
    sparsify(model, "tile-wise:64", sparsity=0.6, gpu="h200-sxm", max_tokens=512, quiet=True)
    eager, found, counts = compiled(model, torch.randn(2, 35, K).half())
    assert counts == {"apart": 1, "normed": 0}
    assert torch.allclose(eager, found, rtol=2**-8, atol=2**-8)


def test_a_small_x_is_not_normalised_by_the_transpose():
    model = Normed(nn.LayerNorm(K), lambda m, x: m.layer(m.norm(x))).half().eval()
    sparsify(model, "tile-wise:64", sparsity=0.6, gpu="h200-sxm", max_tokens=512, quiet=True)
    *_, counts = compiled(model, torch.randn(60, K).half())
    assert counts == {"apart": 1, "normed": 0}


class MaskedAttending(nn.Module):
    """Attention of this package and the product that reads it; `between` is done to its result."""

    def __init__(self, between):
        super().__init__()
        torch.manual_seed(0)
        self.qkv, self.out, self.between = nn.Linear(K, 3 * K), nn.Linear(K, K), between

    def forward(self, x, mask):
        sequences, tokens, _ = x.shape
        heads = self.qkv(x).view(sequences, tokens, 3, K // 64, 64).permute(2, 0, 3, 1, 4)
        y = masked_attention.attend(*heads, mask, None)
        return self.out(self.between(y.reshape(sequences, tokens, K).contiguous()))


ATTENDING = {
    "the product reads it": (lambda y: y, 16, True),
    "something else reads it too": (lambda y: y + y.sum(), 16, False),
    "tokens that are no multiple of eight": (lambda y: y, 12, False),
}


@pytest.mark.usefixtures("_transposed_apart")
@pytest.mark.parametrize("case", ATTENDING)
@torch.no_grad()
def test_attention_writes_columns_if_only_a_product_reads_them(case):
    between, tokens, wanted = ATTENDING[case]
    model, flags = MaskedAttending(between).half().eval(), []
    sparsify(model, "tile-wise:64", sparsity=0.6, gpu="h200-sxm", max_tokens=512, quiet=True)
    x, mask = torch.randn(2, tokens, K).half(), torch.arange(tokens) < torch.tensor([[tokens], [5]])

    def through(made, _):
        residual.AddInEpilogue()(made.graph)
        made.graph.lint()
        found = torch.ops.prunecast.attention.default
        flags.extend(node.args[-1] for node in made.graph.find_nodes(op="call_function", target=found))
        made.recompile()
        return make_boxed_func(made)

    torch._dynamo.reset()
    backend = aot_autograd(fw_compiler=through, decompositions=select_decomp_table())
    y = torch.compile(model, fullgraph=True, backend=backend)(x, mask)
    assert flags == [wanted]
    assert torch.allclose(y, model(x, mask), rtol=1e-2, atol=1e-3)
