"""The face of the package: what `prunecast.<name>` offers, loaded when it is used."""

import importlib
import subprocess
import sys

import pytest

import prunecast


def test_every_public_name_is_there_and_listed():
    for name in prunecast.__all__:
        assert getattr(prunecast, name) is not None
        assert name in dir(prunecast)


def test_names_come_from_their_rooms():
    from prunecast.codesign.predict import predict
    from prunecast.errors import BadInput
    from prunecast.hardware.load import load_gpu

    assert prunecast.predict is predict
    assert prunecast.BadInput is BadInput
    assert prunecast.load_gpu is load_gpu


def test_the_version_is_that_of_the_distribution():
    assert prunecast.__version__ == importlib.metadata.version("prunecast")


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'prunecast' has no attribute 'predikt'"):
        prunecast.predikt  # noqa: B018


def test_importing_the_face_loads_nothing_heavy():
    heavy = {"numpy", "numba", "scipy", "rich", "typer"}
    code = f"import prunecast, sys; print(sorted({heavy!r} & set(sys.modules)))"
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=1800, check=True
    )
    assert shown.stdout == "[]\n"


def test_errors_are_value_errors():
    assert issubclass(prunecast.BadInput, ValueError)


TWINS = {
    "calibrate": {"derive", "spec_file"},
    "compare": {"compare", "compare_gpus"},
    "explain": {"explain"},
    "export": {"export", "PassPredictor"},
    "gpus": {"gpu_names", "load_gpu"},
    "patterns": {"PATTERNS", "parse_pattern"},
    "predict": {"predict"},
    "prune": {"prune", "prune_model"},
    "report": {"write_report"},
    "search": {"search_model"},
    "sweep": {"sweep"},
    "timeline": {"write_timeline"},
    "validate": {"record_suite", "replay"},
}
"""Command -> what does the same in Python."""


def test_every_command_has_functions_that_do_the_same():
    from prunecast.cli.app import COMMANDS

    assert set(COMMANDS) == set(TWINS)
    assert set().union(*TWINS.values()) <= set(prunecast.__all__)
