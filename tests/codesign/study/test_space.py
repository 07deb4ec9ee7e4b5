"""Settings become patterns that can be parsed; a study's name depends on all that its results do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunecast.codesign.search import FrontPoint, Targets
from prunecast.codesign.search.model_search import ModelSearch
from prunecast.codesign.study.evaluator import groups_of, patterns_from, plain_params
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


def name_of(weights, *, gpu="h200-sxm", latency=0.6, tokens=64, **settings):
    spec = load_gpu(gpu)
    search = ModelSearch(
        workload=load_workload(weights, [Pass(1, tokens)]),
        engine=Engine(name="model", gpu=spec),
        dtype="fp16",
        **settings,
    )
    return study_name(search, Targets(latency_share=latency))


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
