"""Rows of C without a tile are written by a second launch, and both engines know."""

import sys
from dataclasses import replace

import numpy as np
import pytest

from prunecast.choice import fastest_plan
from prunecast.codesign import explain
from prunecast.hardware import load_gpu
from prunecast.launch import Conditions, launch_context
from prunecast.launch.context import zero_row_count
from prunecast.launch.floor import launch_floor_s, zero_row_seconds
from prunecast.models import estimate
from prunecast.patterns import TileMap, parse_pattern
from prunecast.simulator import simulate

H200 = load_gpu("h200-sxm")


def plan_of(pattern, sparsity, n, *, m=512, kernel="stspmm"):
    """Of weights whose rows differ, so that whole rows die where the pattern lets them."""
    weights = np.random.default_rng(0).random((m, 512)) * np.logspace(-0.1, 0, m)[:, None]
    kept = parse_pattern(pattern)
    mask = kept.prune({"a": weights}, sparsity)["a"]
    return fastest_plan(kernel, kept.map(mask), n=n, dtype="fp16", gpu=H200)


def twin_seconds(plan):
    """Row by row: an SM takes the next row when it is done; or DRAM or the start of blocks sets the pace."""
    sms = [0.0] * H200.sm_count
    dram_s = started_s = 0.0
    edges_s = (H200.block_start_cycles + H200.store_latency_cycles) / H200.max_clock_hz
    for row in range(plan.m):
        if row in plan.tiles.row_index:
            continue
        stored = 0
        while stored < 2 * plan.n:
            stored += 16
        sm = sms.index(min(sms))
        sms[sm] += stored / H200.store_bytes_per_clk_per_sm / H200.max_clock_hz
        dram_s += stored / H200.dram_bytes_per_s
        started_s += 0.61e-9
    if not max(sms):
        return 0.0
    return max(edges_s + max(*sms, dram_s), started_s)


@pytest.mark.parametrize("pattern", ["tile-wise-2d:128", "atp-2d:64", "dense-block:8", "tile-wise:128"])
@pytest.mark.parametrize(("m", "n"), [(512, 8192), (512, 13), (128, 65536)])
def test_seconds_are_those_of_the_twin(pattern, m, n):
    plan = plan_of(pattern, 0.75, n, m=m)
    assert zero_row_seconds(plan, H200) == pytest.approx(twin_seconds(plan), rel=1e-9)
    assert (zero_row_count(plan) > 0) == ("-2d" in pattern)


