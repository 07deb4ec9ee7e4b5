"""The cheapest transposes, against trying all layouts."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunecast.kernels import ConvShape
from prunecast.workload.graph import ModelGraph, Operation, Pass, load_pass
from prunecast.workload.graph.layouts import choose_layouts, transposed_by_dense
from prunecast.workload.graph.model_graph import LAYOUTS


def cost_of(model: ModelGraph, reads: dict[str, str], writes: dict[str, str]) -> int:
    edges = model.graph.edges(data="elements")
    return sum(elements for a, b, elements in edges if writes[a] != reads[b])


def is_free(operation: Operation, wanted: dict[str, str]) -> bool:
    return operation.kind == "gemm" and operation.convolution is None and operation.name not in wanted


def cheapest_by_trying_all(model: ModelGraph, wanted: dict[str, str]) -> int:
    names = list(model.graph)
    turning = [o.name for o in model if is_free(o, wanted)]
    best = 10**9
    for choice in itertools.product(LAYOUTS, repeat=len(names) + len(turning)):
        reads = dict(zip(names, choice, strict=False))
        writes = reads | dict(zip(turning, choice[len(names) :], strict=True))
        if all(reads[o.name] == wanted.get(o.name, o.layout or reads[o.name]) for o in model):
            best = min(best, cost_of(model, reads, writes))
    return best


@st.composite
def small_models(draw: st.DrawFn) -> tuple[ModelGraph, dict[str, str]]:
    model = ModelGraph(name="small")
    wanted = {}
    for place in range(draw(st.integers(2, 6))):
        kind = draw(st.sampled_from(["elementwise", "attention", "gemm", "convolution"]))
        before = draw(st.lists(st.integers(0, place - 1), max_size=2, unique=True)) if place else []
        operation = operation_of(f"o{place}", kind, elements=draw(st.integers(1, 9)))
        model.add(operation, [f"o{b}" for b in before])
        if operation.layout is None and draw(st.booleans()):
            wanted[operation.name] = "features"
    return model, wanted


def operation_of(name: str, kind: str, elements: int) -> Operation:
    if kind == "attention":
        return Operation(name=name, kind=kind, elements_out=elements, layout="tokens")
    if kind == "elementwise":
        return Operation(name=name, kind=kind, elements_out=elements)
    convolution = ConvShape.square(1, 1, 1, batch=1) if kind == "convolution" else None
    return Operation(name=name, kind="gemm", m=1, k=1, n=1, elements_out=elements, convolution=convolution)


@given(small_models())
def test_the_cut_is_the_cheapest_choice(case: tuple[ModelGraph, dict[str, str]]) -> None:
    model, wanted = case
    choice = choose_layouts(model, wanted)
    for operation in model:
        needed = wanted.get(operation.name, operation.layout)
        own = {choice.reads[operation.name], choice.writes[operation.name]}
        assert own == {needed} if needed else len(own) == 1 or is_free(operation, wanted)
    cost = cost_of(model, choice.reads, choice.writes)
    assert cost == (cheapest_by_trying_all(model, wanted) if wanted else 0)
    assert sum(t.elements for t in choice.transposes) == cost


def test_a_dense_model_is_never_transposed() -> None:
    assert choose_layouts(load_pass("bert-small", Pass(8)), {}).transposes == ()


@pytest.mark.parametrize("part", ["up", "down"])
def test_sparse_feed_forward_parts_are_transposed_at_their_narrow_ends(part: str) -> None:
    model = load_pass("bert-small", Pass(1, 64))
    wanted = {f"layer.0.{p}": "features" for p in ("up", "down")}
    choice = choose_layouts(model, wanted)
    assert choice.reads[f"layer.0.{part}"] == choice.writes[f"layer.0.{part}"] == "features"
    assert all(t.elements <= 2 * 512 * 64 for t in choice.transposes)


def test_a_dense_linear_product_turns_its_tensors_and_a_dense_convolution_does_not() -> None:
    for kind, transposes in (("gemm", 0), ("convolution", 1)):
        model = ModelGraph(name="chain")
        model.add(operation_of("sparse", "gemm", elements=5))
        model.add(operation_of("dense", kind, elements=7), ["sparse"])
        model.add(operation_of("mixed", "attention", elements=9), ["dense"])
        assert len(choose_layouts(model, {"sparse": "features"}).transposes) == transposes


def test_what_one_dense_layer_turns_is_what_the_cheapest_layouts_then_leave_out() -> None:
    """Every product of a model in turn, the others sparse; no tensor is counted for two of them."""
    for name in ("bert-small", "gpt2", "llama-2-7b"):
        model = load_pass(name, Pass(1, 16))
        layers = [layer for layer in model.products if layer.startswith(("layer.0", "layer.1."))]
        everything = dict.fromkeys(model.products, "features")
        before = choose_layouts(model, everything).transposes
        turned = transposed_by_dense(model, before)
        for layer in layers:
            wanted = {other: "features" for other in model.products if other != layer}
            after = {change.source for change in choose_layouts(model, wanted).transposes}
            assert {change.source for change in before} - after == set(turned.get(layer, ()))
        sources = [source for sources in turned.values() for source in sources]
        assert len(sources) == len(set(sources)) > 0
