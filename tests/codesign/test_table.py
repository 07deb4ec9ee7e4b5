"""A table of predictions as text, as a short name, and as a DataFrame."""

from dataclasses import replace

import numpy as np
import pytest

import prunecast
from prunecast.hardware import MemoryPass
from prunecast.workload.layers import Skipped


@pytest.fixture(scope="module")
def table():
    weights = np.random.default_rng(0).standard_normal((128, 128)).astype(np.float16)
    named = {"a": weights, "long\x1b[31m": weights}
    return prunecast.predict(named, gpu="h200-sxm", tokens=64, engine="model", crossovers=False)


def test_print_shows_a_table(table):
    lines = str(table).splitlines()
    assert len(lines) == len(table) + 2
    assert lines[0].split()[:5] == ["layer", "M", "K", "N", "kernel"]
    assert lines[1].split()[:5] == ["a", "128", "128", "64", "dense"]
    assert "\x1b" not in str(table)
    assert max(map(len, lines)) < 160
    assert repr(table).startswith("<PredictionTable of 2 layers on h200-sxm, ")


def test_a_frame_has_the_rows(table):
    pytest.importorskip("pandas")
    assert list(table.to_dataframe()["seconds"]) == [row.seconds for row in table]


def test_a_sweep_from_python(tmp_path):
    options = {"shapes": [(64, 64, 64)], "patterns": ["tile-wise:64"], "sparsities": [0.5], "workers": 1}
    rows = prunecast.sweep(tmp_path / "s.sqlite", **options)
    assert rows
    assert prunecast.sweep(tmp_path / "s.sqlite", **options) == rows


def test_a_report_from_python(tmp_path):
    weights = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float16)
    found = prunecast.write_report(
        {"a": weights}, tmp_path / "r.html", gpu="h200-sxm", tokens=64, engine="model", crossovers=False
    )
    assert "</html>" in (tmp_path / "r.html").read_text()
    assert len(list(found.layers())) == 1


def test_sums_count_each_layer_as_often_as_a_pass_runs_it():
    rng = np.random.default_rng(0)
    named = {"a": rng.standard_normal((256, 512)), "b": rng.standard_normal((128, 128))}
    named = {name: weights.astype(np.float16) for name, weights in named.items()}
    options = {"gpu": "h200-sxm", "tokens": 8192, "engine": "model", "crossovers": False}
    table = prunecast.predict(named, kernels=("dense", "stspmm", "2:4"), **options)
    several = replace(table, runs={"b": 3}, skipped=(Skipped(layer="c", reason="no", weights=256 * 512),))
    rows = {(row.layer, row.kernel): row for row in table}
    best = {name: min((r for r in table if r.layer == name), key=lambda r: r.seconds) for name in named}
    dense_s = rows["a", "dense"].seconds + 3 * rows["b", "dense"].seconds
    best_s = best["a"].seconds + 3 * best["b"].seconds
    assert several.dense_seconds == pytest.approx(dense_s)
    assert several.best_seconds == pytest.approx(best_s)
    assert several.speedup == pytest.approx(dense_s / best_s)
    assert several.fastest_kernels() == [best["a"].kernel, best["b"].kernel]
    sizes = {"a": 256 * 512, "b": 3 * 128 * 128}
    removed = sum(size * best[name].sparsity for name, size in sizes.items())
    assert several.removed == pytest.approx(removed / sum(sizes.values()))
    assert several.coverage == pytest.approx((256 * 512 + 128 * 128) / (2 * 256 * 512 + 128 * 128))
    assert table.coverage == 1.0
    assert prunecast.predict(named, kernels="dense", **options).coverage == 1.0
    assert [skipped.layer for skipped in several.missing] == ["c"]
    only_b = replace(several, predictions=tuple(row for row in table if row.layer == "b"))
    once = replace(only_b, runs={})
    assert only_b.transpose_seconds == pytest.approx(3 * once.transpose_seconds)
    if best["b"].kernel != "dense":
        own = [MemoryPass(copied_bytes=2 * 128 * 8192 * 2, start_s=table[0].gpu.graph_launch_s)] * 2
        assert once.transpose_seconds == pytest.approx(sum(each.seconds(table[0].gpu) for each in own))
