"""Rewrites of graphs: each conserves work, weights, inputs and outputs, and changes nothing twice."""

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunecast.kernels import ConvShape
from prunecast.workload.graph import ModelGraph, Operation, Pass, convolutions, fusions, load_pass, transposes
from prunecast.workload.graph.convolutions import in_planes
from prunecast.workload.graph.fusions import mark_sparse
from prunecast.workload.graph.model_graph import convolved
from prunecast.workload.graph.runtimes import RUNTIMES, rewritten, with_sparse
from prunecast.workload.graph.shapes import Transformer
from prunecast.workload.graph.transposes import TRANSPOSES
from prunecast.workload.graph.workloads import unfused_transformer

EVERY = (
    *RUNTIMES["engine"].rewrites,
    *RUNTIMES["torch"].joins,
    *RUNTIMES["torch"].rewrites,
    *RUNTIMES["torch"].sparse_rewrites,
    *RUNTIMES["engine"].sparse_rewrites,
)


def images(*, batch: int) -> ModelGraph:
    """Three convolutions with ReLUs, the last one added to the shortcut."""
    model = ModelGraph(name="images", runtime="torch")
    conv = ConvShape.square(16, 8, 3, batch=batch)
    elements = 16 * 8 * 8 * batch

    def work(name: str, kind: str, tensors: int, after: list[str]) -> str:
        return model.add(
            Operation(name=name, kind=kind, elements_in=tensors * elements, elements_out=elements), after
        )

    image = model.add(Operation(name="image", kind="input", elements_out=elements))
    stem = work("stem.relu", "relu", 1, [model.add(convolved("stem", 16, conv), [image])])
    inside = work("one.relu", "relu", 1, [model.add(convolved("one", 16, conv), [stem])])
    work("sum", "elementwise", 2, [model.add(convolved("two", 16, conv), [inside]), stem])
    return model


@st.composite
def graphs(draw: st.DrawFn) -> ModelGraph:
    """A model before any rewrite, some of its products sparse."""
    if draw(st.booleans()):
        model = images(batch=draw(st.sampled_from([8, 64])))
    else:
        is_llama, causal = draw(st.booleans()), draw(st.booleans())
        heads = draw(st.sampled_from([2, 4]))
        shape = Transformer(
            layers=draw(st.integers(1, 3)),
            hidden=32 * heads,
            heads=heads,
            key_heads=draw(st.sampled_from([0, 1, 2])),
            feed_forward=draw(st.sampled_from([64, 2048])),
            gated=is_llama,
            rms_norm=is_llama,
            rotary=is_llama,
            fused_qkv=draw(st.booleans()),
            fused_gate=draw(st.booleans()),
            norm_first=draw(st.booleans()),
            parallel_norms=draw(st.sampled_from([0, 0, 1, 2])),
            causal=causal,
            patch=draw(st.sampled_from([0, 32])),
            head=draw(st.sampled_from([0, 100])),
        )
        cached = draw(st.sampled_from([0, 10])) if causal and not shape.patch else 0
        tokens = 1 if cached else draw(st.sampled_from([7, 200_000]))
        model = unfused_transformer("x", shape, Pass(draw(st.sampled_from([1, 3])), tokens, cached))
    names = sorted(model.products)
    sparse = [name for name in names if draw(st.booleans())] if draw(st.booleans()) else names
    unfused = draw(st.sampled_from([(), tuple(names)]))
    return mark_sparse(model, sparse, unfused)


