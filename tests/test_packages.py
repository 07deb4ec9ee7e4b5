"""Versions that CI runs with (scripts/constraints.txt) are those that pyproject.toml allows."""

import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent


def locked():
    lines = (ROOT / "scripts" / "constraints.txt").read_text().split()
    return {canonicalize_name(name): version for name, version in (line.split("==") for line in lines)}


def asked():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = project["dependency-groups"]
    lines = [*project["project"]["dependencies"], *groups["docs"]]
    lines += [line for line in groups["dev"] if isinstance(line, str)]
    return [Requirement(line) for line in lines]


def test_all_is_every_extra_but_those_of_one_cuda():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    others = {
        line for name, lines in extras.items() if name not in ("all", "cuda12", "cuda13") for line in lines
    }
    assert extras["all"] == sorted(others)


def test_every_requirement_is_locked_at_a_version_that_it_allows():
    versions = locked()
    assert [
        str(one) for one in asked() if not one.specifier.contains(versions[canonicalize_name(one.name)])
    ] == []
