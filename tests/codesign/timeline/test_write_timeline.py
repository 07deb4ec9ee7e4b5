"""Traces, read back: JSON, named, nested, and as long as the simulator says."""

import gzip
import json
from collections import defaultdict

import numpy as np
import pytest

from prunecast.choice import fastest_plan
from prunecast.codesign.timeline.chrome_trace import write_timeline
from prunecast.codesign.timeline.slices import slices_of
from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.kernels import plan_csr, plan_dense
from prunecast.patterns import TileMap, element_map_from_mask
from prunecast.simulator import STALLS
from prunecast.simulator import simulate as simulate_without_guess
from prunecast.simulator.simulate import record
from prunecast.workload.engines import simulate
from tests.models.hand_plans import hand_plan
from tests.toy_gpu import toy_gpu

H200 = load_gpu("h200-sxm")
TOY = toy_gpu()


def tiles_of(kept, k=512, rows=128):
    """Tiles of 128 rows, tile t with the first kept[t] columns."""
    return TileMap(
        m=rows * len(kept),
        k=k,
        row_start=np.arange(len(kept) + 1) * rows,
        row_index=np.arange(rows * len(kept)),
        column_start=np.concatenate(([0], np.cumsum(kept))),
        column_index=np.concatenate([np.arange(count) for count in kept]),
        pattern="tile-wise:128",
    )


def elements():
    return element_map_from_mask(np.random.default_rng(5).random((96, 128)) < 0.2, "unstructured")


PLANS = {
    "stspmm": lambda: (fastest_plan("stspmm", tiles_of((400, 30, 129)), 700, "fp16", TOY), TOY),
    "split": lambda: (
        fastest_plan("stspmm", tiles_of((4000, 3), k=4096), 200, "fp16", H200, split="auto"),
        H200,
    ),
    "dense": lambda: (plan_dense(512, 512, 900, "fp16", TOY), TOY),
    "csr": lambda: (plan_csr(elements(), 64, "fp16", TOY), TOY),
}


@pytest.fixture(scope="module", params=PLANS)
def case(request, tmp_path_factory):
    """A plan, its GPU, and the events of the trace of all SMs and waves."""
    plan, gpu = PLANS[request.param]()
    path = tmp_path_factory.mktemp("trace") / "t.json.gz"
    write_timeline(plan, gpu, path, sms=range(gpu.sm_count), first_waves=None, most_slices=10**6)
    return plan, gpu, json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]


def slices(events):
    return [event for event in events if event["ph"] == "X"]


def cycles_by(events, category, key):
    total = defaultdict(float)
    for event in slices(events):
        if event["cat"] == category:
            total[key(event)] += event["args"]["cycles"]
    return total


def test_every_event_belongs_to_a_named_process_and_thread(case):
    *_, events = case
    names = {(e["name"], e["pid"], e["tid"]) for e in events if e["ph"] == "M"}
    assert {event["ph"] for event in events} == {"M", "X", "C"}
    for event in slices(events):
        assert ("thread_name", event["pid"], event["tid"]) in names
    for pid in {event["pid"] for event in events}:
        assert ("process_name", pid, 0) in names


def test_slices_nest_and_last_no_negative_time(case):
    *_, events = case
    tracks = defaultdict(list)
    for event in slices(events):
        start, length = round(event["ts"] * 1000), round(event["dur"] * 1000)
        assert length >= 0
        tracks[event["pid"], event["tid"]].append((start, -length, event["cat"]))
    for track in tracks.values():
        open_until = []
        for start, minus, _ in sorted(track, key=lambda entry: entry[:2]):
            while open_until and open_until[-1] <= start:
                open_until.pop()
            assert not open_until or start - minus <= open_until[-1]
            open_until.append(start - minus)


def test_counters_rise_in_time_and_stay_within_the_whole(case):
    *_, events = case
    for name in ("DRAM use, %", "tensor use, %"):
        points = [event for event in events if event["ph"] == "C" and event["name"] == name]
        times = [point["ts"] for point in points]
        assert len(times) > 1
        assert times == sorted(set(times))
        assert all(0 <= point["args"]["use"] <= 100 for point in points)


def test_slices_add_up_to_what_the_simulator_says(case):
    plan, gpu, events = case
    result = simulate(plan, gpu)
    issued = cycles_by(events, "issue", lambda event: "sub" if event["tid"] <= 128 else "warp")
    assert issued["sub"] == issued["warp"] == result.warp_instructions
    stalls = cycles_by(events, "stall", lambda event: event["name"])
    total = sum(stalls.values()) + issued["warp"]
    for name in STALLS[1:]:
        assert stalls[name] / total == pytest.approx(result.stalls[name], abs=1e-12)
    tensor = cycles_by(events, "tensor", lambda event: event["pid"] - 2)
    for sm in range(gpu.sm_count):
        mean = tensor[sm] / gpu.sub_partitions_per_sm
        assert abs(mean - result.sm_tensor_cycles[sm]) <= 0.5


