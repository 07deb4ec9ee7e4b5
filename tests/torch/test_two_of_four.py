"""2:4 weights in torch: packed as NumPy packs them, and layers of a model that have them."""

import copy

import numpy as np
import pytest

from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.kernels.two_of_four.cuda.operator import SparseOperator
from prunecast.patterns import parse_pattern
from tests.kernels.cuda.packed import packed_stages
from tests.kernels.cuda.sparse.layouts import FORMS, plan_of

torch = pytest.importorskip("torch")

from prunecast.torch import sparsify  # noqa: E402
from prunecast.torch.layer_plans import layouts_for, plan_for  # noqa: E402
from prunecast.torch.weight_layouts import SPARSE_STAGES, Layout, layout_of, pack, unpack  # noqa: E402


@pytest.mark.parametrize("form", FORMS)
def test_images_are_those_of_numpy_and_come_back(form: tuple[int, int]) -> None:
    plan = plan_of(64, form)
    assert plan.inner is not None
    kept = plan.inner.mask()
    a = np.random.default_rng(0).standard_normal(kept.shape, np.float32)
    a = np.where(kept, a, 0).astype(np.float16)
    image = pack(torch.from_numpy(a), plan.tiles, Layout(SPARSE_STAGES, form[0]))
    wanted = packed_stages(SparseOperator, plan, a).weights
    assert np.array_equal(image.view(torch.int16).numpy().view(np.uint16), wanted)
    assert layout_of(image) == Layout(SPARSE_STAGES, form[0])
    assert np.array_equal(unpack(image, plan.tiles).numpy(), a)


def test_three_of_four_are_refused() -> None:
    plan = plan_of(64, (128, 64))
    with pytest.raises(BadInput, match="more than two of four"):
        pack(torch.ones(plan.m, plan.k).half(), plan.tiles, Layout(SPARSE_STAGES, 128))


class Attention(torch.nn.Module):
    """Three products of x, and one of theirs."""

    def __init__(self) -> None:
        super().__init__()
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            self.add_module(name, torch.nn.Linear(256, 256, bias=name != "v_proj"))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.o_proj(self.q_proj(x) + self.k_proj(x) * self.v_proj(x))


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return Attention().half().eval()


def pruned(pattern: str, sparsity: float, skip: tuple[str, ...] = ()) -> torch.nn.Module:
    """With the zeros of a pattern in its weights."""
    made = model()
    for name, layer in made.named_children():
        if name not in skip:
            found = np.abs(layer.weight.detach().float().numpy())
            mask = parse_pattern(pattern).prune({"w": found}, sparsity)["w"]
            layer.weight.data *= torch.from_numpy(mask)
    return made


@pytest.mark.parametrize(("pattern", "sparsity"), [("2:4", 0.5), ("tvw:128", 0.75), ("tvw:64:even", 0.875)])
def test_zeros_that_are_there(pattern: str, sparsity: float) -> None:
    dense = pruned(pattern, sparsity)
    sparse = copy.deepcopy(dense)
    done = sparsify(sparse, pattern, gpu="h200-sxm", max_tokens=64, quiet=True)
    assert len(done.layers) == 4
    assert done.launches == 2
    x = torch.randn(3, 5, 256).half()
    assert torch.allclose(sparse(x), dense(x), rtol=1e-2, atol=1e-2)
    for name, weight in dense.state_dict().items():
        assert torch.equal(sparse.state_dict()[name], weight)
    assert sparse.q_proj.density == pytest.approx(1.0 - sparsity, abs=0.02)


def test_pruning_here_gives_what_pruning_before_gives() -> None:
    sparse, other = model(), pruned("tvw:128", 0.75)
    sparsify(sparse, "tvw:128", sparsity=0.75, gpu="h200-sxm", max_tokens=64, quiet=True)
    sparsify(other, "tvw:128", gpu="h200-sxm", max_tokens=64, quiet=True)
    assert torch.equal(sparse.k_proj.weight, other.k_proj.weight)


def test_siblings_with_and_without_2_of_4_are_products_of_their_own() -> None:
    dense = pruned("2:4", 0.5, skip=("k_proj",))
    tiles = parse_pattern("tile-wise:128").prune(
        {"w": np.abs(dense.k_proj.weight.detach().float().numpy())}, 0.5
    )
    dense.k_proj.weight.data *= torch.from_numpy(tiles["w"])
    sparse = copy.deepcopy(dense)
    layers = [{"layer": name, "pattern": "2:4", "sparsity": 0.5} for name in ("q_proj", "v_proj", "o_proj")]
    recipe = {"layers": [{"layer": "k_proj", "pattern": "tile-wise:128", "sparsity": 0.5}, *layers]}
    sparsify(sparse, recipe, gpu="h200-sxm", max_tokens=64, quiet=True)
    x = torch.randn(7, 256).half()
    assert torch.allclose(sparse(x), dense(x), rtol=1e-2, atol=1e-2)


