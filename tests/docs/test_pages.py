"""What the pages show runs: each page's commands and snippets, in order, in a folder of its own."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from prunecast.validation.suite import load_suite

ROOT = Path(__file__).parents[2]
PAGES = [
    "tutorial.md",
    "howto/prune_to_a_time.md",
    "howto/predict_without_a_gpu.md",
    "howto/validate_on_your_gpu.md",
]
BLOCK = re.compile(r"```(console|python)\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)


def run(arguments: list[str], folder: Path) -> str:
    """Standard output of what must succeed."""
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{arguments}: {done.stderr}"
    return done.stdout


def output_of(language: str, text: str, folder: Path) -> str:
    """What one block prints."""
    if language == "python":
        return run(["-c", text], folder)
    lines = text.splitlines()
    assert all(line.startswith("$ prunecast ") for line in lines), text
    return "".join(run(["-m", "prunecast", *line.split()[2:]], folder) for line in lines)


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_shows_runs(page: str, tmp_path: Path) -> None:
    (tmp_path / "examples" / "stdlib_lm").mkdir(parents=True)
    shutil.copy(ROOT / "examples/stdlib_lm/weights.safetensors", tmp_path / "examples/stdlib_lm")
    blocks = BLOCK.findall((ROOT / "docs" / page).read_text(encoding="utf-8"))
    assert blocks
    for language, text, shown in blocks:
        printed = output_of(language, text, tmp_path)
        assert not shown or printed == shown


def test_every_page_with_blocks_is_run() -> None:
    pages = (ROOT / "docs").rglob("*.md")
    assert sorted(PAGES) == sorted(
        str(page.relative_to(ROOT / "docs"))
        for page in pages
        if BLOCK.search(page.read_text(encoding="utf-8"))
    )


def commands_that_need_more() -> list[list[str]]:
    """What pages show as `sh`: it needs a GPU, or a reader's own files."""
    blocks = (
        block
        for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
        for block in re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    )
    lines = (line for block in blocks for line in block.replace("\\\n", " ").splitlines())
    return [shlex.split(line, comments=True) for line in lines if line.startswith("prunecast ")]


@pytest.mark.parametrize("command", {words[1]: words for words in commands_that_need_more()}.values())
def test_what_needs_more_names_options_that_exist(command: list[str], tmp_path: Path) -> None:
    shown = run(["-m", "prunecast", command[1], "--help"], tmp_path)
    for words in commands_that_need_more():
        if words[1] == command[1]:
            options = {word for word in words if word.startswith("-")}
            assert options <= set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", shown)), words


def test_a_suite_that_a_page_shows_is_a_suite(tmp_path: Path) -> None:
    page = (ROOT / "docs/howto/validate_on_your_gpu.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "suite.toml").write_text(text, encoding="utf-8")
    assert len(load_suite(str(tmp_path / "suite.toml")).cases) == 1
