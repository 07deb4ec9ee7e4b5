"""All workers of the tests share one folder of cubins, so that each kernel is compiled at most once. Recorded
kernels are not compiled, except for a sample (`compiled.py`).
"""

import json
import os
from pathlib import Path

import pytest

from prunecast.kernels.device import build
from tests.kernels.cuda.compiled import ANEW, Compiler, recorded
from tests.kernels.cuda.sass import counted


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
def _recorded() -> object:
    patch, compiler = pytest.MonkeyPatch(), Compiler(build._run_nvrtc, recorded())
    patch.setattr(build, "_run_nvrtc", compiler)
    yield
    patch.undo()
    if folder := os.environ.get(ANEW):
        Path(folder).mkdir(parents=True, exist_ok=True)
        found = {name: dict(resources) for name, resources in compiler.found.items()}
        for name, counts in counted.items():  # another process can have compiled it
            found.setdefault(name, {})["opcodes"] = counts
        worker = os.environ.get("PYTEST_XDIST_WORKER", "alone")
        part = {"kernels": found, "cubins": compiler.cubins}
        (Path(folder) / f"{worker}.json").write_text(json.dumps(part, indent=1, sort_keys=True))


@pytest.fixture(autouse=True)
def no_spills(monkeypatch):
    """Forms must compile here without any spill; other releases of NVRTC may spill a few bytes."""
    monkeypatch.setattr(build, "MOST_SPILL_BYTES", 0)
