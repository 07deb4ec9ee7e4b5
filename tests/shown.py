"""What documents show and what running it prints; as a program, it pastes the one into the other.

A shown block is a `console`, `python` or, in the README, `sh` block. A `text` block after it has its output,
or the first lines of it and `...`. Pages run their blocks in order in a folder of their own, README and
numbered examples in the root.
"""

import contextlib
import io
import re
import runpy
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from prunecast.cli import main

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
BLOCK = re.compile(r"```(console|python)\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)
README_BLOCK = re.compile(r"```(sh|python)\n((?:(?!```).)*?)```\n\n```text\n(.*?)```", re.DOTALL)
COMPUTED = {"README.md": README_BLOCK}


class Shown(NamedTuple):
    """A block, and what is to stand behind it."""

    language: str
    code: str
    output: str
    """As shown now; empty where no output is shown."""


def shown_in(page: Path) -> list[Shown]:
    """The blocks of a page, in order."""
    found = COMPUTED.get(page.name, BLOCK).findall(page.read_text(encoding="utf-8"))
    return [Shown(*block) for block in found]


def printed(block: Shown, folder: Path) -> str:
    """What a block prints when it is run; spaces at the ends of lines do not count."""
    with contextlib.chdir(folder):
        if block.language == "python":
            text = said(lambda: exec(compile(block.code, "<shown>", "exec"), {"__name__": "__main__"}))
        else:
            lines = [line.removeprefix("$ ") for line in block.code.splitlines()]
            text = "".join(run(line) for line in lines if line.startswith("prunecast "))
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def as_shown(text: str, block: Shown) -> str:
    """Return a text, or its first lines if `...` ends the output that the block shows."""
    lines = block.output.splitlines(keepends=True)
    if lines[-1:] != ["...\n"]:
        return text
    return "".join([*text.splitlines(keepends=True)[: len(lines) - 1], "...\n"])


def run(line: str) -> str:
    """What a line that begins with `prunecast` prints; it must succeed."""
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors):
        codes: list[int] = []
        text = said(lambda: codes.append(main(shlex.split(line)[1:])))
    assert codes == [0], f"{line}: {errors.getvalue()}"
    return text


def printed_by(script: Path) -> str:
    """What a script prints."""
    return said(lambda: runpy.run_path(str(script), run_name="__main__"))


def said(work: Callable[[], object]) -> str:
    """What is printed meanwhile."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        work()
    return out.getvalue()


def with_weights(folder: Path) -> Path:
    """A folder in which pages may write, with the bundled weights where pages look for them."""
    (folder / "examples" / "stdlib_lm").mkdir(parents=True)
    shutil.copy(ROOT / "examples/stdlib_lm/weights.safetensors", folder / "examples/stdlib_lm")
    return folder


def pages() -> list[Path]:
    """The pages of docs that show blocks."""
    return sorted(page for page in (ROOT / "docs").rglob("*.md") if shown_in(page))


def examples() -> list[Path]:
    """The numbered examples."""
    return sorted((ROOT / "examples").glob("[0-9]_*.py"))


def expected(example: Path) -> Path:
    """Where the output of an example is kept."""
    return example.parent / "expected" / f"{example.stem}.txt"


def renewed() -> Iterator[tuple[Path, str]]:
    """Every file that shows an output, with its text as it should be."""
    for page in [README, *pages()]:
        text = page.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            where = ROOT if page == README else with_weights(Path(folder))
            for block in shown_in(page):
                now = as_shown(printed(block, where), block)
                if block.output:
                    text = text.replace(f"```text\n{block.output}```", f"```text\n{now}```")
        yield page, text
    for example in examples():
        yield expected(example), printed_by(example)


if __name__ == "__main__":
    for file, text in renewed():
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")
            print(f"renewed {file.relative_to(ROOT)}")
