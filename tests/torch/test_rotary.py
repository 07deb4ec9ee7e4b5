"""Rotary embedding of queries and keys in compiled graphs: in place in the result of their product."""

import pytest

torch = pytest.importorskip("torch")

from functorch.compile import make_boxed_func  # noqa: E402
from torch import nn  # noqa: E402
from torch._dynamo.backends.common import aot_autograd  # noqa: E402
from torch._inductor.decomposition import select_decomp_table  # noqa: E402

from prunecast.torch import residual, rotary, sparsify  # noqa: E402

# Inductor's own
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

K, WIDTH, TOKENS = 256, 32, 24


@pytest.fixture(autouse=True)
def _products_of_any_size(monkeypatch):
    monkeypatch.setattr(residual, "RESIDUAL_EPILOGUE_ELEMENTS", 0)
    monkeypatch.setattr(rotary, "RESIDUAL_EPILOGUE_ELEMENTS", 0)


def turned(x):
    return torch.cat((-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]), dim=-1)


def rotated(x, cos, sin):
    """Rotate heads (batch, heads, tokens, width) as transformers does."""
    return x * cos + turned(x) * sin


def part_rotated(x, cos, sin):
    """Rotate the first features of each head, as many as there are angles."""
    width = cos.shape[-1]
    if width == x.shape[-1]:
        return rotated(x, cos, sin)
    return torch.cat((rotated(x[..., :width], cos, sin), x[..., width:]), dim=-1)


class Attention(nn.Module):
    """Queries, keys and values of one joint product, or of several."""

    def __init__(self, key_heads, change):
        super().__init__()
        torch.manual_seed(0)
        self.change, keys = change, key_heads * WIDTH
        self.query, self.key, self.value = nn.Linear(K, K), nn.Linear(K, keys), nn.Linear(K, keys)
        self.norm, self.joint = nn.LayerNorm(WIDTH), nn.Linear(K, 3 * K)

    def heads(self, layer, x):
        return layer(x).view(*x.shape[:2], -1, WIDTH).transpose(1, 2)

    def forward(self, x, angles):
        emb = torch.cat((angles, angles), dim=-1)
        cos, sin = (each.to(x.dtype).unsqueeze(1) for each in (emb.cos(), emb.sin()))
        x = x.sin()
        query, key, value = (self.heads(each, x) for each in (self.query, self.key, self.value))
        before = query
        if self.change == "norm":
            query = self.norm(query)
        if self.change == "by head":  # rows of one product: query, key and value of a head, then of the next
            query, key, value = self.heads(self.joint, x).unflatten(1, (8, 3)).unbind(2)
        if self.change == "a part of each head":
            cos, sin = cos[..., : WIDTH // 4], sin[..., : WIDTH // 4]
        query = part_rotated(query, cos, sin)
        key = part_rotated(key, sin if self.change == "other angles" else cos, sin)
        scores = (
            query.float() @ key.float().repeat_interleave(query.shape[1] // key.shape[1], 1).mT
        ).softmax(-1)
        y = scores @ value.float().repeat_interleave(query.shape[1] // key.shape[1], 1)
        return (y, before) if self.change == "read before" else (y, y)


def read_again(graph, launch):
    """Return the nodes whose value shares the storage of what a launch overwrites, other than y and views
    before it.
    """
    before, y = True, launch.kwargs["y"].meta["val"].untyped_storage()._cdata
    found = []
    for node in graph.nodes:
        before = before and node is not launch
        value = node.meta.get("val")
        if not before and isinstance(value, torch.Tensor) and value.untyped_storage()._cdata == y:
            found.append(node)
    return found


@torch.no_grad()
def changed(model, *given, dynamic=False):
    """Return the results of the model and of its graph after the pass, and the launches that rotate."""
    counts = []

    def through(made, _):
        residual.AddInEpilogue()(made.graph)
        made.graph.lint()
        launches = [node for node in made.graph.nodes if node.target is rotary.auto_functionalized]
        launches = [each for each in launches if each.args[0] is torch.ops.prunecast.rotate_heads_.default]
        counts.append(len(launches))
        for launch in launches:
            assert not read_again(made.graph, launch), "Inductor would copy y"
        made.recompile()
        return make_boxed_func(made)

    torch._dynamo.reset()
    backend = aot_autograd(fw_compiler=through, decompositions=select_decomp_table())
    found = torch.compile(model, fullgraph=True, dynamic=dynamic, backend=backend)(*given)
    return model(*given), found, counts


def sparse(key_heads, change, dtype=None):
    model, pattern = Attention(key_heads, change).half().eval(), "block:256x32" if dtype else "tile-wise:64"
    options = {"dtype": dtype, "few_tokens": not dtype, "sparsity": 0.6, "max_tokens": 512}
    sparsify(model, pattern, gpu="h200-sxm", quiet=True, **options)
    return model


@pytest.mark.parametrize(
    ("change", "key_heads", "dtype", "batch", "wanted"),
    [
        ("", 8, None, 1, 1),
        ("", 8, "fp8", 2, 1),
        ("", 2, None, 3, 1),
        ("norm", 8, None, 1, 0),
        ("other angles", 8, None, 1, 0),
        ("read before", 8, None, 1, 0),
        ("by head", 8, None, 1, 0),
        ("a part of each head", 8, None, 1, 0),
    ],
)
def test_heads_are_rotated_in_place_where_nothing_else_reads_them(change, key_heads, dtype, batch, wanted):
    x, angles = torch.randn(batch, TOKENS, K).half(), torch.randn(1, TOKENS, WIDTH // 2)
    eager, found, counts = changed(sparse(key_heads, change, dtype), x, angles)
    assert counts == [wanted]
    for one, other in zip(eager, found, strict=True):
        # Eager rounds the products before the sum, the operator does not
        assert (one - other).abs().max() <= 4 * 2.0**-11 * one.abs().max()


def test_angles_of_each_sequence_and_any_number_of_tokens():
    x, angles = torch.randn(2, TOKENS, K).half(), torch.randn(2, TOKENS, WIDTH // 2)
    (eager, _), (found, _), counts = changed(sparse(8, ""), x, angles)
    assert counts == [1]
    assert (eager - found).abs().max() <= 4 * 2.0**-11 * eager.abs().max()


@pytest.mark.parametrize(("heads", "periods"), [(3, 5), (2, 10)])
def test_the_operator_is_the_sum_of_its_definition(heads, periods):
    torch.manual_seed(1)
    y, cos, sin = torch.randn(10, 4 * WIDTH).half(), *torch.randn(2, periods, WIDTH).half()
    x = y[:, : heads * WIDTH].clone().unflatten(1, (heads, WIDTH)).double()
    angles = [each.double().repeat(10 // periods, 1)[:, None] for each in (cos, sin)]
    wanted = rotated(x, *angles).flatten(1)
    rest = y[:, heads * WIDTH :].clone()
    torch.ops.prunecast.rotate_heads_(y, cos, sin, heads)
    assert (y[:, : heads * WIDTH].double() - wanted).abs().max() <= 2.0**-11 * wanted.abs().max()
    assert torch.equal(y[:, heads * WIDTH :], rest)
