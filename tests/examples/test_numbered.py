"""The numbered examples print what stands beside them."""

from pathlib import Path

import pytest

from tests.shown import ROOT, examples, expected, printed_by


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.stem)
def test_an_example_prints_what_is_expected(example: Path) -> None:
    assert printed_by(example) == expected(example).read_text(encoding="utf-8")


def test_nothing_is_expected_of_an_example_that_is_gone() -> None:
    kept = {expected(example).name for example in examples()}
    assert {file.name for file in (ROOT / "examples" / "expected").iterdir()} == kept
