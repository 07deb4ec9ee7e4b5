"""Arguments of the public functions: a wrong one is an error that names it, never an answer."""

import inspect
import json
import math
import re
from collections.abc import Mapping, Sequence
from enum import Enum
from fractions import Fraction
from pathlib import Path
from types import GenericAlias

import numpy as np
import pytest

import prunecast
from prunecast.arguments import checked
from prunecast.codesign.search.prune_model import search_of
from prunecast.codesign.sweep.cases import expand
from prunecast.errors import BadInput
from prunecast.kernels import compile as compile_plan
from prunecast.kernels import plan_dense
from prunecast.patterns.sources import read_weights
from prunecast.validation.validate import bundled_records
from prunecast.workload.conv_settings import ConvSettings

GPU = prunecast.load_gpu("h200-sxm")
A = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float16)
PLAN = plan_dense(64, 64, 64, "fp16", GPU)
KEPT = prunecast.parse_pattern("tile-wise:16").map(np.ones((64, 64), np.bool_))
TILES = prunecast.fastest_plan("stspmm", KEPT, 64, "fp16", GPU)
RAW = {"schema": 1, "date": "2026-11-20", "driver": "580", "commit": "abc", "raw": {}}
TARGETS = prunecast.Targets(latency_share=1.0)

WRONG = {
    "None": None,
    "bytes": b"x",
    "object": object(),
    "list": [],
    "list of objects": [object()],
    "mapping": {1: 2},
    "nan": math.nan,
    "infinity": math.inf,
    "negative": -1,
    "fraction": 1.5,
    "huge": 10**5000,
    "bool": True,
    "text": "no such thing",
    "text with a null byte": "\0",
}
RIGHT = {
    "log": set(),
    **{name: {"list"} for name in ("target", "ignore", "remove", "families", "kernels", "resume", "loads")},
    **{
        name: {"bool"}
        for name in ("crossovers", "even", "few_tokens", "fuse", "trainable", "convolutions", "quiet")
    },
    **{name: {"text"} for name in ("out", "path", "output", "commit", "name")},
    **{name: {"text", "list"} for name in ("input_size", "stride", "padding")},
    **{name: {"fraction"} for name in ("latency_share", "latency_s", "speedup", "seconds", "price")},
    **{name: {"list"} for name in ("patterns", "sparsities")},
    "storage": {"text"},
    "convolutions": {"bool", "None"},
    "first_waves": {"None"},
    "seconds": {"fraction", "infinity"},
    "document": set(),
    "raw": set(),
    "recipe": set(),
    "squares": set(),
}
"""Argument -> values of `WRONG` that are good ones of it; None is where it is the default."""
ALIASES = {
    "latency_share": "latency",
    "latency_s": "latency",
    "engines": "engine",
    "gpus": "gpu",
    "sms": "sm",
}
"""Argument -> another word for it in messages."""

