import numpy as np
from hypothesis import given

from prunecast.patterns import parse_pattern
from prunecast.patterns.plain import prune_unstructured
from tests.naive import prune as naive
from tests.patterns.matrices import as_lists, assert_masks, groups, pruned_elements, sparsities


@given(group=groups(), sparsity=sparsities)
def test_same_as_sorting_all_elements(group, sparsity):
    assert_masks(prune_unstructured(group, sparsity), group, naive.unstructured(as_lists(group), sparsity))


@given(group=groups(), sparsity=sparsities)
def test_count_is_exact_in_every_layer(group, sparsity):
    for name, mask in parse_pattern("unstructured").prune(group, sparsity).items():
        assert pruned_elements({name: mask}) == naive.target(sparsity, mask.size)


def test_global_scope_spares_the_important_layer():
    group = {"low": np.full((2, 2), 1.0), "high": np.full((2, 2), 5.0)}
    masks = parse_pattern("unstructured").prune(group, 0.5, "global")
    assert not masks["low"].any()
    assert masks["high"].all()


def test_layer_scope_cuts_each_layer():
    group = {"low": np.full((2, 2), 1.0), "high": np.full((2, 2), 5.0)}
    masks = parse_pattern("unstructured").prune(group, 0.5, "layer")
    assert [mask.sum() for mask in masks.values()] == [2, 2]
