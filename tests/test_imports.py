"""What importing loads, seen from fresh interpreters."""

import json
import pkgutil
import re
import subprocess
import sys

import prunecast

# The only places that may know CuPy; the files of `prunecast.torch`, not the package, need PyTorch.
NEED_MORE = re.compile(r"prunecast\.(kernels\.(device|\w+\.cuda)|validation\.measure|torch\.)")


def submodules():
    found = pkgutil.walk_packages(prunecast.__path__, "prunecast.", onerror=lambda name: None)
    return [module.name for module in found if not NEED_MORE.match(module.name)]


def modules_after(code):
    """Names in `sys.modules` after running `code` in a fresh interpreter."""
    shown = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"],
        capture_output=True,
        text=True,
        timeout=1800,
        check=True,
    )
    return set(json.loads(shown.stdout.splitlines()[-1]))


def test_nothing_but_the_gpu_rooms_loads_cupy():
    names = submodules()
    assert {"prunecast.cli.predict", "prunecast.simulator.engine", "prunecast.patterns.sources.read"} <= set(
        names
    )
    # A stand-in that fails: a guarded import of CuPy would pass unseen where there is none.
    code = f"""
import importlib, sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        assert name.partition(".")[0] not in ("cupy", "cupyx"), f"{{name}} was imported"
sys.meta_path.insert(0, Refuse())
for name in {names!r}:
    importlib.import_module(name)
"""
    loaded = modules_after(code)
    assert not {"cupy", "cupyx"} & loaded
    assert set(names) <= loaded


def test_help_loads_nothing_heavy():
    code = "from prunecast.cli import main; assert main(['--help']) == 0"
    assert not {"numba", "scipy", "matplotlib", "numpy", "networkx", "rich"} & modules_after(code)


def test_help_of_a_command_and_its_usage_errors_load_nothing_heavy():
    for arguments, exit_code in ((["predict", "--help"], 0), (["predict"], 2)):
        code = f"from prunecast.cli import main; assert main({arguments}) == {exit_code}"
        assert not {"numba", "scipy", "matplotlib", "numpy"} & modules_after(code)


def test_listing_gpus_needs_no_compiler():
    code = "from prunecast.cli import main; assert main(['gpus']) == 0"
    assert not {"numba", "scipy", "matplotlib"} & modules_after(code)
