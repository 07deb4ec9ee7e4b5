"""The cheapest transposes, against trying all layouts."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunecast.codesign.graph import ModelGraph, Operation, choose_layouts, load_workload
from prunecast.codesign.graph.operation import LAYOUTS


def cost_of(model: ModelGraph, layouts: dict[str, str]) -> int:
    edges = model.graph.edges(data="elements")
    return sum(elements for a, b, elements in edges if layouts[a] != layouts[b])


def cheapest_by_trying_all(model: ModelGraph, wanted: dict[str, str]) -> int:
    names = list(model.graph)
    best = 10**9
    for choice in itertools.product(LAYOUTS, repeat=len(names)):
        layouts = dict(zip(names, choice, strict=True))
        if all(layouts[o.name] == wanted.get(o.name, o.layout or layouts[o.name]) for o in model):
            best = min(best, cost_of(model, layouts))
    return best


@st.composite
def small_models(draw: st.DrawFn) -> tuple[ModelGraph, dict[str, str]]:
    model = ModelGraph(name="small")
    wanted = {}
    for place in range(draw(st.integers(2, 8))):
        layout = draw(st.sampled_from([None, None, "tokens"]))
        before = draw(st.lists(st.integers(0, place - 1), max_size=2, unique=True)) if place else []
        elements = draw(st.integers(1, 9))
        operation = Operation(name=f"o{place}", kind="elementwise", elements_out=elements, layout=layout)
        model.add(operation, [f"o{b}" for b in before])
        if layout is None and draw(st.booleans()):
            wanted[f"o{place}"] = "features"
    return model, wanted


@given(small_models())
def test_the_cut_is_the_cheapest_choice(case: tuple[ModelGraph, dict[str, str]]) -> None:
    model, wanted = case
    choice = choose_layouts(model, wanted)
    for operation in model:
        needed = wanted.get(operation.name, operation.layout)
        assert needed in (None, choice.layouts[operation.name])
    if wanted:
        assert cost_of(model, choice.layouts) == cheapest_by_trying_all(model, wanted)
    assert sum(t.elements for t in choice.transposes) == cost_of(model, choice.layouts)


def test_a_dense_model_is_never_transposed() -> None:
    assert choose_layouts(load_workload("bert-small"), {}).transposes == ()


@pytest.mark.parametrize("part", ["up", "down"])
def test_sparse_feed_forward_parts_are_transposed_at_their_narrow_ends(part: str) -> None:
    model = load_workload("bert-small", batch=1, sequence=64)
    wanted = {f"layer.0.{p}": "features" for p in ("up", "down")}
    choice = choose_layouts(model, wanted)
    assert choice.layouts[f"layer.0.{part}"] == "features"
    assert all(t.elements <= 2 * 512 * 64 for t in choice.transposes)