CALLS = {
    "predict": (prunecast.predict, {"weights": A, "gpu": "h200-sxm", "engine": "model", "tokens": 64}),
    "explain": (
        prunecast.explain,
        {"weights": A, "gpu": "h200-sxm", "engine": "model", "tokens": 64},
        prunecast.predict,
    ),
    "compare_gpus": (
        prunecast.compare_gpus,
        {"weights": A, "gpus": ["h200-sxm", "t4"], "engine": "model", "tokens": 64},
        prunecast.predict,
    ),
    "write_report": (
        prunecast.write_report,
        {"weights": A, "path": "r.html", "gpu": "h200-sxm", "engine": "model", "tokens": 64},
        prunecast.predict,
    ),
    "prune": (prunecast.prune, {"weights": A, "pattern": "2:4", "out": "o"}),
    "prune_model": (
        prunecast.prune_model,
        {"weights": A, "targets": TARGETS, "gpu": "h200-sxm", "engine": "model", "tokens": 64},
        search_of,
    ),
    "export": (
        prunecast.export,
        {"weights": "bert-base", "gpu": "h200-sxm", "format": "llmservingsim", "out": "out"},
    ),
    "search_model": (
        prunecast.search_model,
        {"weights": A, "targets": TARGETS, "gpu": "h200-sxm", "engine": "model", "trials": 1},
        search_of,
    ),
    "sweep": (
        prunecast.sweep,
        {"output": "s.sqlite", "shapes": [(64, 64, 64)], "engine": "model"},
        expand,
    ),
    "compare": (prunecast.compare, {"first": "a.json", "second": "a.json"}),
    "derive": (prunecast.derive, {"raw": {}}),
    "spec_file": (prunecast.spec_file, {"base": "h200-sxm", "document": RAW, "name": "mine"}),
    "load_gpu": (prunecast.load_gpu, {"name_or_path": "h200-sxm"}),
    "parse_pattern": (prunecast.parse_pattern, {"text": "2:4"}),
    "estimate": (prunecast.estimate, {"plan": PLAN, "gpu": GPU}),
    "simulate": (prunecast.simulate, {"plan": PLAN, "gpu": GPU}),
    "fastest_plan": (
        prunecast.fastest_plan,
        {"kernel": "stspmm", "kept": KEPT, "n": 64, "dtype": "fp16", "gpu": GPU},
    ),
    "write_timeline": (prunecast.write_timeline, {"plan": PLAN, "gpu": GPU, "path": "t.json"}),
    "record_suite": (prunecast.record_suite, {"suite": "standard", "out": Path("o.csv")}),
    "replay": (prunecast.replay, {"paths": bundled_records(), "part": (1, 400)}),
    "compile": (compile_plan, {"plan": TILES, "weights": A}),
    "read_weights": (read_weights, {"path": "a.npy"}),
    "Targets": (prunecast.Targets, {}),
    "ConvSettings": (ConvSettings, {}),
}


def arguments_of(function, *others):
    """Parameters by name, those of the functions that get its other keywords included."""
    every = {}
    for one in (*others, function):
        every |= inspect.signature(one).parameters
    return {name: one for name, one in every.items() if one.kind is not one.VAR_KEYWORD}


CASES = [(name, argument) for name, call in CALLS.items() for argument in arguments_of(call[0], *call[2:])]


