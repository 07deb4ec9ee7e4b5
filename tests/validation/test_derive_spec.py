import contextlib
import dataclasses
import json

import pytest

from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.validation import derive_spec
from prunecast.validation.derive_spec import base_for, derive, is_of_device, read_raw, spec_file
from prunecast.validation.records import read_runs
from prunecast.validation.validate import bundled_records, replay

RAW = {
    "latency": {
        "shared_cycles": 23.1,
        "l1_cycles": 41.2,
        "l2_cycles_8_mib": 281.7,
        "dram_cycles": 811.0,
        "l2_line_cycles_quantiles": [11.0, 27.0, 28.0, 28.0, 28.0],
    },
    "bandwidth": {
        "read_2_mib": 3e12,
        "read_16_mib": 8e12,
        "read_56_mib": 7.7e12,
        "read_96_mib": 5e12,
        "read_512_mib": 4.6e12,
        "dram_read_32768_bytes_in_flight_per_sm_depth_4": 4.1e12,
        "dram_read_65536_bytes_in_flight_per_sm_depth_4": 4.3e12,
        "write_all_512_mib": 4.0e12,
        "copy_all_512_mib": 3.8e12,
    },
    "kept": {
        "kept_8000000_bytes_of_one_share": 1.0,
        "kept_48000000_bytes_of_one_share": 0.9,
        "kept_56000000_bytes_of_one_share": 0.1,
        "kept_60000000_bytes_of_one_share": 0.0,
        "kept_30000000_bytes_of_all_share": 1.0,
        "kept_34000000_bytes_of_all_share": 0.0,
    },
    "tensor": {
        "wgmma_n256_1_groups_batch_64_cycles": 128.5,
        "wgmma_n256_1_groups_batch_1_cycles": 348.0,
        "mma_dense_8_chains_8_warps_cycles": 12.0,
    },
    "power": {"failed": "no driver"},
}


def document(raw=RAW):
    return {"schema": 1, "date": "2026-11-20", "driver": "580", "commit": "abc", "raw": raw}


def test_quantities_come_from_their_raw_numbers():
    found = derive(RAW)
    assert found["l2_latency_cycles"].value == 282
    assert found["l2_bytes_per_s"].value == 8e12
    assert found["l2_usable_bytes"].value == 42_000_000
    assert found["dram_bytes_per_s"].value == pytest.approx(4.3e12)
    assert found["dram_copy_bytes_per_s"].value == 3.8e12
    assert found["warpgroup_latency_cycles"].value == 348 - 128 - 20
    # Two warps of a sub-partition: 2048 FMA in 6 cycles are 341 of 512
    assert found["mma_sync_share"].value == pytest.approx(341.3 / 512, abs=1e-3)


def test_an_l2_that_keeps_all_or_nothing_of_every_footprint_says_nothing():
    one = {key: value for key, value in RAW["kept"].items() if "_of_one_" in key}
    assert derive({"kept": one}) == {}
    assert derive({"kept": {"kept_8000000_bytes_of_one_share": 1.0}}) == {}


def kept(*shares):
    """Shares that are kept of footprints of 1, 2, 3 ... MB, whoever reads."""
    return {
        f"kept_{1_000_000 * size}_bytes_of_{readers}_share": share
        for size, share in enumerate(shares, 1)
        for readers in ("one", "all")
    }


@pytest.mark.parametrize(
    ("shares", "wanted"),
    [
        ((1.0, 0.0), 1_500_000),
        ((1.0, 0.5, 0.0), 2_000_000),
        ((1.0, 0.5, 0.5, 0.2), 3_000_000),  # the largest of which half is kept
        ((1.0, 0.75, 0.25), 2_500_000),
        ((0.5, 0.4), 1_000_000),
        ((0.49, 0.1), None),
        ((1.0, 0.5), None),
    ],
)
def test_the_usable_l2_is_what_half_is_kept_of(shares, wanted):
    found = derive({"kept": kept(*shares)})
    assert [each.value for each in found.values()] == ([] if wanted is None else [wanted])


