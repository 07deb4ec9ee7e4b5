"""The gate of the kernel for few tokens: it compiles everywhere to what its plan says, without spills."""

import pytest

from prunecast.choice import fastest_plan
from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.hardware.occupancy import occupancy
from prunecast.kernels.device.build import KernelBuildError
from prunecast.kernels.small_n.configs import HEIGHTS, WIDTHS, SmallConfig, _block_widths, small_configs
from prunecast.kernels.small_n.cuda.records import SmallOperator
from prunecast.kernels.small_n.kernel import _compiled_resources, _plan_small_n, _small_n_configs
from prunecast.launch import launch_context
from prunecast.plan.kernel_plan import KernelPlan
from tests.kernels.cuda.plans import ragged_map
from tests.kernels.cuda.sass import opcodes

pytest.importorskip("cuda.bindings.nvrtc")
pytestmark = pytest.mark.compile

GPU = load_gpu("h200-sxm")
ARCHS = ("sm_80", "sm_86", "sm_89", "sm_90a", "sm_100", "sm_120")


def plan_of(block_m: int, n: int, dtype: str = "fp16") -> KernelPlan:
    return _plan_small_n(ragged_map(64), n, dtype, GPU, config=SmallConfig(block_m, _block_widths(n)[0], 4))


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("block_m", HEIGHTS)
def test_every_architecture_takes_the_widest_form(arch: str, block_m: int) -> None:
    plan = plan_of(block_m, 64)
    kernel = SmallOperator.compile_inputs(plan).build(
        arch
    )  # shared memory and threads are checked by the source
    assert kernel.registers <= plan.resources.registers_per_thread
    assert kernel.spill_bytes == kernel.shared_bytes == 0


@pytest.mark.parametrize("n", [1, 13, 17, 33, 36, 64])
def test_every_form_that_may_be_chosen_keeps_its_registers(n: int) -> None:
    """Rows of an odd number of tokens need most registers, a bias and GELU some more."""
    tiles = ragged_map(64)
    for form in _small_n_configs(tiles, n, "bf16", GPU):
        plan = _plan_small_n(tiles, n, "bf16", GPU, config=form)
        kernel = SmallOperator.compile_inputs(plan, activation="gelu", bias=True).build("sm_90a")
        assert kernel.spill_bytes == 0, form


@pytest.mark.parametrize(
    ("n", "activation", "bias"),
    [*((n, "gelu", True) for n in (1, 8, 24, 40, 64)), (24, "none", False), (64, "none", True)],
)
def test_every_form_writes_c_token_major_within_its_registers(n: int, activation: str, bias: bool) -> None:
    tiles = ragged_map(64)
    for form in _small_n_configs(tiles, n, "fp16", GPU):
        plan = _plan_small_n(tiles, n, "fp16", GPU, config=form)
        made = SmallOperator.compile_inputs(
            plan, activation=activation, bias=bias, changes={"TOKEN_MAJOR": 1}
        )
        assert made.build("sm_90a").spill_bytes == 0, form


@pytest.mark.parametrize("n", [8, 7, 12, 11, 28, 17, 56, 49])
def test_as_many_blocks_lie_on_an_sm_as_registers_say_that_the_compiler_took(n: int) -> None:
    for form in small_configs(n):
        said = _compiled_resources(form, n, GPU)
        if occupancy(said, GPU).blocks_per_sm == 0:
            continue
        plan = _plan_small_n(ragged_map(64), n, "fp16", GPU, config=form)
        took = SmallOperator.compile_inputs(plan).build("sm_90a").registers
        real = said._replace(registers_per_thread=took)
        assert occupancy(said, GPU).blocks_per_sm == occupancy(real, GPU).blocks_per_sm, (form, took)
        assert launch_context(plan, GPU).fit == occupancy(said, GPU)


@pytest.mark.parametrize("n", [1, 7, *WIDTHS])
@pytest.mark.parametrize(("dtype", "activation"), [("fp16", "none"), ("bf16", "gelu")])
def test_every_width_multiplies_and_copies_as_its_plan_says(n: int, dtype: str, activation: str) -> None:
    """16 x 8 x 16 products: block_m / 16 of them for every 8 tokens of a k16, in a loop."""
    plan = plan_of(64, n, dtype)
    kernel = SmallOperator.compile_inputs(plan, activation=activation, bias=True).build("sm_90a")
    assert kernel.spill_bytes == 0
    found = opcodes(kernel.cubin)
    products = sum(count for name, count in found.items() if name.startswith("HMMA.16816"))
    assert products == 64 // 16 * plan.shape.block_n // 8
    copies = {name for name in found if name.startswith("LDGSTS")}
    assert copies
    assert all(".128" in name for name in copies) == (n % 8 == 0 and n >= 64)


def test_a_plan_with_fewer_registers_is_refused() -> None:
    form = SmallOperator.compile_inputs(plan_of(64, 64))._replace(registers=64)
    with pytest.raises(KernelBuildError, match="registers on sm_90a"):
        form.build("sm_90a")


def test_other_plans_are_refused() -> None:
    with pytest.raises(BadInput, match="its own plans"):
        SmallOperator.compile_inputs(fastest_plan("stspmm", ragged_map(64), 16, "fp16", GPU))
