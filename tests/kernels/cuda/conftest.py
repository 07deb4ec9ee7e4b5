"""Cubins of the tests go to one folder of all workers, so that no test compiles what another has.

`PRUNECAST_CUBINS=FILE` keeps the SHA-256 of every cubin that was compiled, by source and options: what two
trees compile to can then be compared.
"""

import hashlib
import json
import os
from pathlib import Path

import pytest

from prunecast.kernels.device import build


@pytest.fixture(scope="session")
def cubins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "cubins"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session", autouse=True)
def _own_cache(cubins: Path) -> object:
    patch = pytest.MonkeyPatch()
    patch.setenv("PRUNECAST_CACHE", str(cubins))
    yield
    patch.undo()


@pytest.fixture(scope="session", autouse=True)
def _digests() -> object:
    patch, found, run = pytest.MonkeyPatch(), {}, build._run_nvrtc

    def told(source: Path, folders: object, options: list[str]) -> tuple[bytes, str]:
        cubin, log = run(source, folders, options)
        found[" ".join([source.name, *options])] = hashlib.sha256(cubin).hexdigest()
        return cubin, log

    patch.setattr(build, "_run_nvrtc", told)
    yield
    patch.undo()
    if file := os.environ.get("PRUNECAST_CUBINS"):
        Path(file).write_text(json.dumps(found, indent=1, sort_keys=True))


@pytest.fixture(autouse=True)
def no_spills(monkeypatch):
    """Forms must compile here without any spill; other releases of NVRTC may spill a few bytes."""
    monkeypatch.setattr(build, "MOST_SPILL_BYTES", 0)
