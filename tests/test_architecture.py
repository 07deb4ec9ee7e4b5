"""The house: floors, names, links, and what each room shows."""

import importlib
import json
import pkgutil
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import prunecast
from tests.test_imports import FOLDERS, names_in

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("codesign", "hardware", "kernels", "models", "patterns", "simulator", "validation")
NEED_MORE = re.compile(r"prunecast\.(kernels\.(device|\w+\.cuda)|validation\.measure|torch)\b")


def packages():
    found = pkgutil.walk_packages(prunecast.__path__, "prunecast.", onerror=lambda name: None)
    return [module.name for module in found if module.ispkg and not NEED_MORE.match(module.name)]


def test_floors_import_downward_only():
    command = shutil.which("lint-imports", path=str(Path(sys.executable).parent))
    if command is None:
        pytest.skip("import-linter is not installed")
    checked = subprocess.run(
        [command, "--config", "pyproject.toml", "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "0 broken" in checked.stdout


def test_generic_names_are_not_imported():
    """From the repository's root, where links of these names lie, a second copy could be loaded."""
    code = (
        "import importlib, json, sys\n"
        f"for name in {packages()!r}: importlib.import_module(name)\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=1800, check=True
    )
    assert not set(ROOMS) & set(json.loads(shown.stdout))
    # What other packages import in this process is not ours: transformers looks for a package `kernels`
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    named = [(path, module) for path in files for module, _ in names_in(path)[0]]
    assert len(named) > 5000
    assert not [each for each in named if each[1].partition(".")[0] in ROOMS]


@pytest.mark.parametrize("room", ROOMS)
def test_the_link_at_the_root_leads_to_the_room(room):
    link = ROOT / room
    if not link.is_symlink():
        pytest.skip("this checkout has no links")
    assert link.readlink() == Path("src", "prunecast", room)
    assert (link / "__init__.py").is_file()


def test_every_link_at_the_root_is_a_room():
    links = {path.name for path in ROOT.glob("[!.]*") if path.is_symlink()}
    assert links in (set(ROOMS), set())


@pytest.mark.parametrize("name", packages())
def test_a_room_shows_exactly_what_it_lists(name):
    """`__all__` can be imported, is sorted by no one else's names, and no public name is left out."""
    room = importlib.import_module(name)
    assert room.__doc__, f"{name} has no docstring"
    assert len(set(room.__all__)) == len(room.__all__)
    assert all(hasattr(room, public) for public in room.__all__)
    submodules = {module.name for module in pkgutil.iter_modules(room.__path__)}
    shown = {
        public
        for public, value in vars(room).items()
        if not public.startswith("_") and (public not in submodules or not isinstance(value, type(room)))
    }
    assert shown == set(room.__all__)


def test_every_module_can_be_imported():
    for module in pkgutil.walk_packages(prunecast.__path__, "prunecast.", onerror=lambda name: None):
        if not NEED_MORE.match(module.name) and not module.name.endswith("__main__"):
            assert importlib.import_module(module.name).__doc__, f"{module.name} has no docstring"
