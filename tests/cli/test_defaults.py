"""Options have the defaults of the functions that they are passed to, and texts become what they say."""

import math
from inspect import Parameter, signature
from types import SimpleNamespace

import pytest

import prunecast
from prunecast.cli.app import COMMANDS, flattened
from prunecast.cli.budget import Budget, _caps
from prunecast.cli.options import named_numbers
from prunecast.cli.predict import OUTSIDE, _notes, _range, _what
from prunecast.cli.sweep import _sizes
from prunecast.cli.timeline import MOST_SMS, _numbers
from prunecast.cli.validate import _part
from prunecast.codesign.search import prune_model
from prunecast.codesign.study import search_model
from prunecast.codesign.sweep.cases import expand
from prunecast.codesign.timeline.chrome_trace import write_timeline
from prunecast.errors import BadInput
from prunecast.validation.torch_models.compare import validate_model
from prunecast.validation.torch_models.predicted import ModelCase
from prunecast.validation.validate import record_suite
from prunecast.workload.pruned_maps import DEFAULT_SPARSITY

FUNCTIONS = {
    "prune": (prune_model, prunecast.prune),
    "search": (search_model,),
    "sweep": (prunecast.sweep, expand),
    "timeline": (write_timeline,),
    "validate": (record_suite, ModelCase, validate_model),
}
"""Command -> functions that get its options."""
OTHER_NAMES = {
    **{
        "gpu": "gpus",
        "pattern": "patterns",
        "sparsity": "sparsities",
        "sm": "sms",
        "max_slices": "most_slices",
    },
    "output": "out",
}
"""Option -> parameter of another name with the same value."""
OTHER_FORMS = {("timeline", "sm"): _numbers, ("validate", "part"): _part}
OTHER_VALUES = {
    ("search", "sparsity"), ("prune", "sparsity"), ("validate", "pattern"), ("validate", "gpu"),
    ("validate", "engine"), ("validate", "record"), ("prune", "pattern"), ("prune", "tokens"),
    ("sweep", "kernel"),
}  # fmt: skip
"""Options of several functions, or with a default that depends on other options."""


def command_of(name):
    module = __import__(f"prunecast.cli.{name}", fromlist=[name])
    return {each.name: each for each in signature(flattened(getattr(module, name))).parameters.values()}


def defaults_of(function):
    found = signature(function).parameters.values()
    return {each.name: each.default for each in found if each.default is not Parameter.empty}


SHARED = [
    (name, option, function)
    for name, functions in FUNCTIONS.items()
    for option in command_of(name)
    for function in functions
    if {option, OTHER_NAMES.get(option)} & defaults_of(function).keys() and (name, option) not in OTHER_VALUES
]


def plain(value):
    return tuple(value) if isinstance(value, list | tuple) else value or None


@pytest.mark.parametrize(
    ("name", "option", "function"), SHARED, ids=lambda each: getattr(each, "__name__", each)
)
def test_an_option_has_the_default_of_the_function(name, option, function):
    defaults, given = defaults_of(function), command_of(name)[option].default
    own = defaults[option] if option in defaults else defaults[OTHER_NAMES[option]]
    given = OTHER_FORMS.get((name, option), lambda value: value)(given)
    assert (plain(given) or ()) == (plain(own) or ())


def test_there_are_options_of_each_command():
    assert {name for name, *_ in SHARED} == {*FUNCTIONS}
    assert len(SHARED) >= 15


@pytest.mark.parametrize("name", [name for name in COMMANDS if "gpu" in command_of(name)])
def test_a_gpu_that_is_not_named_is_the_h200(name):
    assert command_of(name)["gpu"].default in ("h200-sxm", ["h200-sxm"], None)


def test_shares_and_patterns_that_are_not_given_are_the_same_everywhere():
    assert (
        ModelCase("bert-small", None).sparsity
        == command_of("validate")["sparsity"].default
        == DEFAULT_SPARSITY
    )
    assert ModelCase("bert-small", None).pattern == "tile-wise:128"
    assert command_of("sweep")["pattern"].default == ["tile-wise:128"]
    assert Budget.engine == "simulator"


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("0-3", [0, 1, 2, 3]),
        ("7", [7]),
        ("5,0-2, 2", [0, 1, 2, 5]),
        (f"0-{MOST_SMS - 1}", [*range(MOST_SMS)]),
    ],
)
def test_sms_are_numbers_and_ranges(text, numbers):
    assert _numbers(text) == numbers


