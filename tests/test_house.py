"""Counters of `benchmarks.house`: their limits, and that each counts what it says."""

import io
import tokenize
from pathlib import Path
from textwrap import dedent

import pytest

from benchmarks.house.__main__ import ROOT, source_counts
from benchmarks.house.builders import ROLES, builders
from benchmarks.house.engines import most_apart, step_times
from benchmarks.house.limits import ADVICE, above, lowered, read_limits
from benchmarks.house.sources import PACKAGE, Source, granularity, is_text, read_sources, token_lines
from benchmarks.house.tasks import TASKS, counted, task_counts
from prunecast.hardware import load_gpu
from prunecast.text import microseconds

PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
LIMITS = read_limits(PROJECT)
LAYOUT = ("COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENDMARKER")


def sources_of(folder: Path, **files: str) -> list[Source]:
    """Files of a package in `folder`, by name without suffix; `_` in a name is a folder's end."""
    for name, text in files.items():
        path = folder / PACKAGE / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")
    return read_sources(folder)


@pytest.fixture(scope="module")
def sources() -> list[Source]:
    return read_sources(ROOT)


def test_no_counter_of_the_sources_is_above_its_limit(sources: list[Source]) -> None:
    counts = source_counts(ROOT, sources)
    roles = {"builders": counts.pop("builders")}
    second = above(roles, LIMITS, otherwise=1)
    where = [f"{role}: {', '.join(at)}" for role, at in builders(sources).items() if second and len(at) > 1]
    refuse([*above(counts, LIMITS), *second, *where])
    for section, numbers in counts.items():
        assert set(LIMITS[section]) == set(numbers)


def refuse(excesses: list[str]) -> None:
    """Fail with every line and what to do: an assert would print the first line only."""
    if excesses:
        pytest.fail("\n".join(["above limits of pyproject.toml:", *excesses, ADVICE]), pytrace=False)


def test_a_failure_shows_every_excess_with_its_limit_and_what_to_do() -> None:
    found = {"token-lines": {"cli": 3, "plan": 9}, "tasks": {"explain: moves": 12_000, "explain: files": 1}}
    limits = {"token-lines": {"cli": 2, "plan": 8}, "tasks": {"explain: moves": 11_531, "explain: files": 1}}
    with pytest.raises(pytest.fail.Exception) as failure:
        refuse(above(found, limits))
    assert failure.value.msg.splitlines() == [
        "above limits of pyproject.toml:",
        "token-lines, cli: 3, at most 2",
        "token-lines, plan: 9, at most 8",
        "tasks, explain: moves: 12,000, at most 11,531",
        ADVICE,
    ]


@pytest.mark.parametrize("task", TASKS)
def test_a_command_enters_no_more_functions_than_its_limit(task: str) -> None:
    refuse(above({"tasks": task_counts(task)}, LIMITS))


def test_step_times_of_the_engines_are_no_further_apart_than_their_limit() -> None:
    refuse(above({"engines": most_apart(list(step_times()))}, LIMITS))


def test_limits_are_of_roles_that_exist() -> None:
    assert set(LIMITS["builders"]) <= set(ROLES)


def naive_token_lines(source: Source) -> int:
    texts = {n for node in source.nodes if is_text(node) for n in range(node.lineno, node.end_lineno + 1)}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if tokenize.tok_name[token.type] not in LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - texts)


def test_token_lines_are_those_of_the_tokenizer(sources: list[Source]) -> None:
    checked = [source for source in sources if source.package in ("top", "launch")]
    assert len(checked) > 10
    for source in checked:
        assert source.token_lines() == naive_token_lines(source), source.name


def test_docstrings_comments_and_blank_lines_bear_no_token(tmp_path: Path) -> None:
    text = '''
        """Module."""

        # A reason
        A = """
        # not a comment
        """


        def f(
            x: int,
        ) -> int:
            """Function."""
            return x  # a reason
        '''
    assert token_lines(sources_of(tmp_path, plan__a=text, b="B = 1\n")) == {"plan": 7, "top": 1}


