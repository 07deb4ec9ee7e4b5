"""For tests that run the examples' own modules in this process."""

import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def no_second_kernels(monkeypatch):
    """Transformers looks for a package `kernels`, and would find the repository's link of that name."""
    monkeypatch.setitem(sys.modules, "kernels", None)


@pytest.fixture
def scripts(request, monkeypatch):
    """The folders of a module's `STUDY` and of the harness, as their scripts see them themselves."""
    folders = [EXAMPLES / request.module.STUDY, EXAMPLES / "accuracy"]
    names = [path.stem for folder in folders for path in folder.glob("*.py")]
    for folder in folders:
        monkeypatch.syspath_prepend(folder)
    for name in names:
        sys.modules.pop(name, None)
    yield
    for name in names:
        sys.modules.pop(name, None)
