"""Constants in the code of kernels are facts with kind and source; what was fitted is in files of costs."""

import re
from pathlib import Path

import numpy as np
import pytest

import prunecast
from benchmarks.house.__main__ import NUMBER_ROOMS
from benchmarks.house.constants import Constant, constants, has_source
from prunecast.choice import fastest_plan
from prunecast.hardware import load_gpu
from prunecast.kernels.balanced.cuda.operator import BalancedOperator
from prunecast.kernels.device.attention.attention import WIDTHS
from prunecast.patterns import element_map_from_mask

PACKAGE = Path(prunecast.__file__).parent


@pytest.mark.parametrize("room", NUMBER_ROOMS)
def test_every_number_at_the_top_of_a_module_says_kind_and_source(room: str) -> None:
    assert [found.where for found in constants(PACKAGE / room) if not has_source(found)] == []


@pytest.mark.parametrize(
    ("text", "whether"),
    [
        ("Warps of a block. Kind: CUDA source, `tile_shape.cuh`.", True),
        ("Registers. Kind: as-compiled,\nsm_90a.", True),
        ("Bytes of a line. Kind: CUDA\nsource, `x.cuh`.", True),
        ("Cycles from one to the next, fitted on an H200.", False),
        ("Cycles. Kind: fitted, H200.", False),
        ("Cycles. Kind: choice", False),
        ("", False),
    ],
)
def test_kinds_that_may_stand_in_code(text: str, whether: bool) -> None:
    assert has_source(Constant("file.py:1", ["NUMBER"], 1, text)) is whether


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("n", [1, 64])
def test_the_balanced_kernel_is_compiled_for_the_dtype_of_its_contract(dtype: str, n: int) -> None:
    source = (PACKAGE / "kernels/balanced/cuda/element.cuh").read_text()
    (value,) = re.findall(rf"(\d) for {dtype}", source.partition("Contract: HALF")[2].partition(".")[0])
    elements = element_map_from_mask(np.tile([True, False], (64, 64)), "balanced:64")
    plan = fastest_plan("balanced", elements, n, dtype, load_gpu("h200-sxm"))
    assert BalancedOperator.compile_inputs(plan).defines["HALF"] == int(value)


def test_head_widths_of_attention_are_those_of_its_source() -> None:
    source = (PACKAGE / "kernels/device/attention/attend.cu").read_text()
    (line,) = re.findall(r"static_assert\(WIDTH == .*", source)
    assert [int(each) for each in re.findall(r"WIDTH == (\d+)", line)] == [*WIDTHS]


def test_named_cuda_sources_exist() -> None:
    names = {path.name for path in PACKAGE.rglob("*.cu*")}
    for found in constants(PACKAGE / "kernels"):
        if has_source(found) and "CUDA source" in " ".join(found.text.split()):
            named = [word.strip("`.,") for word in found.text.split("Kind:")[1].split() if ".cu" in word]
            assert named, found.where
            assert set(named) <= names, found.where
