"""Constants in the code of kernels are facts with kind and source; what was fitted is in files of costs."""

from pathlib import Path

import pytest

import prunecast
from benchmarks.house.__main__ import NUMBER_ROOMS
from benchmarks.house.constants import Constant, constants, has_source

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


def test_named_cuda_sources_exist() -> None:
    names = {path.name for path in PACKAGE.rglob("*.cu*")}
    for found in constants(PACKAGE / "kernels"):
        if has_source(found) and "CUDA source" in " ".join(found.text.split()):
            named = [word.strip("`.,") for word in found.text.split("Kind:")[1].split() if ".cu" in word]
            assert named, found.where
            assert set(named) <= names, found.where
