"""The fp32 tile kernel compiles everywhere to what its plans say, without spills."""

import pytest

from prunecast.choice import fastest_plan
from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.kernels import KernelPlan
from prunecast.kernels.tile.config import TILE_FORMS
from prunecast.kernels.tile.cuda.ffma.operator import FfmaOperator
from tests.kernels.cuda.mma.mma_plans import plan_of, ragged_map
from tests.kernels.cuda.sass import opcodes

pytest.importorskip("cuda.bindings.nvrtc")
pytestmark = pytest.mark.compile

ARCHS = ("sm_75", "sm_80", "sm_90a", "sm_120")


def plan(form: tuple[int, int], arch: str = "sm_80") -> KernelPlan:
    gpu = {"sm_75": "t4", "sm_120": "rtx-5090"}.get(arch, "a100-sxm4-80gb")
    return plan_of(ragged_map(form[0]), 200, form, dtype="fp32", gpu=gpu)


@pytest.mark.parametrize("form", [form[:2] for form in TILE_FORMS["none"]])
@pytest.mark.parametrize(
    ("arch", "activation", "bias"), [*((arch, "gelu", True) for arch in ARCHS), ("sm_80", "none", False)]
)
def test_every_architecture_takes_every_form(
    form: tuple[int, int], arch: str, activation: str, bias: bool
) -> None:
    p = plan(form, arch)
    kernel = FfmaOperator.compile_inputs(p, activation=activation, bias=bias).build(arch)
    assert kernel.spill_bytes == kernel.shared_bytes == 0
    assert kernel.registers <= p.resources.registers_per_thread
    assert not any(name.startswith("HMMA") for name in opcodes(kernel.cubin))


def test_other_plans_are_refused() -> None:
    a100 = load_gpu("a100-sxm4-80gb")
    with pytest.raises(BadInput, match="runs tiles on CUDA cores, got tf32"):
        FfmaOperator.compile_inputs(fastest_plan("stspmm", ragged_map(64), 64, "tf32", a100))
    with pytest.raises(BadInput, match="activation must be one of"):
        FfmaOperator.compile_inputs(plan((64, 64)), activation="tanh")
