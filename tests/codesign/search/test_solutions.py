"""Several solutions: all meet the targets, differ, and lie in folders of their own."""

import itertools
import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from prunecast.codesign import prune
from prunecast.codesign.search import Targets, prune_model
from prunecast.codesign.search.solutions import DIFFERENT, OFFERS, _differ, numbered_folders, remarks_on
from prunecast.errors import BadInput

RNG = np.random.default_rng(4)
LAYERS = {
    name: (RNG.standard_normal((m, k)) * np.exp(RNG.standard_normal(k))).astype(np.float16)
    for name, m, k in (("a", 1024, 1024), ("b", 2048, 1024), ("c", 1024, 2048))
}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    out = tmp_path_factory.mktemp("solutions") / "out"
    return prune_model(
        LAYERS, Targets(latency_share=0.75), gpu="h200-sxm", tokens=4096, engine="model", out=out, solutions=4
    )


def ways(pruned):
    return [(layer.pattern, layer.kernel) for layer in pruned.result.layers]


def test_all_meet_the_target_and_differ(found):
    every = [found, *found.others]
    assert len(every) > 2
    assert all(one.result.seconds <= 0.75 * one.result.dense_seconds for one in every)
    for one, other in itertools.combinations(every, 2):
        unlike = sum(a != b for a, b in zip(ways(one), ways(other), strict=True))
        assert unlike >= DIFFERENT * len(LAYERS)


def test_what_was_offered_is_what_they_have(found):
    for one in found.others:
        patterns = {layer.pattern for layer in one.result.layers} - {"dense"}
        if one.offered == "2:4 alone":
            assert patterns == {"2:4"}
        if one.offered == "tiles alone":
            assert all(pattern.startswith("atp") for pattern in patterns)


def test_each_is_written_whole(found):
    for number, one in enumerate([found, *found.others], 1):
        assert one.folder.name == ("out" if number == 1 else f"out-{number}")
        recipe = json.loads((one.folder / "recipe.json").read_text())
        assert recipe["offered"] == one.offered
        assert (one.folder / "weights.safetensors").stat().st_size > 0


def test_one_solution_is_the_first_of_many(found):
    alone = prune_model(
        LAYERS, Targets(latency_share=0.75), gpu="h200-sxm", tokens=4096, engine="model"
    ).result
    assert [layer.rows() for layer in alone.layers] == [layer.rows() for layer in found.result.layers]


def test_a_reason_is_given_where_fewer_are_found_than_asked_for(found):
    assert len(found.others) == 3
    assert found.remarks == ()
    few = {name: weights for name, weights in LAYERS.items() if name == "a"}
    asked = {"gpu": "h200-sxm", "tokens": 4096, "engine": "model", "solutions": 9}
    one = prune_model(few, Targets(latency_share=0.75), **asked)
    reason = f"{1 + len(one.others)} of 9 solutions found: no others meet the targets and differ in 10% of"
    assert len(one.others) < 8
    assert one.remarks[0].startswith(reason)
    assert one.notes[-1] == one.remarks[0]


def test_tile_maps_of_an_earlier_result_do_not_stay_beside_dense_weights(tmp_path):
    few, out = {"a": LAYERS["a"]}, tmp_path / "out"
    prune(few, pattern="tile-wise:64", out=out)
    assert (out / "tiles.npz").exists()
    prune_model(few, Targets(latency_share=2.0), gpu="h200-sxm", engine="model", out=out)
    assert sorted(path.name for path in out.iterdir()) == ["recipe.json", "weights.safetensors"]


def test_folders_of_an_earlier_search_are_named(tmp_path):
    for name in ("out", "out-2", "out-3", "out-5"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "recipe.json").write_text("{}")
    (tmp_path / "out-4").mkdir()  # it holds no pruned model
    remarks = list(remarks_on(2, 2, tmp_path / "out"))
    assert remarks == [f"{tmp_path / name} is of an earlier search" for name in ("out-3", "out-5")]
    assert next(remarks_on(1, 1, tmp_path / "out")) == f"{tmp_path / 'out-2'} is of an earlier search"
    assert not list(remarks_on(1, 1, Path()))
    assert not list(remarks_on(2, 2, None))


@pytest.mark.parametrize(
    ("dtype", "words"), [("fp8", "a search has no quantising of x"), ("fp7", "dtype must be one of fp16,")]
)
def test_a_number_format_that_a_search_does_not_count_is_refused(dtype, words):
    with pytest.raises(BadInput, match=words):
        prune_model(LAYERS, Targets(speedup=1.2), gpu="h200-sxm", engine="model", dtype=dtype)


def test_none_is_refused():
    with pytest.raises(BadInput, match="solutions must be at least 1"):
        prune_model(LAYERS, Targets(speedup=1.2), gpu="h200-sxm", engine="model", solutions=0)


def test_a_pruned_model_draws_and_prints_itself(found):
    figure = found.plot()
    assert len(figure.axes[0].lines) == 2
    assert len(str(found).splitlines()) == 1 + len(LAYERS)
    assert found._repr_html_().count("<tr>") == 1 + len(LAYERS)


@pytest.mark.parametrize(("layers", "is_other"), [(1, True), (10, True), (11, False), (20, False)])
def test_solutions_differ_if_a_tenth_of_their_layers_do(layers, is_other):
    def solution(pattern, kernel="stspmm"):
        rest = [SimpleNamespace(pattern="2:4", kernel="2:4")] * (layers - 1)
        return SimpleNamespace(layers=[SimpleNamespace(pattern=pattern, kernel=kernel), *rest])

    assert _differ(solution("atp:64"), solution("atp:128")) == is_other
    assert _differ(solution("atp:64"), solution("atp:64", "tile-wise")) == is_other
    assert not _differ(solution("atp:64"), solution("atp:64"))


@pytest.mark.parametrize(("most", "last"), [(1, "out"), (2, "out-2"), (9, "out-9"), (100, "out-9")])
def test_there_are_no_more_folders_than_solutions_or_restrictions(most, last):
    folders = numbered_folders(Path("a/out"), most)
    assert [folders[0], folders[-1]] == [Path("a/out"), Path(f"a/{last}")]
    assert len(set(folders)) == len(folders) == min(most, 9)


def test_restrictions_keep_what_their_names_say():
    for name, (_, least_kept) in OFFERS.items():
        removed = re.fullmatch(r"at most (\d+)% of a layer removed", name)
        assert least_kept == (pytest.approx(1 - int(removed[1]) / 100) if removed else 0.0)
        rows = re.fullmatch(r"equal tiles of (\d+) rows", name)
        assert not rows or OFFERS[name][0] == f"atp:{rows[1]}"
