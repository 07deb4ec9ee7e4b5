"""What the pages show runs: each page's commands and snippets, in order, in a folder of its own."""

import re
import shlex
from pathlib import Path

import pytest

from prunecast.hardware.load import parse_spec
from prunecast.validation.suite import load_suite
from tests.shown import README, ROOT, pages, printed, run, shown_in, with_weights


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_what_a_page_shows_runs(page: Path, tmp_path: Path) -> None:
    with_weights(tmp_path)
    for block in shown_in(page):
        output = printed(block, tmp_path)
        assert not block.output or output == block.output


def test_commands_are_of_this_tool() -> None:
    for page in pages():
        for block in shown_in(page):
            if block.language == "console":
                assert all(line.startswith("$ prunecast ") for line in block.code.splitlines()), page


def commands_that_need_more() -> list[list[str]]:
    """What pages show as `sh`: it needs a GPU, or a reader's own files."""
    blocks = (
        block
        for page in [README, *(ROOT / "docs").rglob("*.md")]
        for block in re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    )
    lines = (line for block in blocks for line in block.replace("\\\n", " ").splitlines())
    return [shlex.split(line, comments=True) for line in lines if line.startswith("prunecast ")]


@pytest.mark.parametrize("name", sorted({words[1] for words in commands_that_need_more()}))
def test_what_needs_more_names_options_that_exist(name: str) -> None:
    shown = run(f"prunecast {name} --help")
    for words in commands_that_need_more():
        if words[1] == name:
            options = {word for word in words if word.startswith("-")}
            assert options <= set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", shown)), words


def test_a_suite_that_a_page_shows_is_a_suite(tmp_path: Path) -> None:
    page = (ROOT / "docs/howto/validate_on_your_gpu.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "suite.toml").write_text(text, encoding="utf-8")
    assert len(load_suite(str(tmp_path / "suite.toml")).cases) == 1


def test_a_gpu_file_that_a_page_shows_is_read() -> None:
    page = (ROOT / "docs/howto/add_a_gpu.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```toml\n(schema.*?)```", page, re.DOTALL)
    assert parse_spec(text.encode(), "my-gpu.toml").title == "My GPU"
