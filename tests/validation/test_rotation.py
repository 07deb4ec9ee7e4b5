"""Sets of operands over which timed launches rotate: few, but together too large for L2."""

from hypothesis import given
from hypothesis import strategies as st

from prunecast.validation.measure.rotation import MOST_SETS, rotating_sets


@given(size=st.floats(1.0, 1e10), l2=st.floats(1e6, 2e8))
def test_sets_exceed_twice_the_l2_and_are_no_more_than_that_needs(size, l2):
    sets = rotating_sets(size, l2)
    assert 2 <= sets <= MOST_SETS
    assert sets == MOST_SETS or sets * size > 2 * l2
    assert sets == 2 or (sets - 1) * size < 2.1 * l2


@given(size=st.floats(1.0, 1e10), l2=st.floats(1e6, 2e8))
def test_a_larger_l2_needs_no_fewer_sets(size, l2):
    assert rotating_sets(size, 2 * l2) >= rotating_sets(size, l2)
