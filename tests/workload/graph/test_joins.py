"""Matrices that are one launch: found whatever their order, and one product of the same work in the graph."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunecast.hardware import load_gpu
from prunecast.workload.graph import ModelGraph, Pass, load_pass, model_time, transformer_graph
from prunecast.workload.graph.families import families
from prunecast.workload.graph.joins import (
    SIBLINGS,
    joint_name,
    launched_together,
    sibling_groups,
    together,
)
from prunecast.workload.graph.shapes import Transformer

GPU = load_gpu("h200-sxm")
LLAMA = Transformer(
    layers=2, hidden=256, heads=4, key_heads=2, feed_forward=512, gated=True, rms_norm=True, rotary=True
)
PARTS = (
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
)
NAMES = [f"layers.{layer}.{part}.weight" for layer in (0, 1) for part in PARTS]


def torch_graph(shape: Transformer, run: Pass, *, by_matrix: bool = False) -> ModelGraph:
    return transformer_graph("x", shape, run, "torch", by_matrix=by_matrix)


@given(st.permutations(NAMES))
def test_siblings_are_found_in_any_order_and_called_in_one(names: list[str]) -> None:
    groups = sibling_groups(dict.fromkeys(names, 256))
    assert sorted(name for group in groups for name in group) == sorted(NAMES)
    found = {tuple(name.split(".")[-2] for name in group) for group in groups}
    assert found == {("q_proj", "k_proj", "v_proj"), ("o_proj",), ("gate_proj", "up_proj")}
    assert all(len({name.split(".")[1] for name in group}) == 1 for group in groups)


@pytest.mark.parametrize("parts", [("query", "key", "value"), ("gate", "up")])
@pytest.mark.parametrize("name", families())
def test_torch_joins_the_matrices_of_every_family(name: str, parts: tuple[str, ...]) -> None:
    """Names of `families.toml` that read one x are siblings, in the order of `parts`."""
    modules: dict[str, dict[str, str]] = {}
    for end, part in families()[name].tensors.items():
        module, _, own = end.rpartition(".")
        modules.setdefault(module, {})[part] = own
    for own_names in modules.values():
        if own_names.keys() >= set(parts):
            assert tuple(own_names[part] for part in parts) in SIBLINGS


@pytest.mark.parametrize(
    "columns",
    [
        {"a.q_proj": 8, "a.k_proj": 8},
        {"a.query": 8, "a.key": 4, "a.value": 8},
        {"gate_proj": 8, "b.up_proj": 8},
    ],
)
def test_what_reads_something_else_or_is_not_there_makes_no_group(columns: dict[str, int]) -> None:
    assert all(len(group) == 1 for group in sibling_groups(columns))


@pytest.mark.parametrize(
    "module", ["decoder.layers.0.encoder_attn.{}_proj", "cross_attn.{}_proj", "EncDecAttention.{}"]
)
def test_queries_of_cross_attention_are_apart(module: str) -> None:
    names = [module.format(each) for each in "qkv"]
    assert sibling_groups(dict.fromkeys(names, 8)) == [names[:1], names[1:]]


def named_form() -> tuple[object, object]:
    """The products by matrix with names of a file, and the form that torch launches."""
    run, parts = (
        Pass(4, 512),
        {"query": "self_attn.q_proj", "key": "self_attn.k_proj", "value": "self_attn.v_proj"},
    )
    apart = torch_graph(LLAMA, run, by_matrix=True)
    parts |= {"gate": "mlp.gate_proj", "up": "mlp.up_proj"}
    named = replace(apart, graph=type(apart.graph)())
    called = {
        name: f"{name.rpartition('.')[0]}.{parts[name.rpartition('.')[2]]}.weight"
        for name in apart.products
        if name.rpartition(".")[2] in parts
    }
    for operation in apart:
        before = [called.get(each, each) for each in apart.graph.predecessors(operation.name)]
        named.add(replace(operation, name=called.get(operation.name, operation.name)), before)
    return named, torch_graph(LLAMA, run)


def test_the_graph_of_launches_is_that_of_fused_matrices() -> None:
    named, fused = named_form()
    groups = launched_together(named, named.products)
    joint = together(named, groups)
    assert len(groups) == 4
    assert [(p.m, p.k, p.n) for p in joint.products.values()] == [
        (p.m, p.k, p.n) for p in fused.products.values()
    ]
    times = [model_time(each, GPU, dict.fromkeys(each.products, 1e-6)) for each in (joint, fused)]
    assert list(times[0].seconds_of.values()) == pytest.approx(list(times[1].seconds_of.values()))


def test_only_what_is_pruned_and_has_whole_tiles_is_one() -> None:
    named, _ = named_form()
    some = [name for name in named.products if not name.endswith("v_proj.weight")]
    groups = launched_together(named, some)
    assert [len(group) for group in groups] == [2, 2, 2, 2]
    assert joint_name(groups[0]).endswith(".self_attn.q_proj+k_proj.weight")
    assert [each.m for each in together(named, groups)[joint_name(groups[0])].members] == [256, 128]
    narrow = torch_graph(replace(LLAMA, hidden=96, heads=4, key_heads=1), Pass(4, 512), by_matrix=True)
    assert launched_together(narrow, narrow.products) == []
    assert launched_together(load_pass("bert-small", Pass(4, 512)), some) == []
