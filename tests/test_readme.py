"""What the README shows is what its commands and its snippet print."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "README.md").read_text(encoding="utf-8")


def shown_after(language: str, beginning: str) -> list[tuple[str, str]]:
    """Code blocks of a language that hold `beginning`, each with the text block that follows."""
    pattern = rf"```{language}\n((?:(?!```).)*?{beginning}.*?)```\n\n```text\n(.*?)```"
    return re.findall(pattern, PAGE, re.DOTALL)


def run(*arguments: str) -> str:
    """Standard output of a command that must succeed, run in the repository root."""
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return "\n".join(line.rstrip() for line in done.stdout.splitlines()) + "\n"


def test_the_command_prints_what_is_shown() -> None:
    ((commands, shown),) = shown_after("sh", "prunecast predict")
    (line,) = (line for line in commands.splitlines() if line.startswith("prunecast predict"))
    assert run("-m", "prunecast", *shlex.split(line)[1:]) == shown


def test_the_snippet_prints_what_is_shown() -> None:
    ((snippet, shown),) = shown_after("python", "prunecast.predict")
    assert run("-c", snippet) == shown