WAITING = {
    "barrier_round_trip_cycles": 61.0,
    "sync_8_warps_cycles": 33.4,
    "flag_round_trip_cycles": 1403.0,
    "blocks_8_waves_work_0_turnover_cycles": 812.7,
    "store_128_rows_1_blocks_pitch_512_issue_cycles": 1024.0,
    "store_128_rows_1_blocks_pitch_512_done_cycles": 1700.0,
    "graph_stamp_all_sms_200_kb_s": 1.4e-6,
}


def test_waits_are_halves_of_round_trips_and_differences_of_stamps():
    found = {name: each.value for name, each in derive({"waiting": WAITING}).items()}
    assert found == {
        "barrier_latency_cycles": 30,
        "sync_latency_cycles": 33,
        "signal_latency_cycles": 702,
        "block_start_cycles": 813,
        "store_bytes_per_clk_per_sm": 64.0,
        "store_latency_cycles": 676,
        "graph_launch_s": 1.4e-6,
    }


def test_stores_of_all_sms_are_those_of_the_fastest_pitch():
    stores = {f"store_128_rows_132_blocks_pitch_{pitch}_issue_cycles": 2048.0 * pitch for pitch in (2, 1)}
    found = derive({"waiting": WAITING | stores})["l2_store_bytes_per_s"].value
    assert found == pytest.approx(32.0 * 132 * 1.98e9)
    half = derive({"waiting": WAITING | stores | {"sm_count": 66, "max_clock_hz": 0.99e9}})
    assert half["l2_store_bytes_per_s"].value == pytest.approx(found / 4)


@pytest.mark.parametrize(
    ("base", "cycles", "share"),
    [
        *(
            ("h200-sxm", cycles, share)
            for cycles, share in ((8.0, 1.0), (4.0, 1.0), (16.0, 0.5), (32.0, 0.25))
        ),
        *(("a100-sxm4-80gb", cycles, share) for cycles, share in ((8.0, 1.0), (16.0, 1.0), (32.0, 0.5))),
    ],
)
def test_the_share_of_mma_is_at_most_one(base, cycles, share):
    """Two warps multiply 2 x 16 x 8 x 16 elements; a sub-partition does 512 FMA per cycle, 256 on an A100."""
    found = derive({"tensor": {"mma_dense_8_chains_8_warps_cycles": cycles}}, base)
    assert {name: each.value for name, each in found.items()} == {"mma_sync_share": share}


def test_a_gpu_without_tensor_cores_has_no_share_of_their_peak():
    assert derive({"tensor": {"mma_dense_8_chains_8_warps_cycles": 8.0}}, "gtx-1080-ti") == {}


def test_stores_of_all_sms_are_those_of_the_base_where_the_raw_numbers_do_not_say():
    stores = WAITING | {"store_128_rows_132_blocks_pitch_512_issue_cycles": 1000.0}
    name, near = "l2_store_bytes_per_s", load_gpu("a100-sxm4-80gb")
    found = derive({"waiting": stores}, near.name)[name].value
    assert found == pytest.approx(65536 * near.sm_count / 1000.0 * near.max_clock_hz)


def test_the_latency_of_a_warpgroup_needs_both_numbers():
    names = ("wgmma_n256_1_groups_batch_64_cycles", "wgmma_n256_1_groups_batch_1_cycles")
    for left in names:
        assert derive({"tensor": {name: RAW["tensor"][name] for name in names if name != left}}) == {}


def test_without_scattered_reads_dram_is_read_through_the_largest_footprint():
    reads = {name: value for name, value in RAW["bandwidth"].items() if not name.startswith("dram_read_")}
    assert derive({"bandwidth": reads})["dram_bytes_per_s"].value == 4.6e12


def test_l2_and_dram_have_latencies_only_where_both_were_walked():
    near = {name: RAW["latency"][name] for name in ("shared_cycles", "l1_cycles")}
    found = {name: each.value for name, each in derive({"latency": near}).items()}
    assert found == {"shared_latency_cycles": 23, "l1_latency_cycles": 41}
    assert derive(RAW)["dram_latency_cycles"].value == 811


