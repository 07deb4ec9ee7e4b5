"""Experts in three-dimensional parameters, packed as matrices below each other."""

from types import SimpleNamespace

import numpy as np
import pytest

from prunecast.patterns import TileMap

torch = pytest.importorskip("torch")

from prunecast.torch import sparsify  # noqa: E402
from prunecast.torch.experts import (  # noqa: E402
    SparseExperts,
    are_of_experts,
    find_experts,
    per_token,
)

EXPERTS, HIDDEN, WIDTH = 5, 48, 32
OPTIONS = {"gpu": "h200-sxm", "max_tokens": 256, "few_tokens": False, "quiet": True}


class Experts(torch.nn.Module):
    """As transformers has them, one expert after the other."""

    def __init__(self, act=torch.nn.functional.silu):
        super().__init__()
        drawn = torch.Generator().manual_seed(0)
        shapes = {"gate_up_proj": (EXPERTS, 2 * WIDTH, HIDDEN), "down_proj": (EXPERTS, HIDDEN, WIDTH)}
        for name, shape in shapes.items():
            stack = torch.randn(shape, generator=drawn) * shape[-1] ** -0.5
            self.register_parameter(name, torch.nn.Parameter(stack.half()))
        self.act_fn = act

    def forward(self, hidden_states, top_k_index, top_k_weights):
        out = torch.zeros_like(hidden_states)
        for expert in range(EXPERTS):
            token, place = torch.where(top_k_index == expert)
            x = hidden_states[token]
            gate, up = (x @ self.gate_up_proj[expert].T).chunk(2, -1)
            y = (self.act_fn(gate) * up) @ self.down_proj[expert].T
            out.index_add_(0, token, y * top_k_weights[token, place, None])
        return out


def model_of(experts):
    return torch.nn.ModuleDict({"experts": experts})


def routed(tokens, *, only=None):
    """Tokens with two experts each; `only`: the experts that get any."""
    drawn = torch.Generator().manual_seed(tokens)
    among = torch.arange(EXPERTS) if only is None else torch.tensor(only)
    chosen = torch.stack([among[torch.randperm(len(among), generator=drawn)[:2]] for _ in range(tokens)])
    x = torch.randn(tokens, HIDDEN, generator=drawn).half()
    return x, chosen, torch.rand(chosen.shape, generator=drawn).half()


def pair():
    """A sparse model and the dense one with its zeros."""
    sparse, plain = model_of(Experts()), model_of(Experts())
    done = sparsify(sparse, "tile-wise:16", sparsity=0.5, **OPTIONS)
    assert done.layers == ("experts.gate_up_proj", "experts.down_proj")
    assert done.launches == 2
    plain.load_state_dict(sparse.state_dict())
    return sparse["experts"], plain["experts"]


@pytest.mark.parametrize(
    "given", [routed(1), routed(7), routed(40), routed(9, only=[1, 3]), routed(3, only=[4, 0])]
)
def test_sparse_experts_compute_what_dense_ones_with_their_zeros_do(given):
    sparse, plain = pair()
    assert isinstance(sparse, SparseExperts)
    x, chosen, share = given
    with torch.no_grad():
        y, other = sparse(*given), Experts()(*given)
        wanted = plain.float()(x.float(), chosen, share.float())
    assert y.dtype == x.dtype
    # Gate, up, their product, y, and the sum are rounded to fp16
    assert float((y - wanted).norm() / wanted.norm()) < 3e-3
    assert float((plain.gate_up_proj.detach() == 0).float().mean()) == pytest.approx(0.5, abs=0.05)
    assert float((other - wanted).norm() / wanted.norm()) > 0.05


def test_an_index_beyond_the_experts_adds_nothing():
    sparse, plain = pair()
    x, chosen, share = routed(12)
    chosen[3:, 1] = EXPERTS
    with torch.no_grad():
        y, wanted = sparse(x, chosen, share), plain(x, chosen, share)
    assert float((y - wanted).float().norm() / wanted.float().norm()) < 3e-3


def test_state_is_that_of_the_dense_module_and_loads():
    sparse, plain = pair()
    state = plain.state_dict()
    assert {name: tuple(each.shape) for name, each in sparse.state_dict().items()} == {
        name: tuple(each.shape) for name, each in state.items()
    }
    double = {name: 2 * each for name, each in state.items()}
    sparse.load_state_dict(double)
    for name, each in sparse.state_dict().items():
        assert torch.equal(each, double[name])
    with pytest.raises(RuntimeError, match="size mismatch for gate_up_proj"):
        sparse.load_state_dict({**state, "gate_up_proj": state["gate_up_proj"][:2]})
    with pytest.raises(RuntimeError, match=r"Missing key.*down_proj"):
        sparse.load_state_dict({"gate_up_proj": state["gate_up_proj"]})
    assert sparse.gate_up_proj.weight.shape == (EXPERTS, 2 * WIDTH, HIDDEN)
    assert sparse.gate_up_proj.density == pytest.approx(0.5, abs=0.05)


