"""Times and waits of the blocks of planned launches, against slow twins and the simulator."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.agreement import drawn
from prunecast.choice import fastest_plan
from prunecast.hardware import load_gpu
from prunecast.launch import launch_context
from prunecast.models import block_times as module
from prunecast.models import waves
from prunecast.models.block_times import (
    SHARED_STEPS,
    _overlap,
    _sampled,
    block_times,
    first_stages_share,
    in_step_by_rows,
    ring_steps,
    stores_together,
)
from prunecast.models.chip import last_reads
from prunecast.models.rates import sm_level_cycles
from prunecast.models.roofline import estimate, look_up
from prunecast.models.terms import OF_STORES
from prunecast.models.traffic import PROBES
from prunecast.models.waves import (
    first_burst_cycles,
    first_waits,
    last_of_slices,
    place_blocks,
    place_units,
    slots_apart,
    unit_costs,
)
from prunecast.patterns import TileMap
from prunecast.plan.kernel_plan import WorkList
from prunecast.workload.engines import simulate
from tests.laws import ANEW, HARDWARE, draw_of

T4 = load_gpu("t4")


def test_an_owner_reads_nothing_while_it_waits_for_partial_sums():
    case = look_up(launch_context(drawn("t4", "stspmm", 21001).plan(), load_gpu("t4")))
    assert int(case.plan.work.parts.max()) > 1
    units = unit_costs(case, block_times(case))
    placement = place_blocks(case, units)
    owners = case.plan.work.owner == 1
    assert np.all(placement.unit_wait[owners] > 0.0)
    assert not placement.unit_wait[~owners].any()
    # All k-slices are equally long, so that owners have read their rows when the others end
    reads = last_reads(placement, units.quiet)
    assert reads.max() - reads.min() < 0.2 * reads.max()
    assert placement.sm_finish.max() - reads.max() > case.gpu.signal_latency_cycles + units.quiet.min()


@pytest.mark.parametrize("seed", [9006, 9014, 9022])
def test_owners_end_after_the_slices_that_shared_sms_delay(seed):
    # Against a slow twin: every owner one after another, with the slices of its tile by their numbers
    case = look_up(launch_context(drawn("gtx-1080-ti", "stspmm", seed).plan(), load_gpu("gtx-1080-ti")))
    assert case.context.crowd > 1
    times = block_times(case)
    units, work = unit_costs(case, times), case.plan.work
    before = place_units(case.context, units.alone, units.demand, slots_apart(case))
    after = place_blocks(case, units)
    slower = np.maximum(before.unit_end / units.alone, 1.0)
    kind = case.amounts.kinds.of_item
    ends, block_of = {}, np.repeat(np.arange(case.plan.blocks), np.diff(work.block_start))
    for block in range(case.plan.blocks):
        now = slower[block] * units.lists.first_wait[block]
        for i in range(work.block_start[block], work.block_start[block + 1]):
            if work.group[i] >= 0 and work.owner[i]:
                break
            is_first = i == work.block_start[block]
            now += slower[block] * (times.first if is_first else times.later)[kind[i]]
            ends[i] = now
    owners = [i for i in range(work.group.size) if work.group[i] >= 0 and work.owner[i]]
    assert owners
    for owner in owners:
        slices = [end for i, end in ends.items() if work.group[i] == work.group[owner]]
        least = max(slices) + case.gpu.signal_latency_cycles + times.after_parts[kind[owner]]
        assert after.sm_finish[after.sm[block_of[owner]]] >= least * (1 - 1e-12)
    assert np.all(after.sm_finish >= before.sm_finish)


def _probes(columns):
    """The number of columns and those at `PROBES` places, by which tiles count as equal."""
    return len(columns), [columns[len(columns) * place // PROBES] for place in range(PROBES)]


@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_blocks_in_step_are_counted_pair_by_pair(data):
    kept = [data.draw(st.sets(st.integers(0, 15), min_size=1)) for _ in range(data.draw(st.integers(1, 4)))]
    columns = [np.array(sorted(4 * k + j for k in own for j in range(4))) for own in kept]
    tiles = TileMap(
        m=64 * len(kept),
        k=64,
        row_start=64 * np.arange(len(kept) + 1),
        row_index=np.arange(64 * len(kept)),
        column_start=np.concatenate(([0], np.cumsum([own.size for own in columns]))),
        column_index=np.concatenate(columns),
        pattern="tile-wise:64",
    )
    case = look_up(launch_context(fastest_plan("tile-wise", tiles, 128, "fp16", T4), T4))
    plan = case.plan
    own = [plan.tiles.column_index[a:b].tolist() for a, b in pairwise(plan.tiles.column_start)]
    runs = sum(1 + sum(b != a + 1 for a, b in pairwise(each)) for each in own)
    exponent = SHARED_STEPS / 2.0 * max(plan.shape.block_k * runs / sum(map(len, own)), 1.0)
    rows = len(set().union(*own))
    total = 0.0
    for one in plan.work.tile:
        for other in plan.work.tile:
            share = len(own[one]) * len(own[other]) / rows**2
            total += 1.0 if _probes(own[one]) == _probes(own[other]) else share**exponent
    found = in_step_by_rows(case, np.ones(plan.item_count, bool))
    assert found == pytest.approx(total / plan.item_count)


@pytest.mark.parametrize(
    ("gpu", "kernel", "seed"),
    [("gtx-1080-ti", "tile-wise", 17024), ("v100-sxm2-16gb", "block-sparse", 16017), ("t4", "dense", 17020)],
)
def test_blocks_whose_k_steps_differ_by_more_than_the_stores_last_do_not_store_together(gpu, kernel, seed):
    # Against a slow twin: the mean over all other blocks, which all start at once, in eighths. SMs with one
    # block less than others store earlier by all k-steps of a block
    case = look_up(launch_context(drawn(gpu, kernel, seed).plan(), load_gpu(gpu)))
    plan, crowd = case.plan, case.context.crowd
    assert case.blocks_in_flight == plan.blocks == plan.item_count
    c_bytes = sum(plan.tiles.rows_per_tile[tile] for tile in plan.work.tile) * min(plan.n, plan.shape.block_n)
    c_bytes *= {"fp16": 2, "fp32": 4}[plan.dtype]
    window = c_bytes / case.gpu.l2_store_bytes_per_s * case.gpu.max_clock_hz
    step = crowd * max(float(c) for c in sm_level_cycles(case.amounts.step, case.rates).values())
    steps = [-(-columns // 16) * 16 / plan.shape.block_k for columns in plan.multiplied_columns.tolist()]
    found = stores_together(case)[case.amounts.kinds.of_item]
    sms = np.bincount(np.arange(plan.blocks) % case.gpu.sm_count)
    for own, together in zip(steps, found, strict=True):
        overlaps = [max(1.0 - abs(own - other) * step / window, 0.0) for other in steps]
        of_sms = [max(1.0 - (crowd - blocks) * own * step / crowd / window, 0.0) for blocks in sms]
        assert together == pytest.approx(np.mean(overlaps) * np.mean(of_sms), abs=0.5 / 8 + 1e-9)
        assert (8 * together).is_integer()


@given(
    own=st.lists(st.floats(0.0, 100.0), min_size=1),
    ends=st.lists(st.integers(0, 100)),
    reach=st.floats(0.1, 200.0) | st.just(np.inf),
)
def test_overlaps_are_those_of_pairs(own, ends, reach):
    pairs = [[max(1.0 - abs(x - y) / reach, 0.0) for y in ends] for x in own]
    found = _overlap(np.array(own), np.array(ends, np.float64), reach)
    assert found == pytest.approx([sum(one) for one in pairs], abs=1e-9)


@pytest.mark.parametrize(("sms", "share"), [(28, 0.75), (24, 1.0), (48, 1.0), (60, 1.0), (40, 0.25)])
def test_sms_with_more_blocks_store_after_the_others(sms, share):
    # 48 blocks of eight k-steps. Two blocks on 20 of 28 SMs store later by 8 * 1,100 / 2 cycles than one on 8
    # SMs, and L2 needs 3,900 cycles for all stores: 20 / 28 of the SMs store together, in eighths
    gpu = replace(load_gpu("gtx-1080-ti"), sm_count=sms)
    case = look_up(launch_context(drawn("gtx-1080-ti", "dense", 31003).plan(), gpu))
    assert case.plan.blocks == 48
    np.testing.assert_array_equal(stores_together(case), share)


@pytest.mark.parametrize("seed", [40011, 62015])
def test_owners_of_split_tiles_do_not_store_together_with_the_other_k_slices(seed):
    # Equal k-slices of tiles in two or three parts: L2 serves the partial sums of all, then C of the owners
    gpu = load_gpu("rtx-4090")
    plan = drawn(gpu.name, "2:4", seed).plan()
    case = look_up(launch_context(plan, gpu))
    parts, owners = int(plan.work.parts[0]), int(plan.work.owner.sum())
    assert case.traits.waits_for_parts
    assert parts > 1
    assert parts * owners == plan.blocks == plan.item_count
    found = stores_together(case)[case.amounts.kinds.of_item]
    is_owner = plan.work.owner == 1
    assert found[is_owner] == pytest.approx(1.0 / parts, abs=0.5 / 8)
    # SMs with one block more store their partial sums after those of the others
    crowd = case.context.crowd
    fuller = min(plan.blocks / gpu.sm_count - (crowd - 1), 1.0) if crowd > 1 else 1.0
    assert found[~is_owner] == pytest.approx((1.0 - 1.0 / parts) * fuller, abs=0.5 / 8)
    assert estimate(plan, gpu).cycles == pytest.approx(simulate(plan, gpu).cycles, rel=0.05)


@pytest.mark.parametrize("seed", [1040204, 1040348])
def test_lists_on_sms_with_several_blocks_store_less_together_if_other_sms_have_fewer(seed):
    # 240 lists on 160 SMs, of which the fullest have two. With the stores of all SMs at once, they were 14 %
    # slower than on 80 SMs
    layer = draw_of(seed, "model")
    plan, gpu = layer.plan(), HARDWARE["more SMs"](layer).gpu
    found = stores_together(look_up(launch_context(plan, gpu)))
    np.testing.assert_array_equal(found, 240 / 160 / 2)
    np.testing.assert_array_equal(stores_together(look_up(launch_context(plan, layer.gpu))), 1.0)
    assert estimate(plan, gpu).seconds == pytest.approx(simulate(plan, gpu).seconds, rel=0.12)


@pytest.mark.parametrize("seed", [994016, 1000532])
def test_a_last_k_step_of_few_columns_separates_stores_by_its_columns(seed):
    # Tiles keep 23 to 45 of 64 or 128 columns. If those with more than 32 store a whole k-step after the
    # others, the launch is 6 to 7 % faster than simulated
    layer = draw_of(seed, "model")
    case = look_up(launch_context(layer.plan(), layer.gpu))
    assert case.plan.shape.block_k == 32
    assert sorted(set(case.plan.steps_per_item)) == [1, 2]
    assert stores_together(case).min() >= 0.75
    simulated = simulate(case.plan, layer.gpu).cycles
    assert estimate(case.plan, layer.gpu).cycles == pytest.approx(simulated, rel=0.02)


def test_a_few_long_blocks_store_alone_beside_many_short_ones() -> None:
    # 8 of 128 blocks have four k-steps, the others none: estimates of these were 8 % slower than simulations
    layer = draw_of(881068, "model")._replace(sparsity=0.95)
    case = look_up(launch_context(layer.plan(), layer.gpu))
    found, steps = stores_together(case), case.amounts.step_count
    assert found[np.argmax(steps)] < 0.2
    assert found[np.argmin(steps)] > 0.8
    assert estimate(case.plan, layer.gpu).cycles == pytest.approx(
        simulate(case.plan, layer.gpu).cycles, rel=0.03
    )


@pytest.mark.parametrize(("sms", "shared"), [(80, True), (92, False), (46, False), (91, True)])
def test_slower_sms_find_data_in_l2_only_if_others_have_fewer_blocks(sms, shared):
    # 92 blocks of a dense product in 23 tiles of four token ranges: an SM has one or two
    gpu = replace(load_gpu("v100-sxm2-16gb"), sm_count=sms)
    plan = drawn("v100-sxm2-16gb", "dense", 17003).plan()
    case = look_up(launch_context(plan, gpu))
    assert plan.blocks == 92
    crowd = case.context.crowd
    slow = crowd * (92 - (crowd - 1) * sms) / 92
    expected = (1.0 - slow**3) * (1.0 - slow**22) if shared else 0.0
    assert _sampled(case).led_share == pytest.approx(expected)
    demand = block_times(case).demand.max()
    assert bool(demand < block_times_without_leaders(case).demand.max()) is shared


def block_times_without_leaders(case):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "_led_share", lambda case: 0.0)
        return block_times(case)


@pytest.mark.parametrize(
    ("seed", "kernel", "least", "most"),
    [(17011, "stspmm", 0.5, 0.9), (17020, "dense", 0.0, 0.0), (17018, "tile-wise", 0.0, 0.1)],
)
def test_weights_are_new_unless_an_earlier_wave_has_read_them(seed, kernel, least, most):
    case = look_up(launch_context(drawn("t4", kernel, seed).plan(), T4))
    work, waves_of = case.plan.work, case.traffic.waves.of_item.tolist()
    read_in, new, later = {}, 0, 0
    for tile, start, wave in sorted(
        zip(work.tile, work.k_start, waves_of, strict=True), key=lambda one: one[2]
    ):
        new += wave > 0 and read_in.setdefault((tile, start), wave) == wave
        later += wave > 0
        read_in.setdefault((tile, start), wave)
    found = module._new_weights_share(case)
    assert found == pytest.approx(new / max(later, 1))
    assert least <= found <= most


def test_l2_idles_while_blocks_of_all_sms_change():
    # 3,392 blocks in descending order of k-steps: L2 is busy for 86 % of the time that SMs need, but all SMs
    # read together. Blocks in random order read at different times, and L2 delays none
    case = drawn("t4", "tile-wise", 40025)._replace(n=256)
    plan = case.plan()
    order, work = np.random.default_rng(0).permutation(plan.item_count), plan.work._asdict()
    starts = work.pop("block_start")
    shuffled = WorkList(**{name: column[order] for name, column in work.items()}, block_start=starts)
    together, apart = (estimate(one, T4) for one in (plan, replace(plan, work=shuffled)))
    assert together.bound_cycles["l2"] < 0.9 * apart.cycles
    assert together.cycles == pytest.approx(simulate(plan, T4).cycles, rel=0.05)
    assert apart.cycles == pytest.approx(simulate(replace(plan, work=shuffled), T4).cycles, rel=0.02)


@pytest.mark.parametrize("seed", [994339, 999199])
def test_l2_stores_c_while_blocks_change(seed):
    # Equal blocks read for a fifth of their time. With all stores in that time, L2 made them 6 % slower than
    # unequal blocks with more k-steps
    layer = draw_of(seed, "model")
    layer = layer._replace(sparsity=layer.sparsity + 0.1)
    found, simulated = (run(layer.plan(), layer.gpu).seconds for run in (estimate, simulate))
    assert found == pytest.approx(simulated, rel=0.01)


@pytest.mark.parametrize(
    ("gpu", "kernel", "seed", "steady"),
    [
        ("rtx-4090", "tile-wise", 51007, True),
        ("rtx-4090", "2:4", 31012, False),
        ("h100-sxm", "tile-wise", 51003, False),
    ],
)
def test_blocks_that_copy_asynchronously_end_in_turn_if_their_items_are_long(gpu, kernel, seed, steady):
    """The blocks of an SM end a k-step apart, SMs by the time in which L2 serves their first stages."""
    case = look_up(launch_context(drawn(gpu, kernel, seed).plan(), load_gpu(gpu)))
    ring = ring_steps(case.context.programs, case.plan.resources.stages)
    long = case.plan.steps_per_item.mean() > 2 * ring
    assert steady == (long and case.context.crowd > 1 and not case.traits.runs_ahead)
    assert any(slots_apart(case)) == steady
    if steady:
        simulated = simulate(case.plan, load_gpu(gpu)).cycles
        assert estimate(case.plan, load_gpu(gpu)).cycles == pytest.approx(simulated, rel=0.05)


@pytest.mark.parametrize(
    ("gpu_name", "kernel", "seed", "blocks_of_sms"),
    [
        ("gtx-1080-ti", "tile-wise", 44083, {4: 4, 5: 24}),
        ("gtx-1080-ti", "dense", 44068, {4: 12, 5: 16}),
        ("v100-sxm2-16gb", "dense", 44002, {4: 64, 5: 16}),
    ],
)
def test_the_first_block_of_each_sm_ends_before_any_second_one(gpu_name, kernel, seed, blocks_of_sms):
    # Of the equal blocks that follow the last whole wave, each SM gets one before others get two: L2 stores C
    # of the first blocks of all SMs before that of second ones. Then 16 SMs of 28 get a second one
    gpu = load_gpu(gpu_name)
    case = look_up(launch_context(drawn(gpu_name, kernel, seed).plan(), gpu))
    assert np.ptp(case.plan.steps_per_item) == 0
    apart, sms = slots_apart(case), gpu.sm_count
    assert apart.first < apart.later
    assert sms * apart.later > apart.on_sm > 0.0
    found = np.bincount(place_blocks(case, unit_costs(case, block_times(case))).sm, minlength=sms)
    assert dict(zip(*np.unique(found, return_counts=True), strict=True)) == blocks_of_sms
    assert estimate(case.plan, gpu).cycles == pytest.approx(simulate(case.plan, gpu).cycles, rel=0.05)


SLICES = (962759, 985007, 985547, 42000563)
"""Draws of STSpMM on an RTX 4090 whose tiles of 64 x 64 are split."""


def _slices(seed: int):
    layer = draw_of(seed, "simulator")
    plan = fastest_plan(
        layer.kernel,
        layer.kept(),
        layer.n,
        layer.dtype,
        layer.gpu,
        allowed=lambda config: (config.shape.block_m, config.shape.block_n) == (64, 64),
    )
    return plan, layer.gpu


@pytest.mark.parametrize("seed", SLICES)
def test_an_owner_waits_for_the_last_of_its_k_slices(seed):
    # Against a slow twin: waits of blocks that are served in turn, in random order
    plan, gpu = _slices(seed)
    case = look_up(launch_context(plan, gpu))
    assert (plan.work.parts > 1).any()
    rng = np.random.default_rng(seed)
    for block, found in enumerate(last_of_slices(case)):
        parts = int(plan.work.parts[plan.work.block_start[block]])
        latest = rng.random((20_000, parts)).max(axis=1).mean()
        assert found == pytest.approx(latest / 0.5, rel=0.01)
    burst, waits = first_burst_cycles(case), unit_costs(case, block_times(case)).lists.first_wait
    np.testing.assert_allclose(waits, np.maximum(burst * last_of_slices(case), first_waits(case, burst)))


@pytest.mark.parametrize("seed", SLICES)
def test_k_slices_of_few_k_steps_wait_for_all_their_data(monkeypatch, seed):
    plan, gpu = _slices(seed)
    assert plan.steps_per_item.max() <= 6
    simulated = simulate(plan, gpu).cycles
    error = estimate(plan, gpu).cycles / simulated - 1.0
    monkeypatch.setattr(waves, "last_of_slices", lambda case: np.ones(case.plan.blocks))
    with_mean_wait = estimate(plan, gpu).cycles / simulated - 1.0
    assert with_mean_wait < -0.04
    assert abs(error) < min(0.08, -0.7 * with_mean_wait)


def test_blocks_request_data_for_their_stages_and_indices_for_later_k_steps():
    plan, gpu = _slices(962759)
    case = look_up(launch_context(plan, gpu))
    assert ring_steps(case.context.programs, plan.resources.stages) == 4
    assert plan.resources.stages == 3
    columns = plan.work.k_stop - plan.work.k_start
    requested = np.minimum(columns, 3 * plan.shape.block_k).sum() / columns.sum()
    assert requested < np.minimum(columns, 4 * plan.shape.block_k).sum() / columns.sum()
    assert first_stages_share(case) == pytest.approx(requested)


@pytest.mark.parametrize("seed", SLICES)
def test_items_of_lists_store_together_with_items_that_end_with_them(seed):
    # Against a slow twin; slices and owners are apart, and an item follows the others of its list
    plan, gpu = _slices(seed)
    case = look_up(launch_context(plan, gpu))
    if plan.item_count == plan.blocks:
        pytest.skip("blocks have one item each")
    work, crowd = plan.work, case.context.crowd
    stored = float(case.amounts.total[OF_STORES].sum())
    window = stored * plan.blocks / plan.item_count / gpu.l2_store_bytes_per_s * gpu.max_clock_hz
    step = crowd * max(float(c) for c in sm_level_cycles(case.amounts.step, case.rates).values())
    ends, last = [], np.diff(work.block_start)
    steps = -(-plan.multiplied_columns // 16) * 16 / plan.shape.block_k
    for first, count in zip(work.block_start, last, strict=False):
        ends += [float(steps[first : first + j + 1].sum()) for j in range(count)]
    owners = (work.owner == 1) & (work.parts > 1)
    found = stores_together(case)
    for kind, item in enumerate(case.amounts.kinds.example):
        own = [max(1.0 - abs(ends[item] - end) * step / window, 0.0) for end in ends]
        share = sum(one for one, owner in zip(own, owners, strict=True) if owner == owners[item])
        share = min(share / plan.blocks, 1.0) if crowd == 1 else 1.0
        assert found[kind] == pytest.approx(share, abs=0.5 / 8 + 1e-9)


@pytest.mark.parametrize("seed", [960311, 962759, 963047, 961112])
def test_l2_that_data_wait_for_chooses_no_slower_k_slices(seed):
    # Stores of all blocks were taken to coincide, so that more slices looked better with a faster L2
    layer = draw_of(seed, "simulator")
    faster = ANEW["faster L2"](layer)
    before, after = (simulate(one.plan(), one.gpu).seconds for one in (layer, faster))
    assert after <= 1.01 * before
