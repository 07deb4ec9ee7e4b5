"""The gate: the balanced kernels compile for every architecture without spills, as the plan says."""

import numpy as np
import pytest

from prunecast.choice import fastest_plan
from prunecast.hardware import load_gpu
from prunecast.kernels.balanced.cuda.operator import BalancedOperator
from prunecast.patterns import element_map_from_mask
from prunecast.patterns.n_of_m import prune_balanced
from tests.kernels.cuda.sass import opcodes

pytest.importorskip("cuda.bindings.nvrtc")
pytestmark = pytest.mark.compile

H200 = load_gpu("h200-sxm")
ARCHS = ("sm_75", "sm_80", "sm_89", "sm_90", "sm_100", "sm_120")


def plan(n: int, dtype: str = "fp32", sparsity: float = 0.75, m: int = 4096):
    scores = np.random.default_rng(0).random((m, 256))
    elements = element_map_from_mask(prune_balanced(scores, sparsity, width=64), "balanced:64")
    return fastest_plan("balanced", elements, n, dtype, H200)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("n", [1, 256])
def test_it_compiles_everywhere(n, arch):
    kernel = BalancedOperator.compile_inputs(plan(n)).build(arch)
    assert kernel.spill_bytes == 0
    assert kernel.shared_bytes == 0
    assert kernel.registers <= plan(n).resources.registers_per_thread


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("n", [1, 64, 2048])
def test_halves_compile_with_bias_and_gelu(n, dtype):
    assert (
        BalancedOperator.compile_inputs(plan(n, dtype), activation="gelu", bias=True)
        .build("sm_90")
        .spill_bytes
        == 0
    )


@pytest.mark.parametrize("n", [8, 64, 256, 2048])
@pytest.mark.parametrize("sparsity", [0.5, 0.75, 0.9])
def test_every_form_that_is_planned_compiles(sparsity, n):
    assert BalancedOperator.compile_inputs(plan(n, sparsity=sparsity)).build("sm_90").spill_bytes == 0


def test_b_is_read_16_bytes_at_a_time_and_copied_asynchronously():
    found = opcodes(BalancedOperator.compile_inputs(plan(256)).build("sm_90").cubin)
    assert found["LDS.128"] > 16
    assert any(name.startswith("LDGSTS") and ".128" in name for name in found)
    assert found["LDL"] == found["STL"] == 0
