"""The page about the data set and the citation say what the files are."""

import re
import tomllib
from pathlib import Path

import pytest

from prunecast.validation.case import RECORD_SCHEMA
from prunecast.validation.records import COLUMNS

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("column", COLUMNS)
def test_every_column_is_explained(column):
    page = (ROOT / "docs" / "reference" / "data_set.md").read_text(encoding="utf-8")
    assert f"`{column}`" in page


def test_the_page_is_of_this_schema():
    page = (ROOT / "docs" / "reference" / "data_set.md").read_text(encoding="utf-8")
    assert f"schema ({RECORD_SCHEMA})" in page


def test_the_citation_is_of_this_version_and_licence():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(rf"^version: {re.escape(project['version'])}$", citation, re.MULTILINE)
    assert re.search(rf"^license: {project['license']}$", citation, re.MULTILINE)
