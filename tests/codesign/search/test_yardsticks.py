"""What a solution is compared with: one share in every layer, and its kernels without pruning."""

import itertools
import re
from functools import partial

import numpy as np
import pytest
from safetensors.numpy import save_file

from prunecast.codesign.search import Targets
from prunecast.codesign.search.even_shares import (
    EVEN,
    _allocated,
    _even_pools,
    evenly_if_close,
    prune_evenly,
)
from prunecast.codesign.search.model_search import SparseLayers
from prunecast.codesign.search.prune_model import prune_model, search_of
from prunecast.codesign.search.target import prune_to_targets
from prunecast.codesign.search.targets import ONE_SHARE, Limits
from prunecast.codesign.search.yardsticks import (
    NEAR,
    SHARES,
    STEP,
    _even_places,
    estimated_seconds,
    even_choice,
    own_choice,
    uniform_points,
    unpruned_seconds,
)
from prunecast.errors import BadInput

OPTIONS = {"gpu": "h200-sxm", "engine": "model", "families": ["atp", "2:4"]}


def weights(tokens_seed=0):
    random = np.random.default_rng(tokens_seed)
    return {
        name: random.standard_normal(shape).astype(np.float16)
        for name, shape in {"a": (1024, 1024), "b": (512, 1024), "c": (64, 64)}.items()
    }


@pytest.fixture(scope="module")
def search():
    found = search_of(weights(), tokens=4096, **OPTIONS)
    found.prepare()
    return found


def uniform_by_hand(search, patterns, removed):
    """Time and importance of the fastest option of a share in each layer, dense where that is faster."""
    seconds, kept, every = {}, 0.0, 0.0
    for name, options in search.options.items():
        best = options[0]
        for option in list(options)[1:]:
            share = 1.0 - option.kept / options[0].kept
            is_near = abs(share - removed) <= NEAR and re.fullmatch(patterns, option.pattern)
            if is_near and option.seconds < best.seconds:
                best = option
        seconds[name] = search.dense_seconds()[name] if best.pattern == "dense" else best.seconds
        kept += best.importance
        every += options[0].importance
    return sum(seconds.values()), kept / every


def test_uniform_points_are_those_of_a_loop(search):
    most_s = 0.7 * sum(search.dense_seconds().values())
    points = {point.pattern: point for point in uniform_points(search, most_s)}
    assert set(points) == {"2:4", "tiles"}
    for name, patterns in {"2:4": "2:4", "tiles": "atp:.*"}.items():
        point = points[name]
        seconds, retained = uniform_by_hand(search, patterns, point.removed)
        assert (point.seconds, point.retained_importance) == pytest.approx((seconds, retained))
    assert points["tiles"].seconds <= most_s
    for share in SHARES[points["tiles"].removed > SHARES]:
        assert uniform_by_hand(search, "atp:.*", share)[0] > most_s


def test_the_lowest_share_that_needs_a_time_meets_it(search):
    """At the time of a share exactly, and just below: the times of these shares differ."""
    seconds = [estimated_seconds(search, even_choice(search, "atp:.*", share)) for share in SHARES]
    for share, most_s in zip(SHARES, seconds, strict=True):
        lowest = SHARES[np.array(seconds) <= most_s][0]
        (point,) = (each for each in uniform_points(search, most_s) if each.pattern == "tiles")
        assert point.removed == lowest <= share


def test_no_share_meets_a_time_of_nothing(search):
    assert [point.pattern for point in uniform_points(search, 1e-9)] == ["2:4"]


def test_a_solution_is_beside_its_kernels_without_pruning(search):
    dense_s = sum(search.dense_seconds().values())
    result = prune_to_targets(search, Targets(latency_share=0.7))
    unpruned_s = unpruned_seconds(search, result)
    assert result.seconds < unpruned_s <= dense_s


def test_another_kernel_is_no_gain_of_pruning():
    """With one token `small-n` beats cuBLAS without removing anything."""
    pruned = prune_model(weights(), Targets(latency_share=0.9), tokens=1, **OPTIONS)
    assert pruned.unpruned_seconds < 0.99 * pruned.result.dense_seconds
    document = pruned.document()
    assert document["unpruned_seconds"] == pruned.unpruned_seconds
    assert [row["pattern"] for row in document["uniform"]] == [point.pattern for point in pruned.uniform]
    assert pruned.folder is None


def test_one_share_in_every_layer_meets_the_time_and_a_lower_one_does_not(search):
    result = prune_evenly(search, Targets(latency_share=0.7))
    assert result.seconds <= 0.7 * result.dense_seconds
    sparse = [layer for layer in result.layers if layer.pattern != "dense"]
    shares = [layer.removed for layer in sparse]
    assert max(shares) - min(shares) <= STEP + 2 * NEAR
    (patterns,) = (each for each in EVEN.values() if re.fullmatch(each, sparse[0].pattern))
    assert all(re.fullmatch(patterns, layer.pattern) for layer in sparse)
    for share in SHARES[min(shares) - NEAR > SHARES]:
        assert uniform_by_hand(search, patterns, share)[0] > 0.97 * 0.7 * result.dense_seconds