def test_blocks_lie_where_the_simulator_has_them_busy(case):
    plan, gpu, events = case
    result = simulate(plan, gpu)
    blocks = [event for event in slices(events) if event["cat"] == "block"]
    assert len(blocks) == plan.blocks
    last = max(event["ts"] + event["dur"] for event in blocks)
    ends = round(result.cycles / result.clock_hz * 1e6, 3)
    assert last <= ends + 0.001
    busy = cycles_by(events, "block", lambda event: event["pid"] - 2)
    assert all(busy[sm] >= result.sm_busy_cycles[sm] for sm in range(gpu.sm_count))
    items = [event["name"] for event in slices(events) if event["cat"] == "item"]
    assert set(items) == {f"item {i}" for i in range(plan.item_count)}


def test_recording_changes_nothing_and_counters_end_at_the_sums():
    plan, gpu = PLANS["stspmm"]()
    result, recording = simulate_without_guess(plan, gpu), record(plan, gpu, sms=[1], waves=1)
    assert (recording.cycles, recording.clock_hz) == (result.cycles, result.clock_hz)
    assert recording.dram_cycles[-1] / result.cycles == pytest.approx(result.utilisation["dram"], rel=1e-9)
    assert recording.tensor_cycles[-1] / result.cycles == pytest.approx(
        result.utilisation["tensor"], rel=1e-9
    )


def test_split_items_show_their_fix_up():
    plan, gpu = PLANS["split"]()
    assert plan.work.parts.max() > 1
    names = {name for group in slices_of(record(plan, gpu, sms=range(gpu.sm_count))) for name in group.names}
    assert {"store partial", "load partials", "fix-up"} <= names


@pytest.mark.parametrize("kept", [[640] * 17, [64, 640] * 8])
def test_slices_of_one_depth_do_not_overlap_and_blocks_enclose_their_items(kept):
    plan = hand_plan(kept, 64, shared_bytes=100_000)
    groups = list(slices_of(record(plan, TOY, sms=range(TOY.sm_count))))
    assert all((group.start[1:] >= group.stop[:-1]).all() for group in groups)
    blocks = {group.track: group for group in groups if group.category == "block"}
    assert max(len(group.names) for group in blocks.values()) > 1
    assert sum(len(group.names) for group in blocks.values()) == plan.blocks
    for items in (group for group in groups if group.category == "item" and group.track in blocks):
        own = blocks[items.track]
        place = np.searchsorted(own.start, items.start, side="right") - 1
        assert (items.stop <= own.stop[place]).all()


def test_first_waves_of_chosen_sms():
    plan, gpu = PLANS["dense"]()
    for waves in (1, 2):
        groups = list(slices_of(record(plan, gpu, sms=[0, 2], waves=waves)))
        assert {group.track.sm for group in groups} == {0, 2}
        counts = [
            len(group.names) for group in groups if group.category == "item" and group.track.kind == "block"
        ]
        assert 1 <= max(counts) <= waves


def test_same_bytes_twice(tmp_path):
    plan, gpu = PLANS["stspmm"]()
    for name in ("a.json.gz", "b.json.gz"):
        write_timeline(plan, gpu, tmp_path / name)
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()


def test_the_trace_can_be_plain_json(tmp_path):
    plan, gpu = PLANS["stspmm"]()
    for name in ("a.json.gz", "a.json"):
        write_timeline(plan, gpu, tmp_path / name)
    assert gzip.decompress((tmp_path / "a.json.gz").read_bytes()) == (tmp_path / "a.json").read_bytes()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sms": [4]}, "sm must lie in 0 to 3"),
        ({"sms": []}, "sm must lie"),
        ({"first_waves": 0}, "first-waves"),
        ({"most_slices": 5}, "allowed are 5"),
    ],
)
def test_bad_windows(tmp_path, options, said):
    plan, gpu = PLANS["stspmm"]()
    with pytest.raises(BadInput, match=said):
        write_timeline(plan, gpu, tmp_path / "t.json.gz", **options)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_trace(tmp_path):
    plan, gpu = PLANS["stspmm"]()
    with pytest.raises(BadInput, match=r"\.json\.gz"):
        write_timeline(plan, gpu, tmp_path / "t.html")
