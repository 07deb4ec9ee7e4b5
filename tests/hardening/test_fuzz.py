"""A few inputs of every kind; `python -m tests.hardening.fuzz` runs as many as one wants."""

import pytest

from tests.hardening.fuzz import KINDS, run_inputs


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore")  # of numpy and zipfile about damaged files
def test_no_input_breaks_a_rule(kind):
    assert run_inputs(range(25), (kind,)) == []
