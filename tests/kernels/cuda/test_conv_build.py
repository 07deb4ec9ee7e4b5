"""The gate of the forms that read a convolution's input: what their plans say, without spills."""

from dataclasses import replace

import pytest

from prunecast.kernels.tile.cuda.mma.operator import MmaOperator
from prunecast.kernels.tile.cuda.operator import TileOperator
from tests.kernels.cuda.mma import mma_plans
from tests.kernels.cuda.plans import plan_of
from tests.kernels.cuda.test_on_cpu_conv import grid_of, tiles_of

pytest.importorskip("cuda.bindings.nvrtc")
pytestmark = pytest.mark.compile


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("form", [(128, 256), (128, 64), (64, 256), (256, 128)])
def test_forms_of_wgmma(form: tuple[int, int], stride: int) -> None:
    grid = grid_of(height=9, stride=stride)
    plan = replace(plan_of(tiles_of(grid, 2 * form[0], form[0]), grid.n, *form), source=grid)
    made = TileOperator.compile_inputs(plan, activation="relu", bias=True)
    assert (made.defines["BORDER"], made.defines.get("STRIDED", 0)) == (1, stride - 1)
    kernel = made.build()
    assert (kernel.registers, kernel.spill_bytes) == (168, 0)


@pytest.mark.parametrize("form", [(128, 256), (128, 192), (128, 64), (64, 256), (256, 128)])
def test_forms_of_wgmma_with_a_second_input(form: tuple[int, int]) -> None:
    grid = grid_of(second=24)
    plan = replace(plan_of(tiles_of(grid, 2 * form[0], form[0]), grid.n, *form), source=grid)
    kernel = TileOperator.compile_inputs(plan, activation="relu", bias=True).build()
    assert (kernel.registers, kernel.spill_bytes) == (168, 0)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(
    ("arch", "gpu", "form"),
    [
        ("sm_80", "a100-sxm4-80gb", (128, 256)),
        ("sm_80", "a100-sxm4-80gb", (64, 128)),
        ("sm_120", "rtx-4090", (128, 128)),
        ("sm_75", "t4", (128, 128)),
    ],
)
def test_forms_of_mma(arch: str, gpu: str, form: tuple[int, int], stride: int) -> None:
    grid = grid_of(height=9, stride=stride)
    product = mma_plans.plan_of(tiles_of(grid, 2 * form[0], form[0]), grid.n, form, gpu=gpu)
    plan = replace(product, source=grid)
    assert MmaOperator.compile_inputs(plan, activation="relu", bias=True).build(arch).spill_bytes == 0
