"""Narrower layers of the accuracy studies: what masks remove is what is not there in a timed model."""

import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

SCRIPTS = Path(__file__).parents[2] / "examples" / "accuracy"


@pytest.fixture
def narrow(monkeypatch):
    """The module as the scripts see it."""
    monkeypatch.syspath_prepend(SCRIPTS)
    import narrow

    yield narrow
    sys.modules.pop("narrow", None)


def pair(narrow, neurons=16):
    """Two linear layers with an activation between, their group and random importance."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, neurons), torch.nn.GELU(), torch.nn.Linear(neurons, 12))
    group = narrow.Group("neurons", neurons, {"0.weight": 1}, {"2.weight": 1})
    rng = np.random.default_rng(0)
    importance = {"0.weight": rng.random((neurons, 8)), "2.weight": rng.random((12, neurons))}
    narrowing = narrow.Narrowing(groups=(group,), graph=lambda counts: None, ladders=())
    return model, group, importance, narrowing


@pytest.mark.parametrize("inside", [(), ("2.weight",)])
def test_a_narrow_model_says_what_the_masked_one_says(narrow, inside):
    model, group, importance, narrowing = pair(narrow)
    found = narrow.Narrowed({"neurons": 8}, inside, 0.5)
    masks = narrow.narrow_masks(narrowing, importance, found)
    with torch.no_grad():
        for name, mask in masks.items():
            model.get_parameter(name).mul_(torch.from_numpy(mask))
    x = torch.randn(5, 8)
    wanted = model(x)
    small, left = narrow.narrow(model, [group], masks)
    torch.testing.assert_close(small(x), wanted)
    assert small[0].weight.shape == (8, 8)
    assert small[2].weight.shape == (12, 8)
    if inside:
        assert (left["2.weight"].reshape(12, -1, 4).sum(2) == 2).all()
    else:
        assert all(mask.all() for mask in left.values())


def test_the_units_that_stay_are_those_of_most_importance(narrow):
    _, group, importance, _ = pair(narrow)
    slow = [importance["0.weight"][unit].sum() + importance["2.weight"][:, unit].sum() for unit in range(16)]
    kept = narrow.best_units(group, importance, 5)
    assert sorted(kept) == sorted(sorted(range(16), key=lambda unit: -slow[unit])[:5])


def test_units_of_several_rows_go_together(narrow):
    heads = narrow.Group("heads", 4, {"q": 3}, {"o": 3})
    importance = {"q": np.arange(12.0)[:, None] @ np.ones((1, 2)), "o": np.ones((2, 12))}
    narrowing = narrow.Narrowing(groups=(heads,), graph=lambda counts: None, ladders=())
    masks = narrow.narrow_masks(narrowing, importance, narrow.Narrowed({"heads": 2}, (), 1.0))
    assert masks["q"].all(1).tolist() == [False] * 6 + [True] * 6
    assert masks["o"].all(0).tolist() == [False] * 6 + [True] * 6


def test_the_widest_model_within_the_time_is_found(narrow):
    _, _, importance, narrowing = pair(narrow)
    ladder = tuple({"neurons": count} for count in range(2, 17, 2))
    narrowing = narrow.Narrowing(groups=narrowing.groups, graph=lambda counts: None, ladders=(ladder,))
    for share in (0.3, 0.5, 0.75, 1.0):
        found = narrow.find_narrow(
            narrowing, importance, share, lambda counts, inside: counts["neurons"] / 16, [()]
        )
        assert found.counts["neurons"] == max(n for n in range(2, 17, 2) if n / 16 <= share)
    with pytest.raises(ValueError, match="nothing narrow"):
        narrow.find_narrow(narrowing, importance, 0.05, lambda counts, inside: counts["neurons"] / 16, [()])