def work_of(model: ModelGraph) -> dict[str, object]:
    """What a rewrite conserves: operations of the tensor cores, weights, tensors from outside and to it."""
    tensors = [o.elements_out // o.tensors_out for o in model if not model.readers(o.name)]
    return {
        "flops": sum(o.flops * o.runs + 2.0 * o.m * o.k * o.n * o.runs for o in model),
        "weights": sum(o.weights for o in model),
        "inputs": Counter(o.elements_out for o in model if not model.sources(o.name)),
        "outputs": Counter(tensors),
    }


def check_conserved(after: ModelGraph, before: ModelGraph) -> None:
    found, wanted = work_of(after), work_of(before)
    assert found.pop("flops") == pytest.approx(wanted.pop("flops"), rel=1e-12)
    assert found == wanted


def content(model: ModelGraph) -> tuple[list[Operation], set[tuple[str, str, int]]]:
    return sorted(model, key=lambda o: o.name), set(model.graph.edges(data="elements"))


@pytest.mark.parametrize("rewrite", EVERY, ids=lambda rewrite: rewrite.__name__)
@given(model=graphs())
def test_a_rewrite_conserves_work_and_changes_nothing_twice(
    rewrite: Callable[[ModelGraph], ModelGraph], model: ModelGraph
) -> None:
    once = rewrite(model)
    check_conserved(once, model)
    assert content(rewrite(once)) == content(once)


@given(graphs(), st.sampled_from(sorted(RUNTIMES)))
def test_all_rewrites_of_a_runtime_conserve_work_and_follow_the_order_of_tensors(
    model: ModelGraph, runtime: str
) -> None:
    sparse = frozenset(name for name, o in model.products.items() if o.is_sparse)
    run = rewritten(model, runtime)
    launched = with_sparse(run, sparse.intersection(run.products))
    check_conserved(launched, model)
    place = {o.name: place for place, o in enumerate(launched)}
    assert all(place[source] < place[reader] for source, reader in launched.graph.edges)


@given(graphs())
def test_no_sparse_product_of_torch_reads_a_tensor_as_it_was_written(model: ModelGraph) -> None:
    launched = transposes.transpose_inputs(convolutions.lay_images(fusions.fuse_activations(model)))
    planes = in_planes(launched)
    for product in launched.products.values():
        if product.is_sparse and product.n > 1:
            (source,) = launched.sources(product.name)
            is_laid = product.convolution is not None and source.name in planes
            assert source.kind in (*TRANSPOSES, "gelu epilogue", "silu epilogue") or is_laid


def test_rewrites_by_hand() -> None:
    """A block of Llama: what an engine launches, and what torch does."""
    shape = Transformer(
        layers=1, hidden=64, heads=4, feed_forward=128, gated=True, rms_norm=True, rotary=True
    )
    before = unfused_transformer("x", shape, Pass(2, 1, 9))
    own = [o.name.removeprefix("layer.0.") for o in before]
    assert own == [
        *("embedding", "norm0", "query", "key", "value", "rotary", "cache", "attention", "output"),
        *("norm1", "up", "gate", "gating", "down", "norm2"),
    ]
    engine = [o.name.removeprefix("layer.0.") for o in rewritten(before, "engine")]
    assert engine == [name for name in own if name not in ("norm0", "rotary", "cache")]
    torch = [o.name.removeprefix("layer.0.") for o in rewritten(before, "torch")]
    assert torch == [
        *("embedding", "norm0", "qkv", "rotary", "cache", "attention", "output", "norm1"),
        *("gate_up", "gating", "down", "norm2"),
    ]


def test_a_pattern_that_is_not_there_changes_nothing() -> None:
    unet = load_pass("stable-diffusion-1.5", Pass(1))
    for rewrite in (
        fusions.fold_first_norm,
        fusions.fold_activations,
        fusions.join_gate_and_up,
        convolutions.lay_images,
    ):
        assert content(rewrite(unet)) == content(unet)


def test_what_works_in_place_still_reads_its_first_tensor_first() -> None:
    """The sum of `images` works on what its second convolution wrote, though the other tensor is older."""
    marked = mark_sparse(images(batch=8), {"two"})
    assert list(marked.graph.predecessors("sum")) == ["two", "stem.relu"]
    assert "sum" in in_planes(marked)
