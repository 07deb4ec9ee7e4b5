"""The gate: every sparse form compiles without a GPU to what the plan says, nothing serialised or spilled."""

import numpy as np
import pytest

from prunecast.choice import fastest_plan
from prunecast.errors import BadInput
from prunecast.kernels import Schedule
from prunecast.kernels.two_of_four.cuda.operator import SparseOperator, _check_sparse_form
from prunecast.patterns.element_map import element_map_from_mask
from tests.kernels.cuda.plans import plan_of as dense_plan_of
from tests.kernels.cuda.plans import ragged_map
from tests.kernels.cuda.sass import opcodes
from tests.kernels.cuda.sparse.layouts import FORMS, GPU, plan_of

pytest.importorskip("cuda.bindings.nvrtc")
pytestmark = pytest.mark.compile


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_has_the_resources_of_its_plan(form: tuple[int, int], dtype: str) -> None:
    p = plan_of(200, form, dtype=dtype)
    kernel = SparseOperator.compile_inputs(p).build()  # threads and shared memory are checked by the source
    assert kernel.registers == p.resources.registers_per_thread == 168
    assert kernel.spill_bytes == 0
    assert kernel.shared_bytes == 0


@pytest.mark.parametrize("activation", ["none", "relu", "gelu"])
@pytest.mark.parametrize("form", [(256, 128), (128, 256)])
def test_bias_and_activation_do_not_spill(form: tuple[int, int], activation: str) -> None:
    p = plan_of(200, form, dtype="bf16")
    assert SparseOperator.compile_inputs(p, activation=activation, bias=True).build().spill_bytes == 0


@pytest.mark.parametrize("form", FORMS)
def test_all_multiplications_are_sparse_and_take_all_tokens(form: tuple[int, int]) -> None:
    """Two halves of a step each.

    256 rows: three middle steps and the last step stand in the code twice, the first step too; all have two
    groups of rows. 128 rows, one group: three middle steps, the first and the last once.
    """
    p = plan_of(200, form)
    found = opcodes(SparseOperator.compile_inputs(p).build().cubin)
    multiplications = {name: count for name, count in found.items() if "GMMA" in name}
    expected = {256: 2 * (2 * (3 + 1 + 1)) * 2, 128: 2 * (3 + 2)}[form[0]]
    assert multiplications == {f"HGMMA.SP.64x{form[1]}x32.F32": expected}
    assert not [name for name in found if name.startswith(("LDL", "STL"))]


def test_the_plan_of_a_tile_map_with_2_of_4_inside_runs_on_it() -> None:
    mask = np.tile([True, False, True, False], (512, 64))
    p = fastest_plan("2:4", element_map_from_mask(mask, "2:4"), 512, "fp16", GPU)
    _check_sparse_form(p)
    assert p.schedule is Schedule.STATIC


def test_plans_of_other_kernels_are_refused() -> None:
    with pytest.raises(BadInput, match="the sparse kernel runs 2:4 on wgmma, the plan has wgmma"):
        SparseOperator.compile_inputs(dense_plan_of(ragged_map(128), 64, 128, 256))


@pytest.mark.parametrize("form", FORMS)
def test_split_tiles_add_no_multiplication_and_do_not_spill(form: tuple[int, int]) -> None:
    p = plan_of(200, form, blocks=3, slices=2, dtype="bf16")
    options = {"activation": "gelu", "bias": True}
    assert SparseOperator.compile_inputs(p, **options).defines["SPLIT_K"] == 1
    split, whole = (
        SparseOperator.compile_inputs(p, **options, changes={"SPLIT_K": here}).build() for here in (1, 0)
    )
    assert split.spill_bytes == 0
    found = [
        {name: n for name, n in opcodes(kernel.cubin).items() if name.startswith(("HGMMA", "LDL", "STL"))}
        for kernel in (split, whole)
    ]
    assert found[0] == found[1]


def test_an_unknown_activation_is_refused() -> None:
    with pytest.raises(BadInput, match="activation must be one of none, relu, gelu"):
        SparseOperator.compile_inputs(plan_of(64, (256, 128)), activation="tanh")