def test_the_family_that_retains_most_is_taken(search):
    """2:4 meets a loose time, where it retains more than tiles of half the weights."""
    result = prune_evenly(search, Targets(sparsity=0.4))
    assert {layer.pattern for layer in result.layers} - {"dense"} == {"2:4"}


def test_a_time_that_no_share_reaches_is_refused(search):
    with pytest.raises(BadInput, match="even: wanted"):
        prune_evenly(search, Targets(latency_share=0.01))


def test_even_has_one_solution():
    with pytest.raises(BadInput, match="even has one solution"):
        prune_model(weights(), Targets(sparsity=0.5), even=True, solutions=2, **OPTIONS)
    found = prune_model(weights(), Targets(sparsity=0.5), even=True, **OPTIONS)
    assert found.offered == "one share in every layer"


def test_nothing_is_pruned_where_dense_meets_the_time(search):
    result = prune_evenly(search, Targets(latency_share=1.0))
    assert {layer.pattern for layer in result.layers} == {"dense"}
    assert result.retained_importance == pytest.approx(1.0)


def test_time_that_a_step_of_shares_leaves_is_used(search):
    """Steps of 5 % leave up to 4 % of the time; layers get it back, the least important weights last.

    More than 2 % remain only where no layer has an option that keeps more and fits into the time, as with
    2:4, of which there is one share.
    """
    for share in (0.9, 0.8, 0.7):
        result = prune_evenly(search, Targets(latency_share=share))
        allowed_s = share * result.dense_seconds
        assert result.seconds <= allowed_s
        if result.seconds >= 0.98 * allowed_s:
            continue
        assert {layer.pattern for layer in result.layers} == {"2:4"}
        for layer in result.layers:  # what keeps more is dense
            dense_s = search.options[layer.layer][0].seconds
            assert dense_s - layer.seconds > allowed_s - result.seconds


def test_one_share_is_the_default_unless_layers_are_calibrated(tmp_path):
    targets = Targets(latency_share=0.7)
    found = prune_model(weights(), targets, tokens=4096, **OPTIONS)
    assert found.result.offered == ONE_SHARE
    assert found.offered == "one share in every layer"
    uneven = prune_model(weights(), targets, tokens=4096, even=False, **OPTIONS)
    assert uneven.result.offered == "everything"
    assert uneven.result.retained_importance >= found.result.retained_importance
    squares = {name: np.ones(each.shape[1], np.float32) for name, each in weights().items()}
    save_file(squares, tmp_path / "squares.safetensors")
    calibrated = prune_model(
        weights(), targets, tokens=4096, calibrate=tmp_path / "squares.safetensors", **OPTIONS
    )
    assert calibrated.result.offered == "everything"


def test_layers_compete_where_one_share_does_not_meet_the_time(search, monkeypatch):
    for module in ("even_shares", "yardsticks"):
        monkeypatch.setattr(f"prunecast.codesign.search.{module}.SHARES", np.array([0.05]))
    targets = Targets(latency_share=0.7)
    with pytest.raises(BadInput, match="even: wanted"):
        prune_evenly(search, targets)
    result = evenly_if_close(search, targets)
    assert result.offered == "everything"
    assert result.retained_importance == prune_to_targets(search, targets).retained_importance


def test_the_estimate_of_one_share_counts_the_sums_that_its_kernel_does_not_fuse():
    """In torch, gated units and residual adds after 2:4 are separate kernels and need part of the budget."""
    search = search_of("llama-3.2-1b", gpu="h200-sxm", engine="model", runtime="torch", families=["2:4"])
    search.prepare()
    pools = _even_pools(search, "2:4", 0.5, partial(even_choice, search, "2:4"))
    choice = {name: int(places[-1]) for name, places in pools.items()}
    seconds = {name: search.options[name].seconds[place] for name, place in choice.items()}
    sparse = search.sparse(choice)
    assert sparse.unfused
    whole_s = search.total(seconds, sparse)
    limits = Limits(dense_s=1.0, seconds=1.0, kept=np.inf)
    assert _allocated(search, pools, {}, 1.0001 * whole_s, limits) == choice
    assert _allocated(search, pools, {}, 0.9999 * whole_s, limits) is None
    assert search.total(seconds, SparseLayers(sparse.names)) < 0.999 * whole_s


def test_layers_of_one_share_are_dense_where_the_pass_is_then_faster():
    """With few tokens, transposes for small layers cost more than their sparse kernels save."""
    options = {"gpu": "h200-sxm", "engine": "model", "runtime": "torch", "families": ("atp",)}
    search = search_of("bert-small", tokens=64, batch=1, **options)
    search.prepare()
    for share in (0.5, 0.75):
        places, total_s = _even_places(search, "atp:.*", share), partial(estimated_seconds, search)
        roles = sorted({name.rpartition(".")[2] for name in places})
        slowly = min(
            total_s({name: own[name.rpartition(".")[2] in sparse] for name, own in places.items()})
            for count in range(len(roles) + 1)
            for sparse in itertools.combinations(roles, count)
        )
        found_s = total_s(even_choice(search, "atp:.*", share))
        assert found_s <= slowly * (1.0 + 1e-9)
        assert found_s < 0.99 * total_s(own_choice(search, "atp:.*", share))
