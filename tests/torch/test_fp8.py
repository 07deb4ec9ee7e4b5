"""`sparsify(dtype="fp8")` on a CPU: values, what stays in 16 bits, states, graphs, refusals."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.kernels.device.pass_launch import PassLaunch
from prunecast.patterns import TileMap, parse_pattern
from prunecast.torch import sparsify
from prunecast.torch.cuda import quantise as cuda_quantise
from prunecast.torch.cuda.quantise import quantise_rows
from prunecast.torch.epilogue import Epilogue, activated
from prunecast.torch.fp8 import Fp8Product, fits_fp8
from prunecast.torch.quantise import _quantise_on_gpu as quantise_on_gpu
from prunecast.torch.quantise import norm_quantised, quantise, quantised
from prunecast.torch.weight_layouts import layout_of
from tests.naive.quantise import quantised as quantised_by_numpy

PATTERN = "block:256x32"
GPU = load_gpu("h200-sxm")


class Gated(nn.Module):
    """A feed-forward with gate and up, as transformers writes it."""

    def __init__(self, features: int, wide: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(features, wide, bias=False)
        self.up_proj = nn.Linear(features, wide, bias=False)
        self.down_proj = nn.Linear(wide, features, bias=False)
        self.act_fn = nn.SiLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


def tiles_of(m: int, k: int, sparsity: float = 0.5) -> TileMap:
    pattern = parse_pattern(PATTERN)
    weights = np.random.default_rng(0).random((m, k))
    return pattern.map(pattern.prune({"a": weights}, sparsity)["a"])


def off(y: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((y.double() - wanted.double()).norm() / wanted.double().norm())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_x_is_quantised_as_numpy_does(dtype: torch.dtype) -> None:
    x = torch.randn(7, 96, dtype=dtype) * torch.logspace(-3, 3, 7)[:, None].to(dtype)
    x[3] = 0
    bits, scales = quantised(x)
    wanted, wanted_scales = quantised_by_numpy(x.float().numpy())
    assert np.array_equal(bits.view(torch.uint8).numpy(), wanted)
    assert np.array_equal(scales.numpy(), wanted_scales)
    assert torch.equal(quantise(x)[0].view(torch.uint8), bits.view(torch.uint8))


def test_a_norm_is_launched_with_its_own_weight_and_epsilon(monkeypatch: pytest.MonkeyPatch) -> None:
    launched: list[PassLaunch] = []
    monkeypatch.setattr(cuda_quantise, "enqueue", lambda launch, _: launched.append(launch))
    x, weight = torch.randn(3, 64).half(), torch.randn(64).half()
    assert quantise_rows(x, (weight, 1e-5)) is not None
    (args,) = (launch.args[0] for launch in launched)
    assert (args["x"], args["weight"], args["epsilon"]) == (x.data_ptr(), weight.data_ptr(), 1e-5)
    assert quantise_rows(x, (weight.float(), 1e-5)) is None


@pytest.mark.parametrize("has_norm", [False, True])
def test_on_a_gpu_the_kernel_quantises_what_it_can_read_and_torch_the_rest(
    has_norm: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel reads rows of 16 bits; its result is not computed again."""
    monkeypatch.setattr(cuda_quantise, "enqueue", lambda launch, _: launch)
    x, weight = torch.randn(3, 64), torch.rand(64)
    halves = quantise_on_gpu(x.half(), *((weight.half(), 1e-5) if has_norm else ()))
    assert not torch.equal(halves[1], (norm_quantised(x, weight, 1e-5) if has_norm else quantised(x))[1])
    norm = (weight, 1e-5) if has_norm else ()
    found, wanted = quantise_on_gpu(x, *norm), (norm_quantised if has_norm else quantised)(x, *norm)
    for one, other in zip(found, wanted, strict=True):
        assert torch.equal(one.float(), other.float())


def test_a_norm_is_divided_by_the_root_of_the_mean_square_and_multiplied_by_the_weight() -> None:
    x, weight = torch.randn(4, 32, dtype=torch.float64), torch.rand(32, dtype=torch.float64)
    norm = x / (x.square().mean(1, keepdim=True) + 0.5).sqrt() * weight
    bits, scales = norm_quantised(x, weight, 0.5)
    assert torch.allclose(scales.double(), norm.abs().amax(1) / 448)
    assert off(bits.double() * scales.double()[:, None], norm) < 0.04


