"""Sets of operands over which timed launches rotate: few, but together too large for L2."""

from hypothesis import given
from hypothesis import strategies as st

from prunecast.hardware import load_gpu
from prunecast.validation.measure.rotation import COLD_BYTES, MOST_SETS, rotating_sets

BYTES = st.floats(1.0, 1e10)


@given(size=BYTES, most=st.integers(2, MOST_SETS))
def test_sets_exceed_l2_and_are_no_more_than_that_needs(size, most):
    sets = rotating_sets(size, most=most)
    assert 2 <= sets <= most
    assert sets == most or sets * size >= COLD_BYTES
    assert sets == 2 or (sets - 1) * size < COLD_BYTES


def test_nothing_of_the_sets_is_kept_by_the_l2_of_the_gpu_of_the_records():
    assert load_gpu("h200-sxm").l2_bytes * 2 < COLD_BYTES