def test_functions_with_one_caller(tmp_path: Path) -> None:
    text = """
        class A:
            def _one(self):
                return 1

            def f(self):
                return self._one() + _twice() + _twice() + _long()

        def _twice():
            return 1

        def _long():
            a = 1
            b = 2
            c = 3
            return a + b + c
        """
    found = granularity(sources_of(tmp_path, plan__a=text, kernels__b="class A:\n    pass\n"))
    assert found == {
        "functions": 4,
        "classes": 2,
        "class names defined twice": 1,
        "private functions with one caller": 2,
        "of at most three lines": 1,
        "interpreters of warp programs": 0,
    }


@pytest.mark.parametrize(
    ("package", "text", "number"),
    [
        ("models", "x = (Op.A, Op.B, Op.C, Op.D, Op.E, Op.F)", 1),
        ("models", "x = (Op.A, Op.B, Op.C, Op.D, Op.E, Op.E)", 0),
        ("models", "A, B = [int(op) for op in Op]", 1),
        ("kernels", "x = (Op.A, Op.B, Op.C, Op.D, Op.E, Op.F)", 0),
    ],
)
def test_interpreters(tmp_path: Path, package: str, text: str, number: int) -> None:
    found = sources_of(tmp_path, **{f"{package}__a": text})
    assert granularity(found)["interpreters of warp programs"] == number


def test_a_second_builder_is_found_wherever_it_is(tmp_path: Path) -> None:
    recipe = "class Recipe:\n    def f(self):\n        return first.elapsed_time(last)\n"
    both = sources_of(tmp_path, codesign__a=recipe, torch__b="class Recipe:\n    x: int\n")
    found = {role: places for role, places in builders(both).items() if places}
    assert found == {
        "recipe": ["codesign/a.py:1", "torch/b.py:1"],
        "events of torch with times": ["codesign/a.py:2"],
    }
    assert above({"builders": {"recipe": 2, "events of torch with times": 1}}, {}, otherwise=1) == [
        "builders, recipe: 2, at most 1"
    ]


@pytest.mark.parametrize(
    ("role", "second"),
    [
        ("packer of weights", "def pack(weights):\n    return weights[order]\n"),
        ("layer that runs sparse weights in torch", "class SparseConv1d(Module):\n    x: int\n"),
        ("launch with its arguments ready", "def f():\n    driver().cuLaunchKernel(function)\n"),
        ("microbenchmark loaded from a cubin", "def f():\n    return cp.RawModule(path=path)\n"),
    ],
)
def test_roles_are_filled_once_and_another_way_to_fill_them_is_found(
    tmp_path: Path, sources: list[Source], role: str, second: str
) -> None:
    assert len(builders(sources)[role]) == 1
    assert builders(sources_of(tmp_path, torch__a=second))[role] == ["torch/a.py:1"]


def test_what_uses_the_only_builder_of_a_role_is_none(tmp_path: Path) -> None:
    layer = "class SparseConv1d(SparseLayer):\n    x: int\n"
    packer = "def pack(weights):\n    return gather(weights, places)\n"
    found = builders(sources_of(tmp_path, torch__a=layer, torch__b=packer))
    assert not any(found.values())


def test_limits_are_lowered_and_never_raised() -> None:
    text = '[tool.house.tasks]\n"a" = 5  # reason\n"b" = 5\n[tool.other]\n"a" = 9\n'
    new = lowered(text, {"tasks": {"a": 3, "b": 7, "c": 1}})
    assert new == '[tool.house.tasks]\n"a" = 3  # reason\n"b" = 5\n[tool.other]\n"a" = 9\n'


def test_moves_between_files_are_counted() -> None:
    within = counted(lambda: int(microseconds(1.0) == ""))
    assert within == {"files": 1, "functions": 2, "moves": 0}
    between = counted(lambda: int(load_gpu("h200-sxm") is None))
    assert between["files"] > 1
    assert between["moves"] >= between["files"] - 1
