"""Settings become patterns that can be parsed; a study's name depends on all that its results do."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunecast.codesign.search import FrontPoint, Targets
from prunecast.codesign.search.model_search import ModelSearch
from prunecast.codesign.study.evaluator import Evaluator, groups_of, patterns_from, plain_params
from prunecast.codesign.study.search_model import study_name
from prunecast.codesign.study.study_result import pareto
from prunecast.hardware import load_gpu
from prunecast.patterns import parse_pattern
from prunecast.workload.engines import Engine
from prunecast.workload.graph import Pass
from prunecast.workload.load import load_workload
from tests.codesign.weights import uneven


@given(st.data())
def test_every_choice_is_a_pattern_and_reads_back(data):
    params = {}

    def choose(name, choices):
        params[name] = data.draw(st.sampled_from(choices))
        return params[name]

    patterns = patterns_from(choose, ("tall", "wide"))
    for text in patterns.values():
        parse_pattern(text)
    assert patterns_from(lambda name, _: params[name], ("tall", "wide")) == patterns


def test_plain_settings_add_nothing():
    params = plain_params(("tall",))
    assert patterns_from(lambda name, _: params[name], ("tall",)) == {}


def test_groups_follow_the_shape():
    shapes = {"a": (2, 1), "b": (1, 2), "c": (2, 2)}
    assert groups_of(shapes) == {"a": "tall", "b": "wide", "c": "square"}


HALF = Targets(sparsity=0.5)


def search_of(weights, *, gpu="h200-sxm", tokens=64, **settings):
    return ModelSearch(
        workload=load_workload(weights, [Pass(1, tokens)]),
        engine=Engine(name="model", gpu=load_gpu(gpu)),
        dtype="fp16",
        **settings,
    )


def name_of(weights, *, latency=0.6, **settings):
    return study_name(search_of(weights, **settings), Targets(latency_share=latency))


def test_a_name_belongs_to_weights_gpu_and_settings():
    a = {"a": uneven(64, 64)}
    names = [
        name_of(a),
        name_of({"a": uneven(64, 64, seed=1)}),
        name_of({"b": a["a"]}),
        name_of(a, gpu="t4"),
        name_of(a, latency=0.5),
        name_of(a, tokens=65),
        name_of(a, caps={"a": 0.5}),
        name_of(a, most_sparsity=0.9),
    ]
    assert len(set(names)) == len(names)
    assert name_of(a) == names[0]


def test_a_name_does_not_depend_on_the_order_of_limits():
    weights = {"a": uneven(64, 64), "b": uneven(64, 64, seed=1)}
    caps = {"a": 0.5, "b": 0.75}
    assert name_of(weights, caps=caps) == name_of(weights, caps=dict(reversed(caps.items())))
    assert name_of(weights, caps=caps) != name_of(weights, caps={"a": 0.75, "b": 0.5})


def test_pareto_by_hand():
    plain = [FrontPoint(0.5, 0.4, 0.0), FrontPoint(1.0, 1.0, 0.0)]
    better = [FrontPoint(0.45, 0.3, 0.0), FrontPoint(0.5, 0.6, 0.0), FrontPoint(1.0, 0.9, 0.0)]
    points = pareto(plain, {0: plain, 1: better}, 1.0)
    assert [(p.time_share, p.plain_importance, p.retained_importance, p.trial) for p in points] == [
        (0.45, None, 0.3, 1),
        (0.5, 0.4, 0.6, 1),
        (1.0, 1.0, 1.0, 0),
    ]


def test_pareto_without_a_front():
    assert pareto([], {0: []}, 1.0) == ()


@pytest.mark.parametrize("text", ["atp:64x8x0-inf:shuffled:rms", "tile-element:64x1"])
def test_spellings_of_the_space_are_those_of_patterns(text):
    assert parse_pattern(text).canonical == text


@pytest.mark.parametrize(
    ("removed", "cap", "tried"),
    [
        (0.6, None, [0.52, 0.57, 0.6, 0.63, 0.68]),
        (0.6, 0.61, [0.52, 0.57, 0.6, 0.61]),
        (0.05, None, [0.02, 0.05, 0.08, 0.13]),
        (0.0, None, [0.5, 0.6, 0.7, 0.8, 0.9]),
        (0.0, 0.65, [0.5, 0.6, 0.65]),
    ],
)
def test_a_pattern_is_tried_near_the_sparsity_that_the_layer_has_without_it(removed, cap, tried):
    """A layer that stays dense says nothing of where it could be sparse."""
    evaluator = Evaluator(search_of({"a": uneven(64, 64)}, caps={"a": cap} if cap else {}), HALF)
    found = list(evaluator._options("a", "unstructured", removed))
    assert [option.sparsity for (option,) in found] == tried
    for (option,) in found:
        assert option.kept == pytest.approx(64 * 64 * (1 - option.sparsity), abs=1)


def test_a_pattern_that_a_layer_is_too_small_for_has_no_options():
    evaluator = Evaluator(search_of({"a": uneven(2, 2)}), HALF)
    assert list(evaluator._options("a", "2:4", 0.5)) == []


def test_options_count_every_copy_of_a_layer():
    """Importance and weights of a layer that stands for three are those of all three."""
    search, copies = search_of({"a": uneven(64, 64)}), 3
    layers = {name: replace(layer, count=copies) for name, layer in search.workload.layers.items()}
    many = replace(search, workload=replace(search.workload, layers=layers))
    one, three = (next(Evaluator(each, HALF)._options("a", "atp:16", 0.5))[0] for each in (search, many))
    assert (three.kept, three.importance) == (copies * one.kept, pytest.approx(copies * one.importance))


def test_a_trial_adds_its_pattern_to_the_layers_of_its_group_only():
    weights = {"tall": uneven(256, 128), "wide": uneven(128, 256)}
    evaluator = Evaluator(search_of(weights, families=("2:4",)), HALF)
    plain = evaluator.plain()
    own = dict(evaluator.search.options)
    added = []

    def chosen(patterns):
        evaluator._made.clear()
        result = evaluator.result(patterns, plain)
        added.append(set(evaluator._made))
        assert evaluator.search.options == own
        return {layer.layer: layer.pattern for layer in result.layers}

    without = {layer.layer: layer.pattern for layer in plain.layers}
    assert chosen({}) == chosen({"square": "tvw:64"}) == without
    assert chosen({"tall": "unstructured"})["wide"] == without["wide"]
    assert added == [set(), set(), {("tall", "unstructured")}]