def test_groups_that_failed_or_did_not_run_are_left_out():
    assert "barrier_latency_cycles" not in derive(RAW)
    assert derive({"latency": {"failed": "trap"}}) == {}


def test_a_measured_quantity_that_the_base_omits_is_appended(tmp_path, monkeypatch):
    found = {"l2_store_read_share": derive_spec.Derived(0.5, "stores of half lines")}
    monkeypatch.setattr(derive_spec, "derive", lambda raw, base: found)
    path = tmp_path / "mine.toml"
    path.write_text(spec_file("a100-sxm4-80gb", document(), name="mine"))
    mine = load_gpu(str(path))
    assert load_gpu("a100-sxm4-80gb").l2_store_read_share == 0.0
    assert (mine.l2_store_read_share, mine.provenance["l2_store_read_share"].kind) == (0.5, "measured")


def test_a_spec_file_is_complete_and_says_what_was_measured(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(spec_file("h200-sxm", document(), name="mine"))
    mine, base = load_gpu(str(path)), load_gpu("h200-sxm")
    assert (mine.name, mine.l2_bytes_per_s, mine.l2_latency_cycles) == ("mine", 8e12, 282)
    assert mine.provenance["l2_bytes_per_s"].kind == "measured"
    assert "2026-11-20, driver 580, commit abc" in mine.provenance["l2_bytes_per_s"].source
    assert mine.sm_count == base.sm_count
    assert mine.provenance["sm_count"] == base.provenance["sm_count"]


def test_raw_files_are_read_and_others_refused(tmp_path):
    path = tmp_path / "raw.json"
    path.write_text(json.dumps(document()))
    assert read_raw(path)["raw"] == RAW
    path.write_text('{"schema": 2}')
    with pytest.raises(BadInput, match="schema 1, got 2"):
        read_raw(path)
    path.write_text("none")
    with pytest.raises(BadInput, match="wanted raw numbers"):
        read_raw(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"schema": 1}, "under the key raw, which is missing"),
        ({"schema": True, "raw": {}}, "must be of schema 1, got True"),
        ({"schema": 2, "raw": {}}, "must be of schema 1, got 2"),
        ({}, "must be of schema 1, got None"),
        (
            document({"latency": {"shared_cycles": -1.0}}),
            "shared_cycles must be a number from 0, got -1.0",
        ),
        (document({"latency": {"l2_quantiles": [1.0, "a"]}}), "l2_quantiles must be a number from 0"),
        (document({"latency": {"dram_cycles": [1.0]}}), "dram_cycles must be a number from 0"),
    ],
)
def test_what_raw_numbers_lack_is_named(tmp_path, content, message):
    path = tmp_path / "a.raw.json"
    path.write_text(json.dumps(content))
    with pytest.raises(BadInput, match=message):
        read_raw(path)


RTX_4070 = {
    "name": "NVIDIA GeForce RTX 4070",
    "compute_capability": "89",
    "sm_count": 46,
    "max_clock_hz": 2.475e9,
    "power_limit_w": 200.0,
    "l2_bytes": 37748736,
    "dram_bytes": 12_500_000_000,
    "dram_peak_bytes_per_s": 504e9,
}
ADA = {
    "latency": RAW["latency"],
    "bandwidth": {
        "read_2_mib": 1.2e12,
        "read_16_mib": 1.8e12,
        "read_512_mib": 4.6e11,
        "dram_read_32768_bytes_in_flight_per_sm_depth_4": 4.5e11,
        "copy_all_512_mib": 4.3e11,
    },
}