def test_sparse_experts_compile_whole_with_any_number_of_tokens():
    sparse, plain = pair()
    compiled = torch.compile(sparse, fullgraph=True, backend="aot_eager", dynamic=True)
    for tokens in (6, 30):
        given = routed(tokens)
        with torch.no_grad():
            y, wanted = compiled(*given), plain(*given)
        assert float((y - wanted).float().norm() / wanted.float().norm()) < 3e-3


def test_the_operator_is_one_as_torch_wants_them():
    sparse, _ = pair()
    torch.library.opcheck(
        torch.ops.prunecast.experts.default,
        sparse._call(*routed(7)),
        test_utils=("test_schema", "test_faketensor"),
    )


def test_modules_that_compute_something_else_stay_dense_and_are_named():
    class Halved(Experts):
        def forward(self, *given):
            return super().forward(*given) / 2

    class Biased(Experts):
        def __init__(self):
            super().__init__()
            self.down_proj_bias = torch.nn.Parameter(torch.zeros(EXPERTS, HIDDEN).half())

    assert [stack.name for stack in find_experts(model_of(Experts()))] == ["experts"]
    assert find_experts(model_of(Experts().to(torch.float8_e4m3fn))) == []
    for other in (Halved(), Biased()):
        model = torch.nn.ModuleDict({"experts": other, "linear": torch.nn.Linear(64, 64).half()})
        done = sparsify(model, "tile-wise:16", sparsity=0.5, **OPTIONS)
        assert done.layers == ("linear",)
        assert {line.partition(": ")[0] for line in done.left} >= {
            "experts.gate_up_proj",
            "experts.down_proj",
        }


def test_tiles_across_experts_stay_dense():
    model = torch.nn.ModuleDict({"experts": Experts(), "linear": torch.nn.Linear(64, 64).half()})
    done = sparsify(model, "tile-wise:64", sparsity=0.5, **OPTIONS)
    assert done.layers == ("linear",)
    assert "experts.down_proj: wanted tiles inside of experts" in done.left
    assert isinstance(model["experts"], Experts)


@pytest.mark.parametrize(("config", "wanted"), [(4, 4), (5, 5), (6, 5), (None, 2), ("many", 2)])
def test_launches_are_prepared_for_the_experts_per_token_of_the_configuration(config, wanted):
    experts = Experts()
    assert per_token(experts, EXPERTS) == 2
    experts.config = SimpleNamespace(num_experts_per_tok=config)
    assert per_token(experts, EXPERTS) == wanted
    assert per_token(experts, 1) == 1


def tiles_of(*rows):
    """Tiles with these rows, each with the first column, of a matrix of 12 rows."""
    counts = np.cumsum([0, *map(len, rows)])
    return TileMap(
        m=12,
        k=8,
        row_start=counts.astype(np.int32),
        row_index=np.concatenate(rows).astype(np.int32),
        column_start=np.arange(len(rows) + 1, dtype=np.int32),
        column_index=np.zeros(len(rows), np.int32),
        pattern="tile-wise:4",
    )


@pytest.mark.parametrize(
    ("rows", "experts", "are"),
    [
        ([range(0, 4), range(4, 8), range(8, 12)], 3, True),
        ([range(0, 4), range(4, 8), range(8, 12)], 1, True),
        ([[1, 0, 3, 2], [7, 6], [4, 5], range(8, 12)], 3, True),
        ([range(0, 4), range(4, 8), range(8, 12)], 2, False),  # the second tile has rows of both
        ([range(0, 4), range(8, 12), range(4, 8)], 3, False),  # experts in another order
        ([range(0, 4), range(4, 8)], 3, False),  # rows that are in no tile
    ],
)
def test_tiles_are_of_experts_if_each_has_rows_of_one_and_experts_ascend(rows, experts, are):
    assert are_of_experts(tiles_of(*map(list, rows)), experts) == are


@pytest.mark.parametrize(
    ("width", "hidden", "found"), [(32, 48, True), (24, 40, True), (20, 48, False), (32, 44, False)]
)
def test_widths_of_experts_are_multiples_of_eight(width, hidden, found, monkeypatch):
    monkeypatch.setitem(globals(), "WIDTH", width)
    monkeypatch.setitem(globals(), "HIDDEN", hidden)
    assert bool(find_experts(model_of(Experts()))) == found


def test_experts_are_found_by_what_they_compute_and_need_an_activation_and_matrices():
    class Flat(Experts):
        def __init__(self):
            super().__init__()
            self.down_proj = torch.nn.Parameter(self.down_proj.detach().flatten(0, 1))

    assert find_experts(model_of(Flat())) == []
    unknown = Experts()
    del unknown.act_fn
    assert find_experts(model_of(unknown)) == []
    assert [each.name for each in find_experts(Experts())] == [""]