def test_siblings_beside_a_dense_one_are_one_launch() -> None:
    dense = pruned("tile-wise:128", 0.5, skip=("k_proj",))
    sparse, x = copy.deepcopy(dense), torch.randn(7, 256).half()
    done = sparsify(sparse, "tile-wise:128", gpu="h200-sxm", max_tokens=64, quiet=True)
    assert (len(done.layers), done.launches) == (3, 2)
    assert torch.allclose(sparse(x), dense(x), rtol=1e-2, atol=1e-2)


def test_a_cast_keeps_places() -> None:
    sparse = pruned("2:4", 0.5)
    sparsify(sparse, "2:4", gpu="h200-sxm", max_tokens=64, quiet=True)
    before = sparse.o_proj.weight
    sparse.bfloat16()
    assert torch.equal(sparse.o_proj.weight, before.bfloat16())


def test_other_weights_are_taken_where_they_are_2_of_4() -> None:
    sparse, other = pruned("2:4", 0.5), pruned("2:4", 0.5)
    sparsify(sparse, "2:4", gpu="h200-sxm", max_tokens=64, quiet=True)
    other.o_proj.weight.data *= 2
    sparse.load_state_dict(other.state_dict())
    assert torch.equal(sparse.o_proj.weight, other.o_proj.weight)
    with pytest.raises(BadInput, match="more than two of four"):
        sparse.load_state_dict(model().state_dict())


REFUSED = {
    "training": ({"trainable": True}, "not trained in place"),
    "no sparse tensor cores": ({"gpu": "t4"}, "2:4 needs sparse tensor cores, t4 has none"),
    "fp32": (
        {},
        "^q_proj: 2:4 kernels run fp16 and bf16 on h200-sxm, these weights are fp32: cast the model",
    ),
    "other zeros": ({"recipe": "tvw:16"}, "q_proj: mask is not tvw:16"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_are_one_line_and_convert_nothing(case: str) -> None:
    options, message = REFUSED[case]
    made = pruned("2:4", 0.5) if case != "other zeros" else model()
    made = made.float() if case == "fp32" else made
    given = {"recipe": "2:4", "gpu": "h200-sxm", "max_tokens": 64, "quiet": True, **options}
    with pytest.raises(BadInput, match=message) as refusal:
        sparsify(made, given.pop("recipe"), **given)
    assert "\n" not in str(refusal.value)
    assert all(type(layer) is torch.nn.Linear for layer in made.children())


def test_packed_weights_do_not_become_parameters() -> None:
    sparse = pruned("2:4", 0.5)
    sparsify(sparse, "2:4", gpu="h200-sxm", max_tokens=64, quiet=True)
    with pytest.raises(BadInput, match=r"^2:4 weights are not trained in place"):
        sparse.o_proj.product.make_trainable()
    assert not list(sparse.o_proj.parameters())


@pytest.mark.parametrize("tokens", [8, 200, 2048])
def test_one_image_serves_all_numbers_of_tokens(tokens: int) -> None:
    gpu, plan = load_gpu("h200-sxm"), plan_of(64, (256, 128))
    layouts = layouts_for(plan.tiles, "fp16", gpu, 4096, few_tokens=True, two_of_four=True)
    found, image = plan_for(plan.tiles, tokens, "fp16", gpu, layouts, glu=False)
    assert (found.kernel, found.shape.block_m, image) == ("2:4", layouts[0].block_m, 0)


class Chain(torch.nn.Module):
    """Two products, an activation between them."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = torch.nn.Linear(128, 256), torch.nn.Linear(256, 128)
        self.activation_fn = torch.nn.GELU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(self.activation_fn(self.fc1(x)))


def test_an_activation_between_two_products_is_an_epilogue() -> None:
    torch.manual_seed(0)
    dense = torch.nn.Sequential(Chain()).half().eval()
    for layer in (dense[0].fc1, dense[0].fc2):
        layer.weight.data *= torch.tensor([1, 0, 1, 0]).repeat(layer.in_features // 4)
    sparse = copy.deepcopy(dense)
    sparsify(sparse, "2:4", gpu="h200-sxm", max_tokens=64, quiet=True)
    assert sparse[0].fc1.product.epilogue.activation == "gelu"
    x = torch.randn(9, 128).half()
    assert torch.allclose(sparse(x), dense(x), rtol=1e-2, atol=1e-2)
