"""A few inputs of every kind; `python -m tests.hardening.fuzz` runs as many as one wants."""

import pytest

from tests.hardening.fuzz import KINDS, compile_engines, run_inputs


@pytest.fixture(scope="module", autouse=True)
def compiled(tmp_path_factory):
    compile_engines(tmp_path_factory.mktemp("good"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore")  # of numpy and zipfile about damaged files
def test_no_input_breaks_a_rule(kind):
    assert run_inputs(range(25), (kind,)) == []


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        ("safetensors, pruned", 11200657),  # a number format of half a character
        ("options", 9001583),  # two solutions in the folder `.`
        ("options", 9101039),  # more workers than a C int counts
        ("options", 9901807),  # a table over a file of weights
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_inputs_that_broke_a_rule_are_refused(kind, seed):
    assert run_inputs([seed], (kind,)) == []
