"""The gate of the mma tile kernel with 2:4 weights: it compiles to what plans say, all products sparse."""

from dataclasses import replace

import numpy as np
import pytest

from prunecast.choice import fastest_plan
from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.hardware.occupancy import occupancy
from prunecast.kernels.tile.config import TILE_FORMS
from prunecast.kernels.tile.cuda.mma.operator import MmaOperator, _check_mma
from prunecast.kernels.two_of_four.kernel import _sparse_tensor_configs
from prunecast.patterns import NestedMap
from prunecast.patterns.element_map import element_map_from_mask
from prunecast.plan.kernel_plan import KernelPlan
from tests.kernels.cuda.mma.mma_plans import plan_of, ragged_map, variants_of
from tests.kernels.cuda.sass import opcodes
from tests.kernels.cuda.sparse.layouts import elements_in

pytest.importorskip("cuda.bindings.nvrtc")
pytestmark = pytest.mark.compile

A100, RTX_3090, B200 = "a100-sxm4-80gb", "rtx-3090", "b200"
FORMS = tuple(form[:2] for form in TILE_FORMS["sparse-mma"])
WIDEST = ((128, 256), (256, 128), (128, 128), (64, 256))
OTHER_ARCHS = {"sm_86": RTX_3090, "sm_89": "rtx-4090", "sm_100": B200, "sm_120": "rtx-4090"}
BUILDS = (
    *(("sm_80", A100, form) for form in FORMS),
    *(("sm_90a", B200, form) for form in FORMS),
    *(("sm_90a", RTX_3090, form) for form in WIDEST),
    *((arch, gpu, form) for arch, gpu in OTHER_ARCHS.items() for form in WIDEST),
)


def plan(form: tuple[int, int], gpu: str = A100, dtype: str = "fp16") -> KernelPlan:
    return plan_of(ragged_map(form[0]), 200, form, gpu=gpu, dtype=dtype, sparse=True)


def products(p: KernelPlan) -> int:
    """16 x 8 x 32 ones of a warp in a k-step, all in one loop."""
    return p.shape.block_k // 32 * (p.config.part_m // 16) * (p.config.part_n // 8)


@pytest.mark.parametrize(("arch", "gpu", "form"), BUILDS)
def test_every_architecture_takes_the_forms_of_its_plans(arch: str, gpu: str, form: tuple[int, int]) -> None:
    """No spills, as many blocks on an SM as the plan has, and every product on the sparse tensor cores."""
    p = plan(form, gpu)
    kernel = MmaOperator.compile_inputs(p).build(arch)  # shared memory and threads are checked by the source
    assert kernel.spill_bytes == kernel.shared_bytes == 0
    compiled = p.resources._replace(registers_per_thread=kernel.registers)
    spec = load_gpu(gpu)
    assert occupancy(compiled, spec).blocks_per_sm >= occupancy(p.resources, spec).blocks_per_sm
    found = {name: count for name, count in opcodes(kernel.cubin).items() if name.startswith("HMMA")}
    assert found == {"HMMA.SP.16832.F32": products(p)}


@pytest.mark.parametrize(("arch", "gpu"), [("sm_80", A100), ("sm_90a", B200), ("sm_120", RTX_3090)])
@pytest.mark.parametrize("form", [*WIDEST, (64, 64)])
def test_bf16_bias_and_gelu_do_not_spill(arch: str, gpu: str, form: tuple[int, int]) -> None:
    p = plan(form, gpu, dtype="bf16")
    assert MmaOperator.compile_inputs(p, activation="gelu", bias=True).build(arch).spill_bytes == 0


def test_tokens_and_weights_are_read_whole() -> None:
    """A step of 64: 2 x 8 operands of 8 tokens, four places, twice four fragments; the first again ahead."""
    p = plan((128, 256))
    found = opcodes(MmaOperator.compile_inputs(p).build("sm_80").cubin)
    assert {name: count for name, count in found.items() if name.startswith("LDSM")} == {"LDSM.16.MT88.4": 18}
    copies = {name for name in found if name.startswith("LDGSTS")}
    assert copies
    assert all(".128" in name for name in copies)


def test_steps_are_as_long_as_shared_memory_allows_without_a_block_less() -> None:
    for gpu, expected in {RTX_3090: 0, A100: 6, B200: 9}.items():
        variants = variants_of(gpu, tensor="sparse-mma")
        assert sum(v.shape.block_k == 64 for v in variants) == expected


@pytest.mark.parametrize("gpu", [A100, RTX_3090, B200])
@pytest.mark.parametrize("height", [16, 64, 256])
def test_plans_of_the_planner_run_on_it(gpu: str, height: int) -> None:
    tiles = ragged_map(height)
    _check_mma(
        fastest_plan("2:4", NestedMap(tiles=tiles, inner=elements_in(tiles)), 512, "fp16", load_gpu(gpu))
    )
    whole = element_map_from_mask(np.tile([True, False, True, False], (512, 64)), "2:4")
    _check_mma(fastest_plan("2:4", whole, 512, "bf16", load_gpu(gpu)))


def test_other_plans_are_refused() -> None:
    with pytest.raises(BadInput, match="the plan has sparse-wgmma"):
        MmaOperator.compile_inputs(replace(plan((64, 64)), tensor="sparse-wgmma"))
    with pytest.raises(BadInput, match="the plan has mma"):
        MmaOperator.compile_inputs(replace(plan((64, 64)), tensor="mma"))
    in_registers = replace(plan((64, 64)).config, tensor_path="registers")
    with pytest.raises(BadInput, match=r"2:4 needs compute capability 8\.0"):
        MmaOperator.compile_inputs(replace(plan((64, 64)), config=in_registers))
    with pytest.raises(BadInput, match="blocks are 128 x 256"):
        MmaOperator.compile_inputs(replace(plan((64, 64)), shape=plan((64, 64)).shape._replace(block_k=16)))


def test_gpus_without_sparse_tensor_cores_are_refused_when_planning() -> None:
    with pytest.raises(BadInput, match="2:4 needs sparse tensor cores, t4 has none"):
        _sparse_tensor_configs(plan((64, 64)).inner, 64, "fp16", load_gpu("t4"), tiles=ragged_map(64))
