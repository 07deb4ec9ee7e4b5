"""The documents agree with the code."""

import re
import runpy
import tomllib
from pathlib import Path

import prunecast
from prunecast.cli.app import COMMANDS
from prunecast.simulator import ATTRIBUTION, STALLS

ROOT = Path(__file__).parents[1]


def test_the_list_of_files_has_every_room() -> None:
    listed = runpy.run_path(str(ROOT / "scripts" / "architecture"))["listing"]()
    rooms = {path.parent.name for path in (ROOT / "src" / "prunecast").glob("*/__init__.py")}
    assert rooms == set(re.findall(r"^## `(\w+)/`", listed, re.MULTILINE)) - {"prunecast"}


def test_the_page_of_commands_has_every_command_with_its_options() -> None:
    page = runpy.run_path(str(ROOT / "scripts" / "commands"))["commands_page"]()
    for name in COMMANDS:
        (section,) = re.findall(
            rf"^### `prunecast {name}`\n(.*?)(?=^### |\Z)", page, re.MULTILINE | re.DOTALL
        )
        assert "**Options**" in section
        assert "`--help`" in section


def test_the_page_of_the_public_names_has_each_once() -> None:
    page = (ROOT / "docs" / "reference" / "prunecast.md").read_text(encoding="utf-8")
    named = re.findall(r"^\.\. auto(?!module)\w+:: prunecast\.(\w+)$", page, re.MULTILINE)
    assert sorted(named) == sorted(name for name in prunecast.__all__ if not name.startswith("_"))


def test_the_page_about_the_architecture_names_every_room_and_is_short() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    assert len(text.splitlines()) <= 150
    for path in (ROOT / "src" / "prunecast").glob("*/__init__.py"):
        assert f"`{path.parent.name}`" in text, path


def test_decisions_are_one_page_each_with_a_number_of_its_own() -> None:
    pages = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    for page in pages:
        assert len(page.read_text().split()) <= 600, page.name
    assert len({page.name[:4] for page in pages}) == len(pages)


def test_changelog_and_citation_have_the_version_of_the_project() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    versions = re.findall(r"^## (\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] == version
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()


def test_links_between_documents_exist() -> None:
    """Pages that are made when the documentation is built are named in `.gitignore`."""
    made = {
        ROOT / line[1:] for line in (ROOT / ".gitignore").read_text().split() if line.startswith("/docs/")
    }
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            linked = page.parent / target
            assert linked in made or linked.exists(), f"{page.name} links to {target}"


def test_the_simulators_page_says_what_every_part_of_a_result_is() -> None:
    tables = "\n".join(
        line.split("|")[1]
        for line in (ROOT / "docs" / "explanation" / "simulator.md").read_text().splitlines()
        if line.startswith("|")
    )
    for word in (*ATTRIBUTION, *STALLS):
        assert re.search(rf"(^|, | ){re.escape(word)}(,| |$)", tables, re.MULTILINE), word


def test_commands_that_pages_name_exist() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").rglob("*.md")]
    named = {name for page in pages for name in re.findall(r"python -m (benchmarks[\w.]+)", page.read_text())}
    assert "benchmarks.published" in named
    for name in named:
        path = ROOT / name.rstrip(".").replace(".", "/")
        assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), name


BEGINNINGS = ("After this page you ", "After this tutorial you ", "Look up here ", "On this page you find ")


def test_pages_begin_with_what_a_reader_will_be_able_to_do() -> None:
    """Decisions begin with the decision, and the first page of the documentation with what prunecast is."""
    docs = ROOT / "docs"
    pages = [ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *docs.rglob("*.md")]
    apart = {docs / "index.md", *(docs / "decisions").iterdir(), docs / "reference" / "files.md"}
    for page in set(pages) - apart:
        text = page.read_text(encoding="utf-8").splitlines()
        assert text[0].startswith("# "), page
        assert text[2].startswith(BEGINNINGS), page
