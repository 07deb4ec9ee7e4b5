"""The documents agree with the code."""

import re
import subprocess
import sys
from pathlib import Path

import prunecast
from prunecast.simulator import ATTRIBUTION, STALLS

ROOT = Path(__file__).parents[1]


def test_architecture_lists_every_file() -> None:
    run = subprocess.run(
        [sys.executable, ROOT / "scripts" / "architecture", "--check"], capture_output=True, check=False
    )
    assert run.returncode == 0, run.stderr.decode()


def test_changelog_begins_with_this_version() -> None:
    versions = re.findall(r"^## (\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] == prunecast.__version__


def test_links_between_documents_exist() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_simulators_page_says_what_every_part_of_a_result_is() -> None:
    tables = "\n".join(
        line.split("|")[1]
        for line in (ROOT / "docs" / "explanation" / "simulator.md").read_text().splitlines()
        if line.startswith("|")
    )
    for word in (*ATTRIBUTION, *STALLS):
        assert re.search(rf"(^|, | ){re.escape(word)}(,| |$)", tables, re.MULTILINE), word