def is_right(parameter, kind):
    return kind in RIGHT.get(parameter.name, ()) or (kind == "None" and parameter.default is None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("arguments")
    np.save(folder / "a.npy", A)
    table = prunecast.predict(A, gpu="h200-sxm", tokens=64, engine="model", crossovers=False)
    (folder / "a.json").write_text(json.dumps(table.document()))
    return folder


@pytest.mark.parametrize(("name", "argument"), CASES)
def test_a_wrong_argument_is_named(name, argument, folder, monkeypatch):
    monkeypatch.chdir(folder)
    function, valid, *others = CALLS[name]
    parameter = arguments_of(function, *others)[argument]
    for kind, value in WRONG.items():
        if is_right(parameter, kind):
            continue
        with pytest.raises((TypeError, BadInput)) as caught:
            function(**{**valid, argument: value})
        message = str(caught.value)
        assert "\n" not in message
        assert len(message) < 1000
        # A text of no meaning may be named itself: `unknown GPU 'no such thing'`
        words = [argument, ALIASES.get(argument, argument), *([value] if kind == "text" else [])]
        assert any(re.search(rf"\b{word}\b", message.replace("-", "_")) for word in words), (kind, message)
        if not isinstance(value, int | float | str | None) or isinstance(value, bool):
            assert type(caught.value) is TypeError or kind in ("list", "mapping"), (kind, message)


def test_every_public_function_checks_its_arguments():
    functions = {name: getattr(prunecast, name) for name in prunecast.__all__}
    public = {name for name, one in functions.items() if inspect.isfunction(one) and arguments_of(one)}
    assert public <= CALLS.keys()


@checked
def example(
    count: int,
    share: float | None = None,
    *,
    flag: bool = False,
    names: str | Sequence[str] = (),
    caps: Mapping[str, float] | None = None,
    pair: tuple[int, int] = (1, 1),
    where: str | Path = "",
    **others: object,
):
    return count, share, flag, names, caps, pair, where, others


@pytest.mark.parametrize("number", [2, np.int8(2), np.uint64(2)])
def test_whole_numbers_become_pythons(number):
    assert type(example(number)[0]) is int


@pytest.mark.parametrize("number", [0.5, np.float16(0.5), np.float32(0.5), np.float64(0.5), Fraction(1, 2)])
def test_numbers_become_pythons(number):
    assert (type(example(1, number)[1]), example(1, share=number)[1]) == (float, 0.5)
    assert json.dumps(example(1, caps={np.str_("a"): number})[4]) == '{"a": 0.5}'


def test_good_values_come_through():
    found = example(1, 2, flag=np.True_, names=["a", np.str_("b")], pair=[1, np.int32(2)], x=3)
    assert found == (1, 2, True, ("a", "b"), None, (1, 2), "", {"x": 3})
    assert type(found[2]) is bool
    assert example(1, names="ab", where=Path("a"))[3:] == ("ab", None, (1, 1), Path("a"), {})


class Name(str, Enum):  # noqa: UP042  (a StrEnum is its value anyway)
    FIRST = "a"


def test_texts_of_an_enum_are_their_values():
    names = example(1, names=[Name.FIRST])[3]
    assert (names, type(names[0])) == (("a",), str)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"count": "x"}, "example: count must be a whole number, got 'x'"),
        ({"count": 1.0}, "example: count must be a whole number, got 1.0"),
        ({"count": True}, "example: count must be a whole number, got True"),
        ({"count": [[[1] * 9] * 9] * 9}, r"count must be a whole number, got \[(\[...\], ){6}\.\.\.\]$"),
        ({"count": np.array([1])}, r"example: count must be a whole number, got array\(\[1\]\)"),
        ({"count": 1, "share": "x"}, "example: share must be a number or None, got 'x'"),
        ({"count": 1, "flag": 1}, "example: flag must be True or False, got 1"),
        ({"count": 1, "names": b"a"}, "example: names must be a text or a list of texts, got b'a'"),
        ({"count": 1, "names": [1]}, r"example: names must be a text or a list of texts, got \[1\]"),
        ({"count": 1, "caps": {1: 1}}, "caps must be a mapping of texts to numbers or None, got {1: 1}"),
        ({"count": 1, "pair": (1,)}, r"pair must be a list of 2 whole numbers, got \(1,\)"),
        ({"count": 1, "where": 1}, "where must be a text or a path, got 1"),
        ({}, "example.* missing 1 required positional argument: 'count'"),
    ],
)
def test_messages_of_wrong_types(arguments, message):
    with pytest.raises(TypeError, match=message):
        example(**arguments)


def test_values_that_no_function_takes():
    with pytest.raises(BadInput, match="example: share must be a number, got nan"):
        example(1, math.nan)
    with pytest.raises(BadInput, match="example: count must be a whole number below"):
        example(2**63)
    with pytest.raises(BadInput, match="example: where must be a text without null characters"):
        example(1, where="a\0")
    with pytest.raises(BadInput, match="example: where must be a text that is not empty, got ''"):
        example(1, where="")  # it would be the current folder
    example(1, names="")  # no path: the function decides


@pytest.mark.parametrize("name", ["ndarray", "NDArray"])
def test_arrays_fit_both_of_numpys_annotations(name):
    """NumPy 2.5 makes `npt.NDArray` an alias of Python 3.12, which is not the class of arrays."""
    annotation = type(name, (), {"__class_getitem__": classmethod(GenericAlias)})[np.float32]

    def taker(a):
        return a

    taker.__annotations__ = {"a": annotation}
    take = checked(taker)
    assert take(A) is A
    with pytest.raises(TypeError, match="taker: a must be an array, got 'x'"):
        take("x")


def test_a_numpy_sparsity_is_written(tmp_path):
    """The recipe is JSON, which has no numbers of NumPy."""
    recipe = prunecast.prune(A, pattern="unstructured", sparsity=np.float32(0.5), out=tmp_path / "o")
    assert json.loads((tmp_path / "o" / "recipe.json").read_text())["sparsity"] == recipe.sparsity == 0.5
    targets = prunecast.Targets(latency_share=np.float32(1.0))
    found = prunecast.prune_model(
        A, targets, gpu="h200-sxm", tokens=np.int64(64), engine="model", out=tmp_path / "p"
    )
    assert found.result.speedup >= 1.0