@pytest.mark.parametrize(
    "text",
    ["", "a", "1-", "3-2,1", "-1", "1-2-3", "1;2", f"0-{MOST_SMS}", "0-4094,1,2", "123456789", "1-12345678"],
)
def test_other_sms_are_refused(text):
    with pytest.raises(BadInput, match=r"sm must (be numbers|name at most)"):
        _numbers(text)


@pytest.mark.parametrize(
    ("share", "is_one"), [("0", True), ("0.999", True), ("1", False), ("-0.1", False), ("nan", False)]
)
def test_caps_are_shares_from_0_to_below_1(share, is_one):
    if is_one:
        assert _caps([f"a=b={share}"]) == {"a=b": float(share)}
    else:
        with pytest.raises(BadInput, match="--cap must be like"):
            _caps([f"a={share}"])


@pytest.mark.parametrize("text", ["0.5", "=0.5", "a=", "a=x"])
def test_a_cap_names_a_layer_and_a_share(text):
    with pytest.raises(BadInput, match="--cap must be like"):
        _caps([text])


def _prices(texts):
    return named_numbers("--price", texts, like="h200-sxm=3.5")


@pytest.mark.parametrize("read", [_caps, _prices])
def test_a_name_has_one_number(read):
    with pytest.raises(BadInput, match=r"a is given twice: 0\.5 and 0\.9"):
        read(["a=0.5", "b=0.5", "a=0.9"])


def test_prices_and_shapes_are_read_from_their_ends():
    assert _prices(["h200-sxm=3.5", "own=1.toml=2"]) == {"h200-sxm": 3.5, "own=1.toml": 2.0}
    assert _sizes("1x22x333") == (1, 22, 333)
    assert _part("2/5") == (2, 5)
    for read, text in (
        (_prices, ["h200-sxm"]),
        (_prices, ["=3.5"]),
        (_prices, ["h200-sxm=much"]),
        (_sizes, "1x2"),
        (_sizes, "1x2x3x4"),
        (_part, "2"),
        (_part, "1/2/3"),
    ):
        with pytest.raises(BadInput, match="must be"):
            read(text)


@pytest.mark.parametrize(
    ("coverage", "shown"), [(0.5, "50"), (0.014, "1"), (0.01, "1"), (0.0094, "0.94"), (0.00012, "0.012")]
)
def test_a_small_share_of_the_weights_is_not_shown_as_none(coverage, shown):
    table = SimpleNamespace(missing=(1, 2), layers=lambda: iter(["a"]), coverage=coverage)
    assert _what(table) == f"Only 1 of 3 matrices, {shown} % of the weights"


@pytest.mark.parametrize(
    ("densities", "shown"),
    [
        (["30%"], "30%"),
        (["30%", "30%"], "30%"),
        (["30%", "5%", "12%"], "5% - 30%"),
        (["100%", "9%"], "9% - 100%"),
        (["30%", "never"], "never - 30%"),
        (["-", "never", "7%"], "- - 7%"),
    ],
)
def test_densities_are_a_range_from_the_lowest(densities, shown):
    assert _range(densities) == shown


@pytest.mark.parametrize(("speedup", "is_noted"), [(0.5, True), (math.nextafter(0.5, 0), False)])
def test_notes_on_the_range_are_of_kernels_that_somebody_may_use(speedup, is_noted):
    row = SimpleNamespace(
        kernel="csr", layer="a", note=f"9 tokens is {OUTSIDE}; other", speedup_over_dense=speedup
    )
    lines = [*_notes([row], [])]
    assert any(OUTSIDE in line for line in lines) == is_noted
    assert "note: other (a)" in lines


@pytest.mark.parametrize(("least", "code"), [(1.0, 0), (1.001, 1)])
def test_a_speedup_is_missed_only_below_it(run, monkeypatch, tmp_path, least, code):
    """The table of a dense layer has a speedup of exactly 1."""
    import numpy as np

    monkeypatch.chdir(tmp_path)
    np.save("w.npy", np.ones((64, 64), np.float16))
    asked = ("predict", "w.npy", "--kernel", "dense", "--engine", "model", "-n", "64")
    assert run(*asked, "--min-speedup", least)[0] == code
