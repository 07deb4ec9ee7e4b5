"""What the README shows is what its command and its snippet print."""

import pytest

from tests.shown import README, ROOT, Shown, printed, shown_in

BLOCKS = shown_in(README)


def test_a_command_and_a_snippet_are_shown() -> None:
    assert [block.language for block in BLOCKS] == ["sh", "python"]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.language)
def test_a_block_prints_what_is_shown(block: Shown) -> None:
    assert printed(block, ROOT) == block.output
