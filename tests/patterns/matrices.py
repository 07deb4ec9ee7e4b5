"""Small matrices for laws: whole-numbered importance, so that sums are exact and ties are common."""

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

sparsities = st.integers(0, 99).map(lambda percent: percent / 100)


@st.composite
def importances(draw, min_rows=1, min_columns=1, most=9):
    """float32 (M, K), 0 to 6, not zero everywhere."""
    shape = draw(st.tuples(st.integers(min_rows, most), st.integers(min_columns, most)))
    matrix = draw(hnp.arrays(np.float32, shape, elements=st.integers(0, 6).map(float)))
    matrix[draw(st.integers(0, shape[0] - 1)), draw(st.integers(0, shape[1] - 1))] = 3
    return matrix


@st.composite
def groups(draw, **sizes):
    """One to three named layers."""
    layers = draw(st.lists(importances(**sizes), min_size=1, max_size=3))
    return {f"layer{index}": layer for index, layer in enumerate(layers)}


def as_lists(group):
    return [[[float(value) for value in row] for row in matrix] for matrix in group.values()]


def assert_masks(masks, group, wanted):
    """Masks by name against a list of masks of the naive twin, in the order of the group."""
    assert list(masks) == list(group)
    for name, mask in zip(group, wanted, strict=True):
        assert masks[name].dtype == np.bool_
        np.testing.assert_array_equal(masks[name], np.array(mask), err_msg=name)


def pruned_elements(masks):
    return sum(int(mask.size - np.count_nonzero(mask)) for mask in masks.values())