@pytest.mark.parametrize("missing", [1, H200.sm_count, H200.sm_count + 1])
def test_a_long_row_is_stored_by_one_sm(missing):
    """Up to a row for each SM they need the time of one row, or DRAM sets the pace; one more needs two."""
    rows, n = 128, 65_536
    tiles = TileMap(
        m=rows + missing,
        k=64,
        row_start=np.array([0, rows]),
        row_index=np.arange(rows),
        column_start=np.array([0, 16]),
        column_index=np.arange(16),
        pattern="tile-wise:128",
    )
    gpu = replace(H200, dram_bytes_per_s=1e15)
    plan = fastest_plan("stspmm", tiles, n=n, dtype="fp16", gpu=H200)
    cycles = -(-missing // H200.sm_count) * 2 * n / H200.store_bytes_per_clk_per_sm
    edges = H200.block_start_cycles + H200.store_latency_cycles
    assert zero_row_seconds(plan, gpu) == pytest.approx((edges + cycles) / H200.max_clock_hz)
    assert zero_row_seconds(plan, H200) == pytest.approx(twin_seconds(plan))


def test_short_rows_take_a_cycle_each():
    plan = plan_of("tile-wise-2d:128", 0.75, 64, m=5120)
    assert zero_row_seconds(plan, H200) == pytest.approx(zero_row_count(plan) * 0.61e-9)
    assert zero_row_seconds(plan, H200) == pytest.approx(twin_seconds(plan), rel=1e-9)


@pytest.mark.parametrize("kernel", ["stspmm", "tile-wise"])
@pytest.mark.parametrize("engine", [simulate, estimate])
@pytest.mark.parametrize("launch", ["graph", "stream"])
def test_both_engines_count_two_launches_and_the_zeros(engine, launch, kernel):
    plan = plan_of("tile-wise-2d:128", 0.75, 1024, kernel=kernel)
    result = engine(plan, H200, launch=launch)
    one_s = H200.graph_launch_s if launch == "graph" else H200.stream_launch_s
    assert result.launch_s == pytest.approx(2 * one_s + zero_row_seconds(plan, H200))
    assert result.seconds == pytest.approx(result.launch_s + result.cycles / result.clock_hz)


def test_a_layer_without_zero_rows_is_launched_once():
    plan = plan_of("tile-wise:128", 0.75, 4096)
    assert launch_floor_s(launch_context(plan, H200)) == H200.overlapped_launch_s
    assert launch_floor_s(launch_context(plan, H200, Conditions(launch="stream"))) == H200.stream_launch_s


@pytest.mark.parametrize(("n", "early"), [(128, True), (1024, True), (5120, False)])
def test_blocks_that_find_room_beside_the_launch_before_know_their_columns_when_it_ends(n, early):
    """5120 tokens: a block for every SM. Where four SMs are left, some blocks are early; not asked here."""
    plan = plan_of("tile-wise:128", 0.75, n)
    assert (2 * plan.blocks <= H200.sm_count) == early
    assert launch_floor_s(launch_context(plan, H200)) == H200.overlapped_launch_s
    alone = replace(plan, pdl=False)
    waited = simulate(alone, H200).cycles - simulate(plan, H200).cycles
    assert (waited > H200.block_start_cycles + H200.dram_latency_cycles) == early


def test_a_layer_of_zeros_is_written_by_one_launch():
    pattern = parse_pattern("tile-wise-2d:64")
    kept = pattern.map(np.zeros((128, 64), dtype=np.bool_))
    plan = fastest_plan("stspmm", kept, n=64, dtype="fp16", gpu=H200)
    assert plan.item_count == 0
    assert launch_floor_s(launch_context(plan, H200)) == H200.graph_launch_s + zero_row_seconds(plan, H200)


@pytest.mark.parametrize(
    ("sparsity", "missing_us", "least_us", "most_us"),
    [
        (0.75, 104.4, 4.7, 11.9),
        (0.9, 117.6, 8.8, 11.9),
    ],
)
def test_a_language_model_takes_what_was_measured(sparsity, missing_us, least_us, most_us):
    """What 24 layers took above a prediction of one launch each, less what was missing without zero rows too.

    `tile-wise-2d:128`, and `tile-wise`, `atp` and `apriori` for the rest, all on `stspmm`. Own measurement,
    H200, 2026-11-20.
    """
    added_s = 0.0
    for m, layers in ((512, 20), (2048, 4)):
        plan = plan_of("tile-wise-2d:128", sparsity, 8192, m=m)
        added_s += layers * (launch_floor_s(launch_context(plan, H200)) - H200.overlapped_launch_s)
    assert 0.97 * (missing_us - most_us) < 1e6 * added_s < 1.03 * (missing_us - least_us)


@pytest.mark.parametrize("engine", ["simulator", "model"])
def test_an_explanation_tells_the_zeros_apart(engine):
    weights = np.random.default_rng(0).standard_normal((512, 256)) * np.logspace(-1, 0, 512)[:, None]
    told = explain(
        weights.astype(np.float16),
        gpu="h200-sxm",
        tokens=1024,
        kernel="stspmm",
        pattern="tile-wise-2d:128",
        engine=engine,
    )
    facts = {s.title: {f.name: f.value for f in s.facts} for s in told.sections}
    zeros_us = 1e6 * zero_row_seconds(told.prediction.plan, H200)
    assert facts["Speed of light"]["of it, rows of zeros (second launch)"] == pytest.approx(zeros_us)
    assert "rows of zeros" in told.prediction.note
    if engine == "simulator":
        parts = facts["Where the time goes"]
        assert parts["rows of zeros (second launch)"] == pytest.approx(zeros_us)
        assert sum(parts.values()) == pytest.approx(1e6 * told.prediction.seconds)


@pytest.mark.parametrize(
    ("predict", "where"), [(simulate, "prunecast.simulator.simulate"), (estimate, estimate.__module__)]
)
def test_the_clock_of_the_tiles_is_not_that_of_the_zeros_too(predict, where, monkeypatch):
    """4096 x 4096 x 4096 at 75 %, 61 us with 5 of zeros: the tiles' clock goes with the other 56."""
    plan = plan_of("tile-wise-2d:128", 0.5, 16384, m=4096)
    clock_hz = predict(plan, H200).clock_hz
    monkeypatch.setattr(sys.modules[where], "beside_s", lambda context: 0.0)
    assert predict(plan, H200).clock_hz > 1.001 * clock_hz
