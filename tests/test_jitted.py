"""Functions that jitted ones alone may call: Python would call an entry that is not there, and crash."""

import ast
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[1] / "src" / "prunecast"
WITHOUT_ENTRY = {"inner", "inlined"}
JITTED = {*WITHOUT_ENTRY, "njit"}


def decorators(function: ast.FunctionDef) -> set[str]:
    called = (each.func if isinstance(each, ast.Call) else each for each in function.decorator_list)
    return {each.id for each in called if isinstance(each, ast.Name)}


def called_from_python(source: str) -> set[str]:
    """Functions without an entry that something else than a jitted function of the module names."""
    tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    without = {each.name for each in functions if decorators(each) & WITHOUT_ENTRY}
    inside = {
        id(name)
        for function in functions
        if decorators(function) & JITTED
        for name in ast.walk(function)
        if isinstance(name, ast.Name)
    }
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in without]
    return {name.id for name in names if id(name) not in inside}


def modules_with_such():
    found = [path for path in SOURCES.rglob("*.py") if "import inner" in path.read_text()]
    assert len(found) > 5
    return found


@pytest.mark.parametrize("path", modules_with_such(), ids=lambda path: path.stem)
def test_python_calls_none_of_them(path):
    assert not called_from_python(path.read_text())


def test_other_modules_name_none_of_them():
    for path in modules_with_such():
        tree = ast.parse(path.read_text())
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        for name in (each.name for each in functions if decorators(each) & WITHOUT_ENTRY):
            assert name.startswith("_"), f"{path}: {name} would be public"


def test_a_call_from_python_is_found():
    source = "@inner()\ndef _f(x):\n    return x\n\n@njit()\ndef g(x):\n    return _f(x)\n\n"
    assert not called_from_python(source)
    assert called_from_python(source + "def h(x):\n    return _f(x)\n") == {"_f"}