def test_the_base_is_the_nearest_of_the_compute_capability():
    found = load_gpu(base_for(RTX_4070))
    assert found.compute_capability == 89
    h100 = {"compute_capability": "90", "sm_count": 132, "dram_bytes": 85e9}
    assert base_for(h100) == "h100-sxm"
    assert base_for({**h100, "dram_bytes": 150e9}) == "h200-sxm"
    assert base_for({}) == "h200-sxm"
    with pytest.raises(BadInput, match="no GPU of compute capability 53"):
        base_for({**RTX_4070, "compute_capability": "53"})


def test_a_gpu_with_another_number_of_sms_says_what_is_its_own(tmp_path):
    measured = {**document(ADA), "device": RTX_4070}
    base = base_for(RTX_4070)
    path = tmp_path / "mine.toml"
    path.write_text(spec_file(base, measured, name="mine"))
    mine = load_gpu(str(path))
    assert (mine.name, mine.title) == ("mine", RTX_4070["name"])
    for name, value in RTX_4070.items():
        if name not in ("name", "compute_capability"):
            assert getattr(mine, name) == value
            assert mine.provenance[name].kind == "measured"
            assert "as the driver reports it" in mine.provenance[name].source
    assert mine.l2_bytes_per_s == pytest.approx(1.8e12)
    assert mine.provenance["l2_bytes_per_s"].kind == "measured"
    assert mine.provenance["barrier_latency_cycles"].kind == "guess"
    assert is_of_device(mine, RTX_4070)
    assert not is_of_device(load_gpu(base), RTX_4070)


def test_an_h100_is_not_titled_like_its_base(tmp_path):
    h100 = {**RTX_4070, "name": "NVIDIA H100 80GB HBM3", "compute_capability": "90", "sm_count": 132}
    h100 |= {"max_clock_hz": 1.98e9, "power_limit_w": 700.0, "l2_bytes": 52428800}
    h100 |= {"dram_bytes": 85_000_000_000, "dram_peak_bytes_per_s": 3.35e12}
    raw = {"latency": RAW["latency"]}
    path = tmp_path / "mine.toml"
    path.write_text(spec_file("h200-sxm", {**document(raw), "device": h100}, name="mine"))
    mine = load_gpu(str(path))
    assert (mine.title, mine.dram_bytes) == (h100["name"], 85_000_000_000)
    with pytest.raises(BadInput, match="wanted a base of compute capability 90"):
        spec_file("l40s", {**document(raw), "device": h100}, name="mine")


@pytest.mark.parametrize("schema", [0, 1.0, "1"])
def test_raw_numbers_have_one_schema(tmp_path, schema):
    path = tmp_path / "a.raw.json"
    path.write_text(json.dumps({**document(), "schema": schema}))
    with pytest.raises(BadInput, match="must be of schema 1"):
        read_raw(path)


@pytest.mark.parametrize("name", ["date", "driver", "commit"])
def test_texts_of_raw_numbers_have_a_length(tmp_path, name):
    path = tmp_path / "a.raw.json"
    for length, is_refused in ((derive_spec.LONGEST_TEXT, False), (derive_spec.LONGEST_TEXT + 1, True)):
        path.write_text(json.dumps({**document(), name: "x" * length}))
        with (
            pytest.raises(BadInput, match=f"{name} must be a text")
            if is_refused
            else contextlib.nullcontext()
        ):
            read_raw(path)


def test_a_device_that_does_not_report_itself_has_no_spec():
    silent = {name: value for name, value in RTX_4070.items() if name != "power_limit_w"}
    with pytest.raises(BadInput, match="power_limit_w"):
        spec_file(base_for(silent), {**document(ADA), "device": silent}, name="mine")


def test_records_of_a_device_are_replayed_with_its_own_spec():
    record = bundled_records("h100-sxm")[0]
    device = read_runs(record)[0].header.device
    own = dataclasses.replace(load_gpu("h100-sxm"), name="mine", title=device["name"])
    found = replay([record], gpu=own, engines=["model"], part=(1, 400))
    assert found.gpu.name == "mine"
    with pytest.raises(BadInput, match="records are of h100-sxm"):
        replay([record], gpu=dataclasses.replace(own, title="another"), engines=["model"], part=(1, 400))
