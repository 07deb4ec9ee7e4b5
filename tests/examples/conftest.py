"""For tests that run the examples' own modules in this process."""

import sys

import pytest


@pytest.fixture(autouse=True)
def no_second_kernels(monkeypatch):
    """Transformers looks for a package `kernels`, and would find the repository's link of that name."""
    monkeypatch.setitem(sys.modules, "kernels", None)