@pytest.mark.parametrize("glu", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_the_product_is_that_of_the_quantised_values(*, glu: bool, bias: bool) -> None:
    torch.manual_seed(0)
    tiles, epilogue = tiles_of(512, 160), Epilogue("silu" if glu else "none", glu)
    weight, x = torch.randn(512, 160).bfloat16(), torch.randn(3, 30, 160).bfloat16()
    added = torch.randn(512) if bias else None
    own = Fp8Product(weight, tiles, added, gpu=GPU, max_tokens=90, few=None, epilogue=epilogue)
    kept = weight.float() * torch.from_numpy(tiles.mask())
    rows, row_scales = quantised(kept)
    bits, scales = quantised(x.reshape(90, 160))
    y = (bits.double() * scales.double()[:, None]) @ (rows.double() * row_scales.double()[:, None]).T
    y = activated(y if added is None else y + added.double(), epilogue)
    assert own(x).shape == (3, 30, 256 if glu else 512)
    assert off(own(x).reshape(y.shape), y) < 3e-3
    exact = activated(
        x.reshape(90, 160).double() @ kept.double().T + (0 if added is None else added), epilogue
    )
    assert off(own(x).reshape(y.shape), exact) < 0.06


def test_weights_outside_of_the_tiles_do_not_decide_the_scales() -> None:
    tiles, weight = tiles_of(256, 64), torch.ones(256, 64).half()
    inside = torch.from_numpy(tiles.mask())
    weight[~inside] = 1000
    own = Fp8Product(weight, tiles, None, gpu=GPU, max_tokens=8, few=None)
    assert torch.equal(own.dense_weight(), inside.half())
    assert layout_of(own.images[0]).kind == "fp8"


def model_of(dtype: torch.dtype = torch.bfloat16) -> nn.Module:
    torch.manual_seed(0)
    return (
        nn.Sequential(nn.Linear(128, 256, bias=False), Gated(256, 512), nn.Linear(256, 256, bias=False))
        .to(dtype)
        .eval()
    )


def converted(model: nn.Module, **options: object) -> nn.Module:
    given = {"gpu": "h200-sxm", "max_tokens": 256, "sparsity": 0.5, "dtype": "fp8", "quiet": True, **options}
    sparsify(model, PATTERN, **given)
    return model


def zeros_of(model: nn.Module) -> nn.Module:
    """The dense model with the weights of a sparse one."""
    dense = model_of()
    dense.load_state_dict(model.state_dict())
    return dense


@pytest.mark.parametrize("tokens", [5, 100])
@pytest.mark.parametrize("few_tokens", [False, True])
def test_a_model_in_fp8_is_near_the_one_with_the_same_zeros(tokens: int, *, few_tokens: bool) -> None:
    model = converted(model_of(), few_tokens=few_tokens)
    x = torch.randn(tokens, 128).bfloat16()
    with torch.no_grad():
        y, wanted = model(x), zeros_of(model)(x)
    is_16_bit = few_tokens and tokens <= 64
    assert off(y, wanted) < (0.01 if is_16_bit else 0.12)
    assert is_16_bit or off(y, wanted) > 0.01, "not in fp8"


def test_a_model_in_fp8_compiles_as_a_whole() -> None:
    model, x = converted(model_of(), few_tokens=False), torch.randn(100, 128).bfloat16()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        assert torch.equal(compiled(x), model(x))


def test_the_state_is_saved_loaded_and_cast() -> None:
    model, other = converted(model_of(), few_tokens=False), converted(model_of(), few_tokens=False)
    with torch.no_grad():
        for value in other[0].product.buffers():
            value.zero_()
    other.load_state_dict(model.state_dict())
    x = torch.randn(100, 128).bfloat16()
    with torch.no_grad():
        assert off(other(x), model(x)) < 0.05
        assert copy.deepcopy(model).half()(x.half()).dtype is torch.float16
    assert model[0].weight.dtype is torch.bfloat16
    with pytest.raises(BadInput, match="fp16 or bf16"):
        model.float()


def test_layers_that_keep_no_runs_stay_in_16_bits() -> None:
    model = model_of()
    done = sparsify(
        model, "tile-wise:128", gpu="h200-sxm", max_tokens=256, sparsity=0.5, dtype="fp8", quiet=True
    )
    assert done.layers
    assert not any(isinstance(module, Fp8Product) for module in model.modules())
    weight = model_of()[0].weight
    assert not fits_fp8(weight.float(), tiles_of(256, 128))
    assert fits_fp8(weight, tiles_of(256, 128))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "int8"}, "dtype is fp8"),
        ({"gpu": "a100-sxm4-80gb"}, "need wgmma"),
        ({"trainable": True}, "not trained"),
    ],
)
def test_what_cannot_run_is_refused_and_the_model_unchanged(options: dict[str, object], message: str) -> None:
    model = model_of()
    with pytest.raises(BadInput, match=message):
        converted(model, **options)
    assert type(model[0]) is nn.Linear


@pytest.mark.parametrize("change", ["rows", "strides"])
def test_a_sum_of_another_form_is_refused(change: str) -> None:
    own = Fp8Product(torch.randn(256, 64).half(), tiles_of(256, 64), None, gpu=GPU, max_tokens=8, few=None)
    bits, scales = quantised(torch.randn(8, 64))
    given = (bits, scales, own.image_0, own.row_scales, own.tiles, None, own.rows, GPU.name, own.plan)
    y, wanted = torch.ones(8, 256).half(), 1 + own(bits.half() * scales[:, None].half())
    torch.ops.prunecast.fp8_linear_add_.default(y, *given)
    assert off(y, wanted) < 0.05
    with pytest.raises(BadInput, match="wanted a sum" if change == "rows" else "contiguous"):
        torch.ops.prunecast.fp8_linear_add_.default(y[:4] if change == "rows" else y.t(), *given)
