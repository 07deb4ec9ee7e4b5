import pytest

from prunecast.codesign.interval import interval_s
from tests.kernels.layouts import PLANNED


@pytest.mark.parametrize("kernel", PLANNED)
def test_a_guess_holds_the_prediction(kernel):
    found = interval_s(kernel, 2.0)
    assert found.low_s < 2.0 < found.high_s
    assert (found.kind, found.warning) == ("guess", "")


def test_csr_is_trusted_least_and_dense_most():
    width = {kernel: interval_s(kernel, 1.0).high_s / interval_s(kernel, 1.0).low_s for kernel in PLANNED}
    assert max(width, key=width.get) == "csr"
    assert min(width, key=width.get) == "dense"


@pytest.mark.parametrize("engine", ["simulator", "model"])
@pytest.mark.parametrize("kernel", ["dense", "stspmm", "tile-wise"])
def test_what_was_validated_says_so(kernel, engine):
    found = interval_s(kernel, 20e-6, gpu="h200-sxm", engine=engine, tokens=2048)
    assert (found.kind, found.warning) == ("validated", "")
    assert found.low_s < found.high_s


@pytest.mark.parametrize("state", ["burst", "sustained"])
@pytest.mark.parametrize("engine", ["simulator", "model"])
@pytest.mark.parametrize("kernel", PLANNED)
def test_every_interval_holds_its_prediction(kernel, engine, state):
    found = interval_s(kernel, 20e-6, gpu="h200-sxm", engine=engine, state=state)
    assert found.low_s < 20e-6 < found.high_s


def test_it_warns_outside_of_the_validated_range():
    long = interval_s("stspmm", 1.0, gpu="h200-sxm", tokens=2048)
    assert "outside of what was validated" in long.warning
    many = interval_s("stspmm", 20e-6, gpu="h200-sxm", tokens=1 << 20)
    assert "tokens" in many.warning


def test_other_gpus_are_guesses():
    assert interval_s("stspmm", 20e-6, gpu="a100-sxm4-80gb").kind == "guess"
