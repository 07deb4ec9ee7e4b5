"""`tests.hardening.mutants` and its map of tests, on a project of two functions."""

import ast
import json
import time

import pytest

from tests.hardening.mutants import drawn, judge_all, mutations
from tests.hardening.reached import ROOT, Reached, Sources, copy_tree, make_map

TOY = '''"""A project."""
LIMIT = 3


def add(a, b):
    """Return the sum, or -1 if it is more than LIMIT."""
    if a + b > LIMIT:
        return -1
    return a + b


def ignored(a):
    return a * 2


def shared(a):
    return a + 1
'''
TOY_TESTS = """import pytest
from toy import add, ignored, shared


@pytest.fixture(scope="module")
def made():
    return shared(1)


def test_of_a_fixture(made):
    pass


def test_of_the_same_fixture(made):
    assert made == 2


def test_add():
    assert add(1, 1) == 2


def test_limit():
    assert add(2, 1) == 3
    assert add(3, 1) == -1


def test_ignored():
    ignored(4)
"""


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    root = tmp_path_factory.mktemp("toy")
    (root / "src/toy").mkdir(parents=True)
    (root / "tests").mkdir()
    (root / "src/toy/__init__.py").write_text(TOY)
    (root / "tests/test_toy.py").write_text(TOY_TESTS)
    markers = '["slow: slow", "gpu: gpu", "compile: compile"]'
    (root / "pyproject.toml").write_text(f"[tool.pytest.ini_options]\nmarkers = {markers}\n")
    return root


def changed(text):
    """The source with each of its mutations."""
    for number in range(len(list(mutations(ast.parse(text))))):
        tree = ast.parse(text)
        list(mutations(tree))[number].apply()
        yield ast.unparse(ast.fix_missing_locations(tree))


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a < 3", {"a": 3}),
        ("a >= 3", {"a": 3}),
        ("a == b", {"a": 1, "b": 2}),
        ("a is None", {"a": 1}),
        ("a in b", {"a": 1, "b": [1]}),
        ("a not in b", {"a": 1, "b": [1]}),
        ("a and b", {"a": True, "b": False}),
        ("a or b", {"a": True, "b": False}),
        ("not a", {"a": True}),
        ("a + b", {"a": 4, "b": 3}),
        ("a * b", {"a": 4, "b": 3}),
        ("a // b", {"a": 4, "b": 3}),
        ("a % b", {"a": 4, "b": 3}),
        ("a ** b", {"a": 4, "b": 3}),
        ("a | b", {"a": 4, "b": 3}),
        ("a << b", {"a": 4, "b": 3}),
        ("-a", {"a": 4}),
        ("b if a else c", {"a": True, "b": 7, "c": 8}),
        ("True", {}),
        ("7", {}),
        ("0.0", {}),
        ("2.5", {}),
    ],
)
def test_each_mutation_changes_the_value_of_its_line(text, values):
    made = list(changed(text))
    assert made
    assert all(eval(new, dict(values)) != eval(text, dict(values)) for new in made)


@pytest.mark.parametrize(
    "text",
    [
        "def f(a: int | None = None) -> 'int | None': pass",
        "raise ValueError(a + 1)",
        "zip(a, b, strict=True)",
        "a + 'text'",
        "@lru_cache(maxsize=1)\ndef f(): pass",
        "if TYPE_CHECKING: pass",
    ],
)
def test_what_no_result_depends_on_is_not_changed(text):
    assert list(changed(text)) == []


def test_the_same_seed_draws_the_same_mutants_of_different_lines(tmp_path):
    copy_tree(ROOT / "src/prunecast/hardware", tmp_path / "src/hardware")
    sources = Sources(tmp_path)
    mutants = drawn(sources, 7, 12)
    assert drawn(sources, 7, 5) == mutants[:5]
    assert drawn(sources, 8, 5) != mutants[:5]
    assert len({(mutant.file, mutant.line) for mutant in mutants}) == 12
    for mutant in mutants:
        compile(mutant.after, mutant.file, "exec")
        assert len(mutant.change) == 2 or mutant.change == []


def test_blocks_know_the_tests_that_enter_them(toy):
    reached = make_map(toy, 1, 120)
    entered = {block: reached.entering(block) for block in reached.blocks}
    file = "src/toy/__init__.py"
    assert entered == {
        f"{file}:add#0": ["tests/test_toy.py::test_add", "tests/test_toy.py::test_limit"],
        f"{file}:add#1": ["tests/test_toy.py::test_limit"],
        f"{file}:ignored#0": ["tests/test_toy.py::test_ignored"],
        f"{file}:shared#0": [
            "tests/test_toy.py::test_of_a_fixture",
            "tests/test_toy.py::test_of_the_same_fixture",
        ],
    }


def test_a_file_that_cannot_be_imported_hides_no_other(toy, tmp_path, capsys):
    root = copy_tree(toy, tmp_path / "toy")
    (root / "tests/test_broken.py").write_text("import no_such_module\n")
    assert {test.split("::")[0] for test in make_map(root, 1, 120).tests} == {"tests/test_toy.py"}
    assert capsys.readouterr().err == ""


def test_tests_that_did_not_end_are_told(toy, capsys):
    assert make_map(toy, 1, 0.0).tests == []
    assert capsys.readouterr().err == "map: a run of 1 files ended early, after no test\n"


def test_a_mutant_is_killed_by_the_test_of_its_block_or_survives(toy):
    file = "src/toy/__init__.py"
    reached = Reached(
        ["tests/test_toy.py::test_ignored", "tests/test_toy.py::test_add", "tests/test_toy.py::test_limit"],
        {f"{file}:ignored#0": [0], f"{file}:add#0": [1, 2], f"{file}:add#1": [2], f"{file}:shared#0": [0]},
    )
    sources = Sources(toy)
    mutants = drawn(sources, 0, 9)
    end = time.monotonic() + 600
    found = {verdict.mutant.line: verdict for verdict in judge_all(mutants, sources, reached, 2, end, 100)}
    assert {line: verdict.verdict for line, verdict in found.items()} == {
        2: "killed",  # LIMIT, through the function that mentions it
        7: "killed",
        8: "killed",
        9: "killed",
        13: "survived",
        17: "survived",
    }
    assert found[9].why == "tests/test_toy.py::test_add"
    written = json.loads(found[13].json())
    assert written["file"] == file
    assert written["change"][0] == "-    return a * 2"
