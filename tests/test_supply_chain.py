"""The bill of materials of a wheel, and what asks for known vulnerabilities of what it lists."""

import hashlib
import json
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run(script, *words, env=None):
    command = [sys.executable, str(ROOT / "scripts" / script), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=1800, env=env)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel with the metadata that pyproject.toml states."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [
        "Metadata-Version: 2.4",
        "Name: prunecast",
        f"Version: {project['version']}",
        "License-Expression: Apache-2.0",
    ]
    lines += [f"Requires-Dist: {text}" for text in project["dependencies"]]
    for extra, texts in project["optional-dependencies"].items():
        lines += [f"Provides-Extra: {extra}"]
        lines += [f'Requires-Dist: {text}; extra == "{extra}"' for text in texts]
    file = tmp_path_factory.mktemp("wheel") / f"prunecast-{project['version']}-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as opened:
        opened.writestr(
            f"prunecast-{project['version']}.dist-info/METADATA", "\n".join(lines) + "\n\nText.\n"
        )
    return file


@pytest.fixture(scope="module")
def bill(wheel):
    made = run("sbom", wheel)
    assert made.returncode == 0, made.stderr
    assert run("sbom", wheel).stdout == made.stdout
    return json.loads(made.stdout)


def test_all_that_the_package_requires_is_listed_with_its_locked_version(bill):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    required = {re.split("[><=]", text)[0] for text in project["dependencies"]}
    listed = {one["name"]: one for one in bill["components"]}
    assert all(listed[name]["scope"] == "required" for name in required)
    assert {"llvmlite", "pillow"} <= listed.keys()  # of numba and of matplotlib
    assert listed["optuna"]["scope"] == "optional"
    locked = (ROOT / "scripts" / "constraints.txt").read_text().lower().replace("_", "-").split()
    assert all(f"{name}=={one['version']}" in locked for name, one in listed.items() if name != "setuptools")
    assert all(one["purl"] == f"pkg:pypi/{name}@{one['version']}" for name, one in listed.items())


def test_every_edge_ends_at_something_that_is_listed(bill, wheel):
    subject = bill["metadata"]["component"]
    assert subject["hashes"][0]["content"] == hashlib.sha256(wheel.read_bytes()).hexdigest()
    known = {one["bom-ref"] for one in bill["components"]}
    edges = {edge["ref"]: set(edge["dependsOn"]) for edge in bill["dependencies"]}
    assert set(edges) == known | {subject["bom-ref"]}
    assert set().union(*edges.values()) <= known


def test_what_is_no_wheel_is_one_line(tmp_path):
    (tmp_path / "a.whl").write_text("nothing")
    for file in (tmp_path / "a.whl", tmp_path / "none.whl"):
        refused = run("sbom", file)
        assert refused.returncode == 2
        assert len(refused.stderr.splitlines()) == 1


ANSWER = """import json, pathlib, sys
lines = pathlib.Path(sys.argv[-1]).read_text().split()
pairs = [line.split("==") for line in lines]
bad = {"typer": [{"id": "PYSEC-1"}]}
print(json.dumps({"dependencies": [{"name": n, "version": v, "vulns": bad.get(n, [])} for n, v in pairs]}))
"""
SKIPS = ANSWER.replace('"vulns": bad.get(n, [])', '"skip_reason": "not found"')


@pytest.mark.parametrize(
    ("tool", "code", "says"),
    [
        (ANSWER, 1, "audit: typer 2: PYSEC-1\naudit: 2 of 2 packages looked up, 1 vulnerabilities\n"),
        (ANSWER.replace("typer", "none"), 0, "audit: 2 of 2 packages looked up, 0 vulnerabilities\n"),
        (SKIPS, 0, "audit: not done: pip-audit or its advisories cannot be reached from here\n"),
        (
            "raise ImportError",
            0,
            "audit: not done: pip-audit or its advisories cannot be reached from here\n",
        ),
    ],
)
def test_vulnerabilities_fail_and_silence_does_not(tmp_path, tool, code, says):
    (tmp_path / "pip_audit.py").write_text(tool)
    listed = [{"name": "rich", "version": "1"}, {"name": "typer", "version": "2"}]
    (tmp_path / "sbom.json").write_text(json.dumps({"components": listed}))
    told = run("audit", tmp_path / "sbom.json", env={"PYTHONPATH": str(tmp_path)})
    assert (told.returncode, told.stdout) == (code, says)
