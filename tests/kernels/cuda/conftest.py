"""Cubins of the tests go to one folder a session, so that no test compiles what another has."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def cubins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder."""
    return tmp_path_factory.mktemp("cubins")


@pytest.fixture(scope="session", autouse=True)
def _own_cache(cubins: Path) -> object:
    patch = pytest.MonkeyPatch()
    patch.setenv("PRUNECAST_CACHE", str(cubins))
    yield
    patch.undo()
