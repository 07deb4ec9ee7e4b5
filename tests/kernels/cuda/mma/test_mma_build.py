"""The gate of the mma tile kernel: it compiles everywhere to what its plans say, without spills."""

from dataclasses import replace

import pytest

from prunecast.choice import fastest_plan
from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.hardware.occupancy import occupancy
from prunecast.kernels.device.build import KernelBuildError
from prunecast.kernels.tile.config import TILE_FORMS
from prunecast.kernels.tile.cuda.mma.operator import MmaOperator
from prunecast.plan.kernel_plan import KernelPlan
from tests.kernels.cuda.mma.mma_plans import plan_of, ragged_map, variants_of
from tests.kernels.cuda.sass import opcodes

pytest.importorskip("cuda.bindings.nvrtc")
pytestmark = pytest.mark.compile

A100, T4 = "a100-sxm4-80gb", "t4"
FORMS = tuple(form[:2] for form in TILE_FORMS["mma"])
T4_FORMS = tuple(tuple(v.shape[:2]) for v in variants_of(T4))
WIDEST = ((128, 256), (256, 128), (128, 128), (64, 256))
OTHER_ARCHS = {"sm_86": "rtx-3090", "sm_89": "rtx-4090", "sm_100": "b200", "sm_120": "rtx-4090"}
BUILDS = (
    *(("sm_80", A100, form) for form in FORMS),
    *(("sm_90a", A100, form) for form in WIDEST),
    *((arch, gpu, form) for arch, gpu in OTHER_ARCHS.items() for form in WIDEST),
    *(("sm_75", T4, form) for form in T4_FORMS),
)


def plan(form: tuple[int, int], gpu: str = A100, dtype: str = "fp16") -> KernelPlan:
    return plan_of(ragged_map(form[0]), 200, form, gpu=gpu, dtype=dtype)


def products(p: KernelPlan) -> int:
    """16 x 8 x 16 ones of a warp in a k-step, all in one loop."""
    return 2 * (p.config.part_m // 16) * (p.config.part_n // 8)


@pytest.mark.parametrize(("arch", "gpu", "form"), BUILDS)
def test_every_architecture_takes_the_forms_of_its_plans(arch: str, gpu: str, form: tuple[int, int]) -> None:
    """No spills, as many blocks on an SM as the plan has, and a product for every 16 x 8 x 16."""
    p = plan(form, gpu)
    kernel = MmaOperator.compile_inputs(p).build(arch)  # shared memory and threads are checked by the source
    assert kernel.spill_bytes == kernel.shared_bytes == 0
    assert kernel.registers < 256
    compiled = p.resources._replace(registers_per_thread=kernel.registers)
    spec = load_gpu(gpu)
    assert occupancy(compiled, spec).blocks_per_sm >= occupancy(p.resources, spec).blocks_per_sm
    found = opcodes(kernel.cubin)
    deep = sum(count for name, count in found.items() if name.startswith("HMMA.16816"))
    half = sum(count for name, count in found.items() if name.startswith("HMMA.1688."))
    assert (deep, half) == ((0, 2 * products(p)) if arch == "sm_75" else (products(p), 0))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_120"])
@pytest.mark.parametrize("form", [*WIDEST, (64, 64)])
def test_bf16_bias_and_gelu_do_not_spill(arch: str, form: tuple[int, int]) -> None:
    p = plan(form, dtype="bf16")
    assert MmaOperator.compile_inputs(p, activation="gelu", bias=True).build(arch).spill_bytes == 0


@pytest.mark.parametrize("form", [(128, 128), (64, 256)])
def test_gelu_does_not_spill_without_asynchronous_copies(form: tuple[int, int]) -> None:
    p = plan(form, T4)
    assert MmaOperator.compile_inputs(p, activation="gelu", bias=True).build("sm_75").spill_bytes == 0


def test_all_copies_are_of_16_bytes() -> None:
    p = plan((128, 256))
    found = opcodes(MmaOperator.compile_inputs(p).build("sm_80").cubin)
    copies = {name for name in found if name.startswith("LDGSTS")}
    assert copies
    assert all(".128" in name for name in copies)


def test_another_amount_of_shared_memory_than_the_plans_does_not_compile() -> None:
    p = plan((64, 64))
    wrong = MmaOperator.compile_inputs(p, changes={"PLAN_SHARED_BYTES": p.resources.shared_bytes + 16})
    with pytest.raises(KernelBuildError, match="another amount of shared memory"):
        wrong.build("sm_80")


def test_other_plans_are_refused() -> None:
    tiles = ragged_map(64)
    with pytest.raises(BadInput, match="runs tile maps on mma and 2:4 on sparse-mma, the plan has wgmma"):
        MmaOperator.compile_inputs(fastest_plan("stspmm", tiles, 64, "fp16", load_gpu("h200-sxm")))
    with pytest.raises(BadInput, match="takes fp16 or bf16"):
        MmaOperator.compile_inputs(fastest_plan("stspmm", tiles, 64, "tf32", load_gpu(A100)))
    with pytest.raises(BadInput, match="bf16 needs compute capability"):
        MmaOperator.compile_inputs(replace(plan((64, 64), T4), dtype="bf16"))
    with pytest.raises(BadInput, match="activation must be one of"):
        MmaOperator.compile_inputs(plan((64, 64)), activation="tanh")
