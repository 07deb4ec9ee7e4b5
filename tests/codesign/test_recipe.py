"""Recipes: what one command writes, every reader reads back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunecast.codesign.recipe import PrunedLayer, Recipe, read_recipe
from prunecast.errors import BadInput

PATTERNS = ("tile-wise:128", "2:4", "atp:64", "unstructured")
layers = st.lists(
    st.builds(
        PrunedLayer,
        layer=st.text("abc.", min_size=1, max_size=6).map(lambda name: f"{name}.weight"),
        m=st.integers(1, 9),
        k=st.integers(1, 9),
        sparsity=st.floats(0.0, 0.99),
    ),
    unique_by=lambda layer: layer.layer,
    max_size=4,
)


@given(st.sampled_from(PATTERNS), layers)
def test_a_recipe_reads_back_as_it_was_written(pattern, rows):
    written = Recipe(pattern=pattern, layers=tuple(rows))
    read = read_recipe(json.loads(json.dumps(written.document())))
    assert read.pattern == pattern
    assert read.sparsities == {row.layer.removesuffix(".weight"): row.sparsity for row in rows}
    assert read.patterns == {}
    assert all(read.pattern_of(name) == pattern for name in read.sparsities)


@given(st.lists(st.tuples(st.sampled_from(PATTERNS), st.floats(0.01, 0.99)), min_size=1, max_size=4))
def test_rows_of_a_search_have_patterns_of_their_own_and_what_was_removed(chosen):
    rows = [
        {"layer": f"l{place}.weight", "pattern": pattern, "sparsity": 0.5, "removed": removed}
        for place, (pattern, removed) in enumerate(chosen)
    ]
    read = read_recipe({"layers": rows})
    for place, (pattern, removed) in enumerate(chosen):
        assert (read.pattern_of(f"l{place}"), read.sparsities[f"l{place}"]) == (pattern, removed)


@pytest.mark.parametrize("sparsity", [1.0, -0.1, "half", [0.5]])
def test_a_share_that_is_none_is_refused(sparsity):
    with pytest.raises(BadInput, match=r"wanted a sparsity in \[0, 1\) of 'a'"):
        read_recipe({"pattern": "2:4", "layers": [{"layer": "a.weight", "sparsity": sparsity}]})


def test_a_layer_of_which_only_the_name_is_known_has_no_size_and_no_importance():
    layer = PrunedLayer(layer="a.weight", sparsity=None)
    assert layer.module == "a"
    assert layer.row() == {"layer": "a.weight", "m": 0, "k": 0, "sparsity": None, "retained_importance": 0.0}
    assert layer.pattern is None
