"""Sums behind sparse products, which torch.compile leaves to the epilogue: where it may, and only there."""

import pytest

torch = pytest.importorskip("torch")

from functorch.compile import make_boxed_func  # noqa: E402
from torch import nn  # noqa: E402
from torch._dynamo.backends.common import aot_autograd  # noqa: E402
from torch._inductor import config  # noqa: E402
from torch._inductor.utils import run_and_get_code  # noqa: E402

from prunecast.torch import ops, residual, sparsify  # noqa: E402

# Inductor's own
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

K = 128


@pytest.fixture(autouse=True)
def _sums_of_any_size(monkeypatch):
    monkeypatch.setattr(ops, "LEAST_ADDED", 0)


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


def sparse(said):
    model = Sum(said).half().eval()
    sparsify(model, "tile-wise:64", sparsity=0.6, gpu="h200-sxm", max_tokens=512, quiet=True)
    return model


def assert_same(eager, found):
    for one, other in zip(*(y if isinstance(y, tuple) else (y,) for y in (eager, found)), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("name", FORMS)
def test_sums_are_left_to_the_epilogue_where_nothing_else_reads_what_it_overwrites(name):
    said, wanted = FORMS[name]
    eager, found, counts = changed(sparse(said), torch.randn(2, 35, K).half())
    assert counts == [wanted]
    assert_same(eager, found)


def test_so_they_are_for_any_number_of_tokens():
    eager, found, counts = changed(sparse(FORMS["sum on sum"][0]), torch.randn(2, 35, K).half(), dynamic=True)
    assert counts == [2]
    assert_same(eager, found)


@pytest.mark.parametrize("pattern", ["tile-wise:64", "tvw:128"])
@pytest.mark.parametrize(("more", "left"), [(0, 1), (1, 0)])
def test_only_large_sums_are(pattern, more, left, monkeypatch):
    monkeypatch.setattr(ops, "LEAST_ADDED", 2 * 35 * K + more)
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
    monkeypatch.setattr(convert, "LEAST_ADDED", least)
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
@pytest.mark.filterwarnings("ignore:dynamo_pgo force disabled")
@torch.no_grad()
def test_inductor_adds_in_place():
    """No copy of the residual is made, and y is that of the model."""
    model, x = sparse(FORMS["sum on sum"][0]), torch.randn(2, 35, K).half()
    torch._dynamo.reset()
    with config.patch(force_disable_caches=True, post_grad_custom_post_pass=None):
        residual.register()
        compiled = torch.compile(model, fullgraph=True)
        found, code = run_and_get_code(compiled, x)
    assert torch.allclose(found, model(x), rtol=4e-3, atol=8e-3)
    assert torch.equal(compiled(x), found), "every call makes the residual anew"
    calls = [line for line in code[0].splitlines() if "ops.prunecast.linear_add_" in line]
    assert len(calls) == 2
    assert len({call.partition("(")[2].partition(",")[0] for call in calls}) == 1


def test_a_pass_of_the_user_stays():
    def mine(graph):
        return None

    with config.patch(post_grad_custom_post_pass=mine):
        residual.register()
        assert config.post_grad_custom_post_pass is mine
