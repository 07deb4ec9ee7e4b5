import pytest

from prunecast.codesign.interval import INTERVAL_KIND, interval_s
from prunecast.kernels import PLANNERS


@pytest.mark.parametrize("kernel", PLANNERS)
def test_the_interval_holds_the_prediction(kernel):
    low, high = interval_s(kernel, 2.0)
    assert low < 2.0 < high


def test_csr_is_trusted_least_and_dense_most():
    width = {kernel: interval_s(kernel, 1.0).high_s / interval_s(kernel, 1.0).low_s for kernel in PLANNERS}
    assert max(width, key=width.get) == "csr"
    assert min(width, key=width.get) == "dense"


def test_it_says_that_nothing_was_validated():
    assert INTERVAL_KIND == "prior, not validated"
