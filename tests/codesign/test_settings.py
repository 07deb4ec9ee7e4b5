"""Settings of a prediction: one spelling for type checkers, Python at run time, and the command line."""

from dataclasses import fields
from inspect import Parameter, signature
from typing import Unpack, get_args, get_type_hints

import pytest

import prunecast
from prunecast.cli import options
from prunecast.codesign.checked_settings import checked_settings, settings_of
from prunecast.errors import BadInput
from prunecast.kernels.libraries.experts.routing import DEFAULT_ROUTING
from prunecast.settings import SETTINGS, LayerSettings, PredictSettings
from prunecast.workload.conv_settings import ConvSettings

OTHER_NAMES = {"kernels": "kernel", "convolutions": None, "gpu": None}
"""Settings that the options of layers do not have under their own name."""


@pytest.mark.parametrize(
    ("function", "keywords"),
    [
        (prunecast.predict.__wrapped__, PredictSettings),
        (prunecast.explain.__wrapped__, LayerSettings),
        (prunecast.compare_gpus.__wrapped__, LayerSettings),
        (prunecast.write_report.__wrapped__, LayerSettings),
    ],
)
def test_type_checkers_see_the_keywords(function, keywords):
    *_, last = signature(function).parameters.values()
    assert last.kind is Parameter.VAR_KEYWORD
    assert last.annotation == Unpack[keywords]


def test_python_shows_every_setting_with_its_default():
    shown = signature(prunecast.predict).parameters
    assert {name: shown[name].default for name in SETTINGS} == {n: s.default for n, s in SETTINGS.items()}
    for name, setting in SETTINGS.items():
        assert f"{name} : {setting.help}" in prunecast.predict.__doc__


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_the_command_line_has_the_setting(name):
    own = OTHER_NAMES.get(name, name)
    if own is None:
        return
    option = next(one for one in fields(options.Layers) if one.name == own)
    assert (option.default or None) == ((SETTINGS[name].default or None) if own == name else None)
    told = get_args(get_type_hints(options.Layers, include_extras=True)[own])[1]
    assert told.help.startswith(SETTINGS[name].help[:-1])
    assert told.metavar == SETTINGS[name].metavar


def test_defaults_are_those_of_the_packages_that_use_them():
    said = checked_settings({"gpu": "h200-sxm"})
    assert said["routing"] == DEFAULT_ROUTING
    assert said["convolutions"] == ConvSettings()
    assert said.keys() == SETTINGS.keys()
    assert settings_of("resnet18", {"gpu": "h200-sxm", "convolutions": None})["workload"] == "batch:8"


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({}, TypeError, "predict: missing a required argument: 'gpu'"),
        ({"gpu": "h200-sxm", "token": 1}, TypeError, "predict: got an unexpected keyword argument 'token'"),
        ({"gpu": "h200-sxm", "tokens": "x"}, TypeError, "predict: tokens must be a whole number or None"),
        ({"gpu": "h200-sxm", "tokens": 8, "workload": "decode:1@2"}, BadInput, "exclude each other"),
        ({"gpu": "h200-sxm", "l2": "hot"}, BadInput, "l2"),
    ],
)
def test_settings_that_cannot_be_used_are_named(given, error, words):
    with pytest.raises(error, match=words):
        checked_settings(given)


def test_explain_takes_one_kernel():
    with pytest.raises(TypeError, match="wanted one kernel as kernel="):
        prunecast.explain("m.npz", gpu="h200-sxm", kernels=["stspmm"])


def test_weights_of_a_wrong_type_are_named_in_one_line():
    with pytest.raises(TypeError, match=r"^predict: weights must be .*, got \[\[...\]\]$"):
        prunecast.predict([[1.0, 2.0]], gpu="h200-sxm")
