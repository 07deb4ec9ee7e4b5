"""Only `prunecast.kernels` knows kernels by name: everyone else asks their records."""

import ast
from pathlib import Path

import prunecast
from prunecast.kernels import KERNELS

SOURCES = Path(prunecast.__file__).parent


def names_in(node):
    """Names of kernels among the strings of a literal, or of a collection of literals."""
    if isinstance(node, ast.Constant):
        return {node.value} & set(KERNELS)
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return set().union(*map(names_in, node.elts))
    if isinstance(node, ast.Dict):
        return set().union(*map(names_in, filter(None, node.keys)))
    return set()


def is_kernel(node):
    """Whether an expression is called a kernel: `kernel`, `plan.kernel`, `row["kernel"]`, `row.family`."""
    match node:
        case ast.Attribute(value=ast.Name(id="row"), attr="family"):
            return True
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Subscript(slice=ast.Constant(value=name)):
            return str(name).endswith("kernel")
    return False


def comparisons(source):
    """Lines on which something called a kernel is compared or matched with names of kernels."""
    tree = ast.parse(source)
    tables = {
        target.id: names_in(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        sides = []
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
        elif isinstance(node, ast.Match):
            sides = [node.subject, *(p.value for c in node.cases for p in ast.walk(c) if hasattr(p, "value"))]
        named = any(names_in(side) or tables.get(getattr(side, "id", ""), ()) for side in sides)
        if named and any(map(is_kernel, sides)):
            yield node.lineno


def test_no_module_outside_kernels_compares_a_kernel_with_a_name():
    found = [
        f"{path.relative_to(SOURCES)}:{line}"
        for path in sorted(SOURCES.rglob("*.py"))
        if path.relative_to(SOURCES).parts[0] != "kernels"
        for line in comparisons(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_comparisons_of_every_kind_are_seen():
    for text in (
        'plan.kernel == "dense"',
        'kernel in ("csr", "2:4")',
        'row["kernel"] != "csr"',
        '"stspmm" == case.kernel',
        '_LOOKED_AT = {"dense"}\nplan.kernel in _LOOKED_AT',
        'match plan.kernel:\n    case "csr":\n        pass',
        'row.family == "dense"',
    ):
        assert list(comparisons(text)), text
    for text in ('pattern == "2:4"', "kernel in KERNELS", 'KERNELS[kernel].takes == "tiles"'):
        assert not list(comparisons(text)), text
