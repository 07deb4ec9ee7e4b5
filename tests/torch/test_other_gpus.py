"""`sparsify` for GPUs without wgmma and for fp32: which kernel each layer gets, and what it computes."""

import pytest

torch = pytest.importorskip("torch")

from prunecast.hardware import load_gpu  # noqa: E402
from prunecast.torch import sparsify  # noqa: E402
from prunecast.torch.layer_plans import plan_for  # noqa: E402
from prunecast.torch.layer_table import dtype_name  # noqa: E402
from prunecast.torch.weight_layouts import layout_of  # noqa: E402

GPUS = {
    ("a100-sxm4-80gb", torch.float16): ["mma", "fragments"],
    ("rtx-4090", torch.bfloat16): ["mma", "fragments"],
    ("t4", torch.float16): ["mma"],
    ("t4", torch.float32): ["none"],
    ("a100-sxm4-80gb", torch.float32): ["none"],
    ("h200-sxm", torch.float32): ["none"],
    ("h200-sxm", torch.float16): ["wgmma", "fragments"],
}


class Mlp(torch.nn.Module):
    """A gated MLP as Llama has it."""

    def __init__(self):
        super().__init__()
        self.gate_proj, self.up_proj = torch.nn.Linear(64, 96), torch.nn.Linear(64, 96)
        self.down_proj, self.act_fn = torch.nn.Linear(96, 64), torch.nn.SiLU()

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


@pytest.mark.parametrize(("gpu", "dtype"), GPUS)
def test_layers_are_packed_for_the_kernels_of_the_gpu(gpu, dtype):
    torch.manual_seed(0)
    model = Mlp().to(dtype).eval()
    sparsify(model, "tile-wise:32", gpu=gpu, max_tokens=256, sparsity=0.5, quiet=True)
    product = model.down_proj.product
    layouts = [layout_of(image) for image in product.images]
    assert [layout.kind for layout in layouts] == GPUS[gpu, dtype]
    spec = load_gpu(gpu)
    for tokens in (1, 13, 200):
        plan, image = plan_for(product.tile_map, tokens, dtype_name(dtype), spec, layouts, glu=False)
        assert (plan.shape.block_m, plan.dtype) == (layouts[image].block_m, dtype_name(dtype))
    x = torch.randn(3, 5, 64).to(dtype)
    with torch.no_grad():
        dense = Mlp().to(dtype)
        dense.load_state_dict(model.state_dict())
        assert (model(x).float() - dense(x).float()).abs().max() < 2e-2 * dense(x).float().abs().max()


@pytest.mark.parametrize("gpu", ["a100-sxm4-80gb", "rtx-4090"])
def test_2_of_4_runs_on_sparse_tensor_cores_before_hopper(gpu):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(128, 256)).half().eval()
    sparsify(model, "tvw:128", gpu=gpu, max_tokens=256, sparsity=0.75, quiet=True)
    assert layout_of(model[0].product.images[0]).kind == "sparse-mma"
    dense = torch.nn.Sequential(torch.nn.Linear(128, 256)).half().eval()
    dense.load_state_dict(model.state_dict())
    x = torch.randn(9, 128).half()
    with torch.no_grad():
        assert torch.allclose(model(x).float(), dense(x).float(), atol=5e-3)


def test_gates_are_fused_where_the_kernel_writes_gated_units():
    for gpu, fused in (("h200-sxm", True), ("a100-sxm4-80gb", False)):
        torch.manual_seed(0)
        model = torch.nn.Sequential(Mlp()).half().eval()
        sparsify(model, "tile-wise:32", gpu=gpu, max_tokens=256, sparsity=0.5, quiet=True)
        assert (type(model[0]).__name__ == "GatedMlp") is fused


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_weights_do_not_change_between_fp32_and_16_bits(dtype):
    from prunecast.errors import BadInput

    model = Mlp().to(dtype).eval()
    sparsify(model, "tile-wise:32", gpu="h200-sxm", max_tokens=256, sparsity=0.5, quiet=True)
    with pytest.raises(BadInput, match="cast the model, then sparsify"):
        model.to(torch.float32 if dtype == torch.float16 else torch.float16)
