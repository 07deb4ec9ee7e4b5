"""The README is short, its links lead somewhere, and it shows what its command prints."""

import json
import re
import tomllib

import pytest

from tests.shown import README, ROOT, Shown, as_shown, printed, shown_in

BLOCKS = shown_in(README)
TEXT = README.read_text(encoding="utf-8")
MOST_WORDS, MOST_WORDS_OF_A_CELL, MOST_LINES_OF_OUTPUT = 900, 12, 12


def test_it_is_short() -> None:
    assert len(TEXT.split()) <= MOST_WORDS
    cells = [cell for line in TEXT.splitlines() if line.startswith("|") for cell in line.split("|")]
    assert max(len(cell.split()) for cell in cells) <= MOST_WORDS_OF_A_CELL


def test_links_are_absolute_and_name_files_of_this_checkout() -> None:
    """A package index shows the README without the checkout, so that relative links lead nowhere."""
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    repository = urls["Repository"]
    raw = repository.replace("https://github.com/", "https://raw.githubusercontent.com/") + "/main/"
    links = re.findall(r"\]\(([^)\s]+)\)", TEXT)
    assert links
    for link in links:
        (path,) = re.findall(rf"^(?:{repository}/(?:blob|tree)/main/|{raw})([\w./-]+)$", link)
        assert (ROOT / path).exists(), link


def test_a_command_is_shown_that_needs_no_checkout() -> None:
    assert [block.language for block in BLOCKS] == ["sh"]
    assert not re.search(r"examples/|docs/", BLOCKS[0].code)
    lines = BLOCKS[0].output.removesuffix("...\n").splitlines()
    assert len(lines) <= MOST_LINES_OF_OUTPUT


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.language)
def test_a_block_prints_what_is_shown(block: Shown) -> None:
    assert as_shown(printed(block, ROOT), block) == block.output


def test_the_image_answers_the_command_of_the_quick_start() -> None:
    (words,) = re.findall(r"^CMD (.*)$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    (command,) = re.findall(r"^prunecast predict .*$", TEXT, re.MULTILINE)
    assert json.loads(words) == command.split()[1:]
