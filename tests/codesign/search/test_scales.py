"""What is seen of some layers is supposed of others of their shape; one layer of a kind is enough."""

from types import SimpleNamespace

from prunecast.codesign.search.floor import probe, with_likely
from prunecast.codesign.search.options import Options

X, Y = ("stspmm", "x"), ("stspmm", "y")
SHAPES = {"a": (8, 4), "b": (8, 4), "c": (8, 4), "d": (4, 8)}


class Search:
    """Two patterns in addition to dense; a pruned layer needs two or three times its estimate."""

    def __init__(self) -> None:
        layers = {name: SimpleNamespace(shape=shape, n=16) for name, shape in SHAPES.items()}
        self.workload = SimpleNamespace(layers=layers)
        each = (Options.of(name, {"stspmm": 1.0}, importance=1.0, kept=1.0) for name in ("dense", "x", "y"))
        self.options = dict.fromkeys(SHAPES, Options.joined(each))
        self.pruned: list[str] = []

    def realise(self, choice):
        self.pruned += choice
        return {name: SimpleNamespace(seconds=1.0 + place) for name, place in choice.items()}


def test_own_scales_stay_and_others_are_the_mean_of_the_shape() -> None:
    seen = {"a": {X: 1.0}, "b": {X: 3.0, Y: 5.0}, "c": {}, "d": {}}
    likely = with_likely(Search(), seen)
    assert likely["a"] == {X: 1.0, Y: 5.0}
    assert likely["b"] == {X: 3.0, Y: 5.0}
    assert likely["c"] == {X: 2.0, Y: 5.0}
    assert likely["d"] == {}


def test_one_layer_of_each_shape_and_pattern_is_pruned() -> None:
    search, scales = Search(), {name: {} for name in SHAPES}
    first, later = {"a": 1, "b": 1, "c": 0, "d": 1}, {"a": 2, "b": 2, "c": 1, "d": 1}
    choices = iter([first, later, later])
    probe(search, lambda _: next(choices), scales)
    assert search.pruned == ["a", "d", "a"]
    assert scales == {"a": {X: 2.0, Y: 3.0}, "b": {}, "c": {}, "d": {X: 2.0}}


def test_nothing_is_pruned_where_all_stays_dense() -> None:
    search = Search()
    probe(search, lambda _: dict.fromkeys(SHAPES, 0), {name: {} for name in SHAPES})
    assert search.pruned == []
