"""Dense layers that read the same x as one product: what they compute and hold is what it was."""

import copy

import pytest

torch = pytest.importorskip("torch")

from prunecast.torch import fuse_dense, sparsify  # noqa: E402


class Attention(torch.nn.Module):
    """Three products of x, one of them without a bias, and one of theirs."""

    def __init__(self) -> None:
        super().__init__()
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            self.add_module(name, torch.nn.Linear(256, 256, bias=name != "k_proj"))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.o_proj(self.q_proj(x) + self.k_proj(x) * self.v_proj(x))


def two() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(Attention(), Attention()).eval().requires_grad_(False)


def test_parts_compute_and_hold_what_layers_did() -> None:
    plain, x = two(), torch.randn(2, 5, 256)
    fused = fuse_dense(copy.deepcopy(plain))
    assert fused[0].q_proj.product is fused[0].v_proj.product is not fused[1].q_proj.product
    assert torch.allclose(fused(x), plain(x), atol=1e-5)
    assert [(name, each.tolist()) for name, each in sorted(fused.state_dict().items())] == [
        (name, each.tolist()) for name, each in sorted(plain.state_dict().items())
    ]


def test_other_weights_are_taken_by_their_names() -> None:
    plain, x = two(), torch.randn(5, 256)
    fused = fuse_dense(two())
    for parameter in plain.parameters():
        parameter.mul_(2)
    fused.load_state_dict(plain.state_dict())
    assert torch.allclose(fused(x), plain(x), atol=1e-4)
    with pytest.raises(RuntimeError, match=r"0\.v_proj\.bias"):
        fused.load_state_dict({n: t for n, t in plain.state_dict().items() if n != "0.v_proj.bias"})
    narrow = {**plain.state_dict(), "0.q_proj.weight": torch.zeros(256, 8)}
    with pytest.raises(RuntimeError, match=r"0\.q_proj\.weight"):
        fused.load_state_dict(narrow)


def test_what_sparsify_leaves_dense_is_fused_behind_it() -> None:
    model, x = two().half(), torch.randn(5, 256).half()
    dense = copy.deepcopy(model)
    sparsify(model, "tile-wise:128", sparsity=0.5, gpu="h200-sxm", max_tokens=64, target=["re:1"], quiet=True)
    for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
        getattr(dense[1], name).weight.copy_(getattr(model[1], name).weight)
    fuse_dense(model)
    assert type(model[0].q_proj).__name__ == "DensePart"
    assert type(model[1].q_proj).__name__ == "SparseLinear"
    assert torch.allclose(model(x), dense(x), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(("fuse", "kind"), [(True, "DensePart"), (False, "Linear")])
def test_what_a_recipe_leaves_dense_is_one_product(fuse: bool, kind: str) -> None:
    model, x = two().half(), torch.randn(5, 256).half()
    dense = copy.deepcopy(model)
    for each in (model, dense):
        each[0].o_proj.weight[:, ::2] = 0
    recipe = {"pattern": "tile-wise:128", "layers": [{"layer": "0.o_proj.weight", "sparsity": 0.5}]}
    sparsify(model, recipe, gpu="h200-sxm", max_tokens=64, fuse=fuse, quiet=True)
    assert type(model[0].o_proj).__name__ == "SparseLinear"
    assert {type(getattr(model[0], name)).__name__ for name in ("q_proj", "k_proj", "v_proj")} == {kind}
    assert torch.allclose(model(x), dense(x), rtol=1e-2, atol=1e-2)
