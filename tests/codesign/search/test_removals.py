"""Removed parts in a search: which shares of a part are tried, and which are taken."""

from types import SimpleNamespace

import pytest

from prunecast.codesign.search import removals
from prunecast.codesign.search.targets import FrontPoint, TargetResult, Targets
from prunecast.errors import BadInput

RETAINED = {"": 0.711, "widths:0.125": 0.70, "widths:0.25": 0.73, "widths:0.375": 0.747, "widths:0.5": 0.72}
RETAINED |= {"widths:0.375 heads:0.125": 0.74, "widths:0.375 heads:0.25": 0.76, "widths:0.375 heads:0.5": 0.1}
"""Removed parts -> importance that the best search retains; others meet no target."""


@pytest.fixture
def search(monkeypatch):
    """The search of a model of which only the outcome is known."""
    tried = []

    def removed(weights, parts, calibrate=None):
        return SimpleNamespace(parts=" ".join(parts), sizes=lambda: None)

    def make(source):
        parts = getattr(source, "parts", "")
        return SimpleNamespace(
            parts=parts,
            prepare=lambda: None,
            workload=SimpleNamespace(weights=1),
            importance=1.0,
            limits=lambda targets: targets.limits(1.0, 1),
            memory=lambda sizes: (),
        )

    def prune_to_targets(search, targets):
        tried.append(search.parts)
        if search.parts not in RETAINED:
            raise BadInput("not in that time")
        assert targets == Targets(latency_s=0.74)
        return TargetResult(
            layers=(),
            time=None,
            seconds=0.7,
            dense_seconds=0.9,
            retained_importance=RETAINED[search.parts],
            sparsity=0.0,
            front=(),
        )

    monkeypatch.setattr(removals, "Removed", removed)

    def best(*remove):
        found = removals.best_smaller_model(
            "weights", Targets(latency_share=0.74), remove, make, prune_to_targets
        )
        assert found.result.dense_seconds == 1.0
        return getattr(found.weights, "parts", ""), found.result.retained_importance, tried

    return best


def test_every_share_of_a_part_is_tried_and_the_best_is_taken(search):
    assert search("widths") == ("widths:0.375", 0.747, ["", *list(RETAINED)[1:5]])


def test_parts_are_decided_one_after_the_other(search):
    assert search("widths", "heads")[:2] == ("widths:0.375 heads:0.25", 0.76)


def test_nothing_is_removed_where_that_retains_most(search, monkeypatch):
    monkeypatch.setitem(RETAINED, "", 0.9)
    assert search("widths")[:2] == ("", 0.9)


def test_a_target_that_no_model_meets_is_refused(search, monkeypatch):
    monkeypatch.delitem(RETAINED, "")
    with pytest.raises(BadInput, match="not in that time"):
        search("experts")


def sized(weights, importance=1.0):
    """The search of a model with this number of weights and this importance."""
    limits = Targets.limits
    return SimpleNamespace(
        workload=SimpleNamespace(weights=weights),
        importance=importance,
        prepare=lambda: None,
        limits=lambda targets: limits(targets, 1.0, weights),
        memory=lambda sizes: ("whole",),
    )


def result_of(**changes):
    front = (FrontPoint(0.5, 0.9, 0.5), FrontPoint(0.25, 0.5, 0.75))
    usual = {"layers": (), "time": None, "seconds": 0.5, "dense_seconds": 0.75, "front": front}
    return TargetResult(**{**usual, "retained_importance": 0.9, "sparsity": 0.5, **changes})


def test_results_of_a_smaller_model_are_relative_to_the_whole():
    """Half of the weights with four fifths of the importance; half of them is pruned."""
    found = removals._relative(result_of(), sized(100, 40.0), sized(200, 50.0), 1.0)
    assert (found.seconds, found.dense_seconds, found.dense_memory) == (0.5, 1.0, ("whole",))
    assert found.retained_importance == pytest.approx(0.8 * 0.9)
    assert found.sparsity == pytest.approx(0.75)
    assert [point.seconds for point in found.front] == [0.5, 0.25]
    assert [point.retained_importance for point in found.front] == pytest.approx([0.72, 0.4])
    assert [point.sparsity for point in found.front] == pytest.approx([0.75, 0.875])


@pytest.mark.parametrize(("left", "sparsity"), [(1000, 0.6), (500, 0.2), (400, 0.0), (300, 0.0)])
def test_a_smaller_model_has_less_to_remove(monkeypatch, left, sparsity):
    """Of 1000 weights 400 may stay, however many are in removed parts."""
    asked = []

    def prune(search, targets):
        asked.append(targets)
        return result_of()

    monkeypatch.setattr(removals, "Removed", lambda **_: SimpleNamespace(is_smaller=True))
    removals.best_smaller_model(
        "weights",
        Targets(sparsity=0.6),
        ["heads:0.5"],
        lambda source: sized(left if hasattr(source, "is_smaller") else 1000),
        prune,
    )
    (targets,) = asked
    assert (targets.latency_s, targets.sparsity) == (None, pytest.approx(sparsity))
