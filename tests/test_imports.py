"""What importing loads, seen from fresh interpreters, and that all that is imported anywhere exists."""

import ast
import json
import pkgutil
import re
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import prunecast

ROOT = Path(__file__).resolve().parents[1]
HOMES = {"prunecast": ROOT / "src", "tests": ROOT, "benchmarks": ROOT}
FOLDERS = ("src", "tests", "benchmarks", "examples", "docs")
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


@lru_cache
def names_in(path):
    """What a module imports, as (module, name or None), inside functions too; and the names that it binds."""
    imported, bound = [], set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom | ast.Import):
            bound |= {alias.asname or alias.name for alias in node.names}
            if isinstance(node, ast.Import):
                imported += [(alias.name, None) for alias in node.names]
            elif node.module and not node.level:
                imported += [(node.module, alias.name) for alias in node.names]
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            bound.add(node.name)
    return imported, bound


def module_file(name):
    """The file of a module of ours, or the folder of a package without a file; None if there is neither."""
    path = HOMES[name.partition(".")[0]].joinpath(*name.split("."))
    found = (path / "__init__.py", path.with_suffix(".py"), path)
    return next((file for file in found if file.exists()), None)


def has_name(module, name):
    file = module_file(module)
    is_file = file is not None and file.is_file()
    return (is_file and name in names_in(file)[1]) or module_file(f"{module}.{name}") is not None


def test_what_any_file_imports_from_us_exists():
    """Examples and benchmarks too, and what only machines with a GPU import."""
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    missing = [
        f"{path.relative_to(ROOT)}: {module} {name or ''}"
        for path in files
        for module, name in names_in(path)[0]
        if module.partition(".")[0] in HOMES
        and (module_file(module) is None or (name is not None and not has_name(module, name)))
    ]
    assert len(files) > 500
    assert not missing
