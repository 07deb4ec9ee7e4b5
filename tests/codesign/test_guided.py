"""Tiles guided by the times of the plans that run, against tile-wise pruning under the same kernel."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prunecast.codesign import predict, prune
from prunecast.codesign.search.layer_options import layer_options
from prunecast.codesign.search.option_times import OptionTimes
from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.patterns import TileSums
from prunecast.simulator import simulate
from prunecast.workload import Engine


def skewed(m, k, seed, *, tiles=0.8, columns=0.7, height=128):
    """(m, k) half-normal importance under log-normal scales of columns and of tiles of rows."""
    rng = np.random.default_rng(seed)
    by_tile = np.repeat(np.exp(tiles * rng.standard_normal(-(-m // height))), height)[:m, None]
    by_column = np.exp(columns * rng.standard_normal(k))
    return (np.abs(rng.standard_normal((m, k))) * by_column * by_tile).astype(np.float32)


def row_of(weights, pattern, kernel, **options):
    options = {"gpu": "h200-sxm", "tokens": 4096, "engine": "model", "crossovers": False} | options
    return list(predict(weights, pattern=pattern, kernels=kernel, **options))[1]


def importance_of(weights, row):
    return float((np.abs(weights) * row.plan.tiles.mask()).sum(dtype=np.float64))


@settings(deadline=None, max_examples=12)
@given(
    seed=st.integers(0, 99),
    gpu=st.sampled_from(["h200-sxm", "a100-sxm4-80gb", "v100-sxm2-16gb", "t4"]),
    kernel=st.sampled_from(["stspmm", "tile-wise"]),
    state=st.sampled_from(["burst", "sustained"]),
    sparsity=st.sampled_from([0.5, 0.75, 0.9]),
    pattern=st.sampled_from(["atp:64:guided", "atp:64x8:guided", "atp:64:shuffled:guided"]),
)
def test_never_slower_than_tile_wise_at_its_importance(seed, gpu, kernel, state, sparsity, pattern):
    weights = skewed(320, 512, seed, height=64)
    options = {"gpu": gpu, "tokens": 300 + seed, "state": state, "sparsity": sparsity}
    tile_wise = row_of(weights, "tile-wise:64", kernel, **options)
    guided = row_of(weights, pattern, kernel, **options)
    assert guided.seconds <= tile_wise.seconds
    simulated = [simulate(row.plan, load_gpu(gpu), state=state).seconds for row in (guided, tile_wise)]
    assert simulated[0] <= simulated[1]
    assert importance_of(weights, guided) >= importance_of(weights, tile_wise) * (1 - 1e-9)


@pytest.mark.parametrize(("kernel", "gain"), [("stspmm", 0.09), ("tile-wise", 0.25)])
def test_what_it_gains_where_tiles_differ_in_scale(kernel, gain):
    weights = skewed(2048, 2048, 2, tiles=0.7)
    tile_wise = row_of(weights, "tile-wise:128", kernel)
    guided = row_of(weights, "atp:128:guided", kernel)
    assert guided.seconds <= (1 - gain) * tile_wise.seconds
    assert importance_of(weights, guided) >= importance_of(weights, tile_wise) * (1 - 1e-9)


@pytest.mark.parametrize("shape", [(256, 2304, 12544), (512, 4608, 3136), (512, 2048, 4096)])
def test_plain_adaptive_tiles_keep_nearly_all_importance_at_no_more_time(shape):
    m, k, n = shape
    weights = skewed(m, k, 1, tiles=0.6, height=64)
    tile_wise = row_of(weights, "tile-wise:64", "tile-wise", tokens=n)
    adaptive = row_of(weights, "atp:64", "tile-wise", tokens=n)
    assert adaptive.seconds <= tile_wise.seconds
    assert importance_of(weights, adaptive) >= 0.97 * importance_of(weights, tile_wise)


@pytest.mark.parametrize("gpu", ["h200-sxm", "v100-sxm2-16gb"])
def test_dense_blocks_are_as_many_as_pay(gpu):
    """Eight clusters of 16 rows waste most of a tile of 64: fewer ones retain as much in less time."""
    weights = np.random.default_rng(0).standard_normal((128, 1152)).astype(np.float32)
    options = {"gpu": gpu, "tokens": 6272, "sparsity": 0.74}
    eight, guided = (
        row_of(weights, f"dense-block:{text}", "stspmm", **options) for text in ("8", "8:guided")
    )
    assert guided.seconds < 0.8 * eight.seconds
    assert importance_of(weights, guided) >= importance_of(weights, eight) * (1 - 1e-9)


@pytest.mark.parametrize("gpu", ["h200-sxm", "v100-sxm2-16gb"])
def test_dense_blocks_with_a_remainder_are_as_many_as_pay(gpu):
    """With a remainder, the importance per second decides: one cluster is two to three times as fast."""
    weights = np.random.default_rng(0).standard_normal((128, 1152)).astype(np.float32)
    options = {"gpu": gpu, "tokens": 6272, "sparsity": 0.74}
    one, eight, guided = (
        row_of(weights, f"dense-block:{text}", "two-part", **options) for text in ("1", "8", "8:guided")
    )
    assert guided.speedup_over_dense >= one.speedup_over_dense - 1e-9
    assert guided.seconds < eight.seconds


@pytest.mark.parametrize("sparsity", [0.75, 0.875])
def test_even_tiles_with_two_of_four_inside_are_faster_at_nearly_the_same_importance(sparsity):
    weights = skewed(2048, 2048, 2, tiles=0.5)
    plain, even = (
        row_of(weights, pattern, "2:4", sparsity=sparsity) for pattern in ("tvw:128", "tvw:128:even")
    )
    kept = [float((np.abs(weights) * row.plan.inner.mask()).sum()) for row in (plain, even)]
    assert even.seconds < plain.seconds
    assert kept[1] >= 0.97 * kept[0]
    assert even.sparsity == pytest.approx(sparsity, abs=0.01)


def test_each_kernel_is_guided_by_its_own_time():
    weights = skewed(1024, 1024, 4)
    rows = {kernel: row_of(weights, "atp:128:guided", kernel) for kernel in ("stspmm", "tile-wise")}
    even = {kernel: row.plan.tiles.kept_per_tile.max() for kernel, row in rows.items()}
    assert even["tile-wise"] < even["stspmm"]


def test_a_guided_pattern_has_no_crossover():
    weights = skewed(128, 256, 1, height=64)
    options = {"gpu": "t4", "tokens": 64, "engine": "model", "kernels": ("stspmm",)}
    assert predict(weights, pattern="atp:64", **options).crossovers
    assert not predict(weights, pattern="atp:64:guided", **options).crossovers


def test_a_recipe_says_whose_times_guided_it(tmp_path):
    weights = {"w": skewed(256, 512, 5, height=64)}
    recipe = prune(
        weights, pattern="atp:64:guided", sparsity=0.75, out=tmp_path / "out", gpu="t4", tokens=512
    )
    stored = json.loads((recipe.folder / "recipe.json").read_text())
    assert stored["guided_by"]["gpu"] == "t4"
    assert stored["guided_by"]["tokens"] == 512
    plain = prune(weights, pattern="atp:64", out=tmp_path / "plain")
    assert "guided_by" not in plain.document()


def test_an_unknown_gpu_writes_nothing(tmp_path):
    with pytest.raises(BadInput, match="no-such-gpu"):
        prune({"w": skewed(128, 64, 0)}, pattern="atp:64:guided", out=tmp_path / "out", gpu="no-such-gpu")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("tiles", "offered"), [(0.8, True), (0.0, False)])
def test_menus_offer_it_where_tiles_differ(tiles, offered):
    importance = skewed(512, 512, 6, tiles=tiles, height=64)
    engine = Engine(name="model", gpu=load_gpu("h200-sxm"))
    times = OptionTimes(engine=engine, dtype="fp16", typical={importance.shape: lambda: importance})
    options = layer_options(importance, TileSums.of(importance, 64), 1024, times, families=("atp", "guided"))
    assert any(option.pattern == "atp:64:guided" for option in options) == offered
