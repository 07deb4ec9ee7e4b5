"""What the pages show runs: each page's commands and snippets, in order, in a folder of its own."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ["tutorial.md", "howto/prune_to_a_time.md"]
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
