"""Changes of single tiles: the twin is the whole model, on a plan built anew with the lengths of now."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.kernels import PLANNERS
from prunecast.kernels.plan import PlanDoesNotFit, Schedule
from prunecast.kernels.work.tile_rows import cut_rows
from prunecast.models import Incremental, estimate
from prunecast.patterns import prune_to_cost
from prunecast.patterns.tile_map import TileMap
from tests.models.hand_plans import hand_plan
from tests.toy_gpu import toy_gpu

K, HEIGHT = 1024, 64
H200 = load_gpu("h200-sxm")
FEW_SMS = replace(H200, sm_count=8, dram_bytes_per_s=1e11)
SMALL_L2 = replace(FEW_SMS, l2_usable_bytes=1_500_000)
GPUS = {
    "h200": H200,
    "few SMs, a small L2": SMALL_L2,
    "a100": load_gpu("a100-sxm4-80gb"),
    "t4": load_gpu("t4"),
}


def tiles_of(kept, rows, k=K, height=HEIGHT):
    """Tiles whose columns follow one another round and round the first `rows`: together they keep all."""
    ends = np.cumsum(kept)
    columns = [np.sort(np.arange(end - count, end) % rows) for end, count in zip(ends, kept, strict=True)]
    return TileMap(
        m=height * len(kept),
        k=k,
        row_start=np.arange(len(kept) + 1) * height,
        row_index=np.arange(height * len(kept)),
        column_start=np.concatenate(([0], ends)),
        column_index=np.concatenate(columns),
        pattern=f"tile-wise:{height}",
    )


def cut_of(place, kept_before, kept, unit):
    """The nearest multiple of `unit`, the upper one of two, not beyond the end."""
    if place in (0, kept_before):
        return kept if place else 0
    return min(int(np.floor(place * kept / kept_before / unit + 0.5)) * unit, kept)


def twin(plan, kept, rows):
    """The same items in the same blocks, with other lengths."""
    work, before = plan.work, plan.tiles.kept_per_tile
    unit = plan.shape.block_k
    new = tiles_of(kept, max(rows, *kept), plan.k, plan.m // len(kept))
    strips = before.size // len(kept)
    kept = np.repeat(kept, strips).tolist()
    start, stop = [], []
    for tile, first, last in zip(work.tile, work.k_start, work.k_stop, strict=True):
        whole = last == before[tile]
        start.append(cut_of(int(first), int(before[tile]), kept[tile], unit))
        stop.append(kept[tile] if whole else cut_of(int(last), int(before[tile]), kept[tile], unit))
    return replace(
        plan,
        tiles=cut_rows(new, new.rows_per_tile[0] // strips),
        work=work._replace(k_start=np.array(start), k_stop=np.array(stop)),
    )


@st.composite
def changed_plans(draw):
    """A plan of a planner, and lengths for its tiles, one after another."""
    gpu = GPUS[draw(st.sampled_from(sorted(GPUS)))]
    kernel = draw(st.sampled_from(["tile-wise", "stspmm"]))
    count = draw(st.integers(2, 12))
    # the last tile stays, and reads all rows of B that the plan reads: their number is not asked
    rows = draw(st.integers(1, K))
    kept = [*draw(st.lists(st.integers(0, rows), min_size=count, max_size=count)), rows]
    tiles = tiles_of(kept, rows)
    plan = PLANNERS[kernel](tiles, draw(st.integers(1, 3000)), "fp16", gpu)
    change = st.tuples(st.integers(0, count - 1), st.integers(0, K))
    return gpu, tiles, plan, draw(st.lists(change, min_size=1, max_size=6))


@settings(deadline=None, max_examples=120)
@given(changed_plans(), st.sampled_from(["burst", "sustained"]), st.sampled_from(["graph", "stream"]))
def test_changes_say_what_the_whole_model_says(case, state, launch):
    gpu, tiles, plan, changes = case
    kept = tiles.kept_per_tile.tolist()
    rows = max(kept)
    found = Incremental(plan, gpu, tiles=tiles, state=state, launch=launch)
    assert found.seconds == pytest.approx(estimate(plan, gpu, state=state, launch=launch).seconds, rel=1e-12)
    for tile, count in changes:
        kept[tile] = count
        expected = estimate(twin(plan, kept, rows), gpu, state=state, launch=launch).seconds
        assert found.seconds_if(tile, count) == pytest.approx(expected, rel=1e-12)
        assert found.change(tile, count) == pytest.approx(expected, rel=1e-12)
        assert found.kept.tolist() == kept


@settings(deadline=None, max_examples=40)
@given(changed_plans())
def test_what_is_taken_back_leaves_no_trace(case):
    gpu, tiles, plan, changes = case
    kept = tiles.kept_per_tile.tolist()
    found = Incremental(plan, gpu, tiles=tiles)
    seconds = [found.seconds]
    for tile, count in changes:
        seconds.append(found.change(tile, count))
        found.seconds_of(np.zeros(len(kept), np.int32))
    for before in reversed(seconds[:-1]):
        assert found.undo() == found.seconds == before
        assert found.seconds_of(found.kept) == before
    assert found.kept.tolist() == kept
    with pytest.raises(BadInput, match="none left"):
        found.undo()


HEAVY = [4096] + [256] * 7


def split_plan(gpu):
    """A heavy tile among light ones, which STSpMM cuts."""
    plan = PLANNERS["stspmm"](tiles_of(HEAVY, 4096, 4096, 128), 256, "fp16", gpu)
    assert int(plan.work.parts.max()) > 1
    return plan


SPLIT = {
    gpu.name + str(gpu.sm_count): (gpu, split_plan(gpu)) for gpu in (H200, replace(SMALL_L2, sm_count=66))
}


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(sorted(SPLIT)), st.lists(st.tuples(st.integers(0, 7), st.integers(0, 4096)), max_size=4)
)
def test_parts_of_a_split_tile_share_its_length(name, changes):
    gpu, plan = SPLIT[name]
    found, kept = Incremental(plan, gpu), list(HEAVY)
    for tile, count in changes:
        kept[tile] = count
        found.change(tile, count)
    # as many rows of B as before can only be read by tiles that keep so many columns together
    assume(sum(kept) >= 4096)
    assert found.seconds == pytest.approx(estimate(twin(plan, kept, 4096), gpu).seconds, rel=1e-12)


def test_a_small_l2_reads_again():
    # Else the law above would not have seen the rule that reads pieces again.
    plan = PLANNERS["tile-wise"](tiles_of([K] * 12, K), 3000, "fp16", SMALL_L2)
    assert estimate(plan, SMALL_L2).seconds > 1.1 * estimate(plan, FEW_SMS).seconds


@pytest.mark.parametrize("kernel", ["dense", "csr", "balanced", "2:4"])
def test_other_kernels_start_where_the_whole_model_stands(kernel):
    from tests.models.test_with_planners import plan_of

    plan = plan_of(kernel, H200)
    assert Incremental(plan, H200).seconds == pytest.approx(estimate(plan, H200).seconds, rel=1e-12)


def test_blocks_that_draw_their_items():
    plan = replace(hand_plan([256] * 40, 64), schedule=Schedule.DYNAMIC, blocks=8)
    plan = replace(plan, work=plan.work._replace(block_start=np.array([0, 40])))
    found = Incremental(plan, toy_gpu())
    kept = [256] * 40
    for tile in range(0, 40, 3):
        kept[tile] = 6 * tile
        seconds = found.change(tile, kept[tile])
    other = hand_plan(kept, 64)
    drawn = replace(plan, tiles=other.tiles, work=other.work._replace(block_start=np.array([0, 40])))
    assert seconds == pytest.approx(estimate(drawn, toy_gpu()).seconds, rel=1e-12)


def test_one_longer_tile_decides_where_all_sms_are_busy():
    # Endless bandwidth, one item on each of four SMs: a tile twice as long adds its four steps, one at half
    # the length takes none away.
    endless = {"l2_bytes_per_s": 1e18, "l2_store_bytes_per_s": 1e18, "dram_bytes_per_s": 1e18}
    plan = hand_plan([256] * 4, 64, k=512, shared_bytes=200_000)
    found = Incremental(plan, toy_gpu(**endless))
    assert found.seconds_if(2, 512) - found.seconds == pytest.approx(4 * 256 / 1e9)
    assert found.seconds_if(2, 128) == pytest.approx(found.seconds)


def test_it_is_a_cost_for_pruning():
    rng = np.random.default_rng(0)
    importance = rng.random((8 * HEIGHT, K))
    tiles = tiles_of([K] * 8, K)
    found = Incremental(PLANNERS["tile-wise"](tiles, 4096, "fp16", H200), H200, tiles=tiles)
    budget = 0.7 * found.seconds
    mask = prune_to_cost(importance, found.seconds_of, budget, height=HEIGHT, most_costs=50)
    kept = mask[::HEIGHT].sum(axis=1)
    assert found.seconds_of(kept) <= budget
    assert 0 < kept.min() < K


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda found: found.change(3, 5), "tile: wanted 0 to 2, got 3"),
        (lambda found: found.change(-1, 5), "tile: wanted 0 to 2, got -1"),
        (lambda found: found.seconds_if(0, 129), "kept: wanted 0 to 128 columns, got 129"),
        (lambda found: found.change(0, 1.5), "must be integers, got 0 and 1.5"),
        (lambda found: found.seconds_of(np.zeros(2, np.int32)), r"wanted \(3,\) integers"),
        (lambda found: found.seconds_of(np.zeros(3)), r"wanted \(3,\) integers, got float64"),
        (lambda found: found.seconds_of(np.full(3, -1)), "wanted 0 to 128 columns, got -1 to -1"),
    ],
)
def test_bad_changes_are_refused_and_change_nothing(call, text):
    found = Incremental(hand_plan([128, 64, 0], 64), toy_gpu())
    before = found.seconds
    with pytest.raises(BadInput, match=text):
        call(found)
    assert found.seconds == before
    assert found.kept.tolist() == [128, 64, 0]


def test_tiles_that_the_planner_cuts_change_whole():
    tiles = tiles_of([512] * 3, K, height=512)
    plan = PLANNERS["tile-wise"](tiles, 64, "fp16", H200)
    assert plan.tiles.tile_count > 3
    found = Incremental(plan, H200, tiles=tiles)
    kept = [512, 1000, 512]
    expected = estimate(twin(plan, kept, K), H200).seconds
    assert found.change(1, 1000) == pytest.approx(expected, rel=1e-12)
    assert found.kept.tolist() == kept


def test_another_map_than_the_planned_one_is_refused():
    tiles = tiles_of([128] * 3, K)
    plan = PLANNERS["tile-wise"](tiles, 64, "fp16", H200)
    for other in (tiles_of([128] * 4, K), tiles_of([128] * 2, K), tiles_of([128, 64, 128], K)):
        with pytest.raises(BadInput, match="tiles: wanted the map that was planned"):
            Incremental(plan, H200, tiles=other)


def test_bad_names_and_plans_are_refused():
    plan = hand_plan([128], 64)
    with pytest.raises(BadInput, match="state must be one of burst, sustained, got 'hot'"):
        Incremental(plan, toy_gpu(), state="hot")
    with pytest.raises(BadInput, match="launch must be one of graph, stream, got 'now'"):
        Incremental(plan, toy_gpu(), launch="now")
    with pytest.raises(PlanDoesNotFit):
        Incremental(hand_plan([128], 64, shared_bytes=10_000_000), toy_gpu())
