import re
from importlib import import_module

import ml_dtypes
import numpy as np
import pytest

import prunecast.codesign.prepare_job as prepare_job
import prunecast.workload.engines as engines
import prunecast.workload.table_rows as table_rows
from prunecast.codesign import PredictionTable, predict
from prunecast.codesign.interval import INTERVAL_KIND
from prunecast.codesign.provenance import json_text
from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.kernels.libraries.scaled.call import SCALES, quantise_passes, scaled_costs
from prunecast.models import estimate
from prunecast.workload.random_weights import heavy_tailed
from tests.codesign.weights import uneven

W = uneven(256, 256)


def quick(weights=W, **options) -> PredictionTable:
    return predict(
        weights, **{"gpu": "h200-sxm", "tokens": 512, "engine": "model", "crossovers": False, **options}
    )


def by_kernel(table):
    return {row.kernel: row for row in table}


def test_all_kernels_in_order_each_against_dense():
    table = quick()
    kernels = ["dense", "tile-wise", "stspmm", "block-sparse", "2:4", "cusparselt", "csr"]
    assert [row.kernel for row in table] == kernels
    dense = table[0]
    assert dense.speedup_over_dense == 1.0
    for row in table:
        assert row.speedup_over_dense == pytest.approx(dense.seconds / row.seconds)
        assert row.seconds_low < row.seconds < row.seconds_high
        assert (row.m, row.k, row.n, row.dtype) == (256, 256, 512, "fp16")


def test_a_prediction_is_what_the_engine_says_of_its_plan():
    gpu = load_gpu("h200-sxm")
    for row in quick():
        assert row.seconds == estimate(row.plan, gpu).seconds
        assert row.bound == estimate(row.plan, gpu).bound
    for row in quick(engine="simulator", kernels=["stspmm"], state="sustained", launch="stream"):
        assert row.seconds == engines.simulate(row.plan, gpu, state="sustained", launch="stream").seconds
        assert (row.engine, row.state) == ("simulator", "sustained")


@pytest.mark.parametrize("scales", SCALES)
def test_a_sparse_product_in_fp8_needs_its_own_time_and_that_of_quantising_x(scales):
    gpu = load_gpu("h100-sxm")
    rows = quick(gpu="h100-sxm", dtype="fp8", scales=scales, kernels=["block-sparse"])
    passes = quantise_passes(256, 512, scales, scaled_costs(gpu.compute_capability))
    quantise_s = sum(each.seconds(gpu) for each in passes)
    assert (quantise_s == 0.0) == (scales == "fused")
    row = by_kernel(rows)["block-sparse"]
    assert row.seconds == pytest.approx(estimate(row.plan, gpu).seconds + quantise_s, rel=1e-12)
    assert row.seconds_low < row.seconds < row.seconds_high


def test_sparsity_is_the_one_asked_for_but_for_patterns_with_their_own():
    table = by_kernel(quick(sparsity=0.5))
    assert table["dense"].sparsity == 0.0
    assert {kernel: table[kernel].sparsity for kernel in ("tile-wise", "csr", "2:4")} == {
        "tile-wise": 0.5,
        "csr": 0.5,
        "2:4": 0.5,
    }
    table = by_kernel(quick(sparsity=0.9))
    assert table["2:4"].sparsity == 0.5
    assert table["2:4"].note == "2:4 removes 50%, not 90%"
    assert table["tile-wise"].sparsity == pytest.approx(0.9, abs=0.01)


def test_three_quarters_is_the_default():
    assert by_kernel(quick())["csr"].sparsity == 0.75


def test_one_pattern_for_all_kernels_that_run_it():
    table = by_kernel(quick(pattern="TW:64", sparsity=0.5))
    assert list(table) == ["dense", "tile-wise", "stspmm", "csr"]
    assert {row.pattern for row in table.values()} == {"dense", "tile-wise:64"}
    assert len({row.sparsity for row in list(table.values())[1:]}) == 1


def test_a_small_layer_gets_a_smaller_tile_and_a_note():
    table = by_kernel(quick(uneven(100, 256)))
    assert table["tile-wise"].pattern == "tile-wise:64"
    assert "tile-wise:128 does not fit a matrix of 100x256: tile-wise:64 instead" in table["tile-wise"].note
    assert table["block-sparse"].pattern == "block:64x64"
    assert by_kernel(quick(uneven(256, 48)))["block-sparse"].pattern == "block:64x32"


def test_a_pattern_that_was_asked_for_is_never_changed_but_for_the_height_of_tiles():
    with pytest.raises(
        BadInput, match="block:512x64 needs a matrix of 512x64 or more, got 256x256 in 'weights'"
    ):
        quick(pattern="block:512x64")
    assert by_kernel(quick(pattern="tile-wise:512"))["tile-wise"].pattern == "tile-wise:256"


def test_a_pattern_that_leaves_nothing_is_no_candidate():
    table = quick(uneven(64, 64))
    assert "block-sparse" not in by_kernel(table)
    (skipped,) = table.skipped
    assert (skipped.layer, skipped.kernel) == ("weights", "block-sparse")
    assert "removes all" in skipped.reason
    with pytest.raises(BadInput, match="weights: block:64x64 at this sparsity removes all"):
        quick(uneven(64, 64), kernels=["block-sparse"])


def test_what_the_gpu_cannot_run_is_skipped_unless_asked_for():
    table = quick(gpu="t4")
    assert [(s.kernel, "sparse tensor cores" in s.reason) for s in table.skipped] == [
        ("2:4", True),
        ("cusparselt", True),
    ]
    with pytest.raises(BadInput, match="weights: 2:4 needs sparse tensor cores"):
        quick(gpu="t4", kernels=["2:4"])


def test_a_layer_of_zeros_has_a_dense_time_only():
    table = quick(np.zeros((128, 128), np.float16))
    assert {row.kernel for row in table} == {"dense", "2:4"} - {skipped.kernel for skipped in table.skipped}
    assert "dense" in by_kernel(table)


@pytest.mark.parametrize(
    ("stored", "asked", "used", "note"),
    [
        (np.float16, None, "fp16", ""),
        (ml_dtypes.bfloat16, None, "bf16", ""),
        (np.float32, None, "fp16", "fp32 weights run as fp16"),
        (np.float32, "fp32", "fp32", ""),
        (
            np.float32,
            "tf32",
            "tf32",
            "fp32 weights run as tf32; predicted only: tile-wise has no kernel in tf32",
        ),
        (np.float16, "bf16", "bf16", "fp16 weights run as bf16"),
    ],
)
def test_the_number_format(stored, asked, used, note):
    row = quick(uneven(128, 128, dtype=stored), dtype=asked, kernels=["tile-wise"])[-1]
    about_format = [text for text in row.note.split("; ") if "validated" not in text]
    assert (row.dtype, "; ".join(about_format)) == (used, note)


def test_zeros_of_a_pruned_file_are_its_pattern():
    pruned = np.where(np.arange(256)[:, None] % 4 == 0, W, np.float16(0))
    rows = {row.kernel: row for row in quick(pruned, pattern="zeros")}
    assert set(rows) == {"dense", "csr", "tile-wise", "stspmm"}  # whole rows of four fit no 2:4
    assert (rows["csr"].pattern, rows["csr"].sparsity, rows["csr"].note) == ("zeros", 0.75, "")


def test_zeros_of_a_pruned_file_in_tiles_run_on_tile_kernels():
    pruned = np.where(np.arange(256)[None, :] % 4 == 0, W, np.float16(0))
    rows = {row.kernel: row for row in quick(pruned, pattern="zero-tiles:128")}
    assert set(rows) == {"dense", "tile-wise", "stspmm", "csr"}
    assert (rows["tile-wise"].pattern, rows["tile-wise"].sparsity) == ("zero-tiles:128", 0.75)


def test_global_scope_takes_the_least_important_of_all():
    named = {"small": (W * 0.1).astype(np.float16), "large": W}
    layer = {row.layer: row.sparsity for row in quick(named, kernels=["csr"]) if row.kernel == "csr"}
    together = {
        row.layer: row.sparsity
        for row in quick(named, kernels=["csr"], scope="global")
        if row.kernel == "csr"
    }
    assert layer == {"small": 0.75, "large": 0.75}
    assert together["small"] > 0.75 > together["large"]
    assert sum(together.values()) == pytest.approx(1.5)


def test_global_scope_ranks_layers_of_one_pattern_together():
    named = {"a": uneven(256, 128), "b": uneven(100, 128, seed=1), "c": uneven(128, 128, seed=2)}
    rows = [
        row
        for row in quick(named, kernels=["tile-wise"], scope="global", sparsity=0.5)
        if row.kernel != "dense"
    ]
    assert [row.pattern for row in rows] == ["tile-wise:128", "tile-wise:64", "tile-wise:128"]
    pruned = sum(row.sparsity * row.m * row.k for row in rows if row.pattern == "tile-wise:128")
    assert pruned == pytest.approx(0.5 * (256 + 128) * 128, abs=128)


def test_layers_of_one_shape_share_their_dense_time(monkeypatch):
    calls = []

    def counted(plan, gpu, conditions):
        calls.append(plan.kernel)
        return estimate(plan, gpu, state=conditions.state, launch=conditions.launch, l2=conditions.l2)

    monkeypatch.setattr(engines, "kept_estimate", counted)
    table = quick({"a": W, "b": uneven(256, 256, seed=1), "c": uneven(128, 256)}, kernels=["tile-wise"])
    assert [row.kernel for row in table] == ["dense", "tile-wise"] * 3
    assert calls.count("dense") == 2
    assert calls.count("tile-wise") == 3


def test_crossovers_are_where_the_kernel_meets_dense():
    table = quick(crossovers=True, sparsity=0.9)
    found = {crossover.kernel: crossover for crossover in table.crossovers}
    assert list(found) == ["tile-wise", "stspmm", "block-sparse", "csr"]  # 2:4 has no choice of sparsity
    for kernel, crossover in found.items():
        if crossover.sparsity:
            after = by_kernel(quick(kernels=[kernel], sparsity=crossover.sparsity))[kernel]
            assert after.speedup_over_dense >= 1.0


def test_the_same_input_gives_the_same_bytes():
    first, second = (json_text(quick(crossovers=True).document()) for _ in range(2))
    assert first == second


def test_a_table_says_where_it_comes_from():
    document = quick(sparsity=0.5, scope="global").document()
    assert document["schema_version"] == 1
    assert document["spec_hash"] == load_gpu("h200-sxm").fingerprint
    assert document["interval"] == INTERVAL_KIND
    assert document["asked"] == {"pattern": None, "sparsity": 0.5, "scope": "global"}
    changed = W.copy()
    changed[0, 0] += 1
    assert document["weights_hash"] == quick().document()["weights_hash"]
    assert document["weights_hash"] != quick(changed).document()["weights_hash"]


def test_sums_over_layers():
    table = quick({"a": W, "b": uneven(128, 256)}, kernels=["csr", "tile-wise"])
    dense = [row.seconds for row in table if row.kernel == "dense"]
    best = [min(row.seconds for row in layer) for layer in table.layers()]
    assert table.dense_seconds == pytest.approx(sum(dense))
    assert table.best_seconds == pytest.approx(sum(best))
    assert table.speedup == pytest.approx(sum(dense) / sum(best))
    assert len(table.fastest_kernels()) == 2


def test_a_long_simulation_is_not_called_a_compilation():
    """Stages in their order: what is shown while nothing is done yet is the last one that was told."""
    seen = []
    predict(
        {"a": W},
        gpu="h200-sxm",
        tokens=64,
        kernels=["csr"],
        crossovers=False,
        progress=lambda *s: seen.append(s[0]),
    )
    stages = list(dict.fromkeys(seen))
    assert stages == ["predicting", "compiling the simulator (first run only)", "simulating"]


def test_progress_counts_every_kernel_of_every_layer():
    seen = []
    quick({"a": W, "b": W}, kernels=["csr"], progress=lambda *step: seen.append(step))
    assert seen == [("predicting", done, 4) for done in (0, 0, 1, 1, 2, 2, 3, 3, 4)]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"tokens": 0}, "tokens must be at least 1, got 0"),
        ({"tokens": 2**40}, "tokens must be at most"),
        ({"kernels": []}, "kernels must name at least one kernel, or be 'all', got none"),
        ({"sparsity": 1.0}, r"sparsity must be in \[0, 1\), got 1.0"),
        ({"sparsity": -0.1}, "sparsity must be in"),
        ({"sparsity": float("nan")}, "sparsity must be a number, got nan"),
        ({"pattern": "2:4", "sparsity": 0.75}, "2:4 only has sparsity 0.5"),
        ({"pattern": "dense", "sparsity": 0.5}, "dense only has sparsity 0"),
        ({"gpu": "h2000"}, "unknown GPU"),
        ({"engine": "simulatr"}, "nearest: simulator"),
        ({"state": "bursts"}, "nearest: burst"),
        ({"launch": "graf"}, "nearest: graph"),
        ({"dtype": "fp4"}, "dtype must be one of"),
        ({"scope": "model"}, "scope must be one of layer, global"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_read(options, complaint):
    with pytest.raises(BadInput, match=complaint):
        quick("no such file.npz", **options)


def test_patterns_that_cannot_have_every_sparsity_have_crossovers_too():
    """tvw prunes from 50 %, tile-element below 95 %: the search stays inside."""
    for pattern, kernel, low, high in (("tvw:64", "2:4", 0.5, 0.99), ("tile-element:64", "csr", 0.0, 0.94)):
        table = quick(pattern=pattern, sparsity=0.75, crossovers=True)
        (found,) = (crossover for crossover in table.crossovers if crossover.kernel == kernel)
        assert found.sparsity is None or low <= found.sparsity <= high


def test_the_seed_is_that_of_the_pattern():
    assert quick(pattern="tile-wise:64").document()["seed"] is None
    assert quick(pattern="shuffled-block:64").document()["seed"] == 0
    assert quick(pattern="atp:64:shuffled").document()["seed"] == 0


def test_odd_sizes_are_timed_padded_when_dense_and_the_row_says_what_they_take_as_they_are():
    weights = np.random.default_rng(0).standard_normal((2047, 2047)).astype(np.float16)
    settings = {
        "gpu": "h200-sxm",
        "tokens": 1025,
        "engine": "model",
        "kernels": ["stspmm"],
        "crossovers": False,
    }
    odd, even = (predict(weights[:side, :side], **settings) for side in (2047, 2040))
    assert odd[0].seconds < 1.1 * even[0].seconds
    told = re.search(r"rows padded to 2048x2048: not aligned as they are, ([\d.]+) us", odd[0].note)
    assert told is not None
    assert float(told[1]) > 4e6 * even[0].seconds
    assert even[0].note == ""
    assert all("padded to 2048" not in row.note for row in odd[1:])


@pytest.mark.parametrize(
    ("gpu", "dtype", "note"),
    [
        ("v100-sxm2-16gb", "fp16", "predicted only: stspmm has no kernel below compute capability 7.5"),
        ("v100-sxm2-16gb", "fp32", ""),
        ("t4", "fp16", ""),
        ("h200-sxm", "tf32", "predicted only: stspmm has no kernel in tf32"),
    ],
)
def test_a_kernel_that_is_not_there_is_named(gpu, dtype, note):
    row = quick(uneven(128, 128), gpu=gpu, dtype=dtype, kernels=["stspmm"])[-1]
    assert next((text for text in row.note.split("; ") if text.startswith("predicted only")), "") == note


def test_passes_share_maps_and_are_predicted_as_each_by_itself():
    settings = {"gpu": "h100-sxm", "engine": "model", "runtime": "engine"}
    both = predict("bert-small", workload="batch:2,batch:8", **settings)
    apart = [
        row for each in ("batch:2", "batch:8") for row in predict("bert-small", workload=each, **settings)
    ]
    assert [(row.kernel, row.n, row.seconds, row.sparsity) for row in both] == [
        (row.kernel, row.n, row.seconds, row.sparsity) for row in apart
    ]


def test_a_large_model_is_predicted_as_a_small_one_and_drawn_once(monkeypatch):
    """No plan and no weights of earlier layers are held: the same document, of weights drawn once a shape."""
    model = {"gpu": "h200-sxm", "engine": "model", "workload": "decode:16@128"}
    small = predict("gpt2", **model)
    drawn = []

    def counted(shape, *rest):
        drawn.append(shape)
        return heavy_tailed(shape, *rest)

    monkeypatch.setattr(table_rows, "heavy_tailed", counted)
    for module, limit in (
        (table_rows, "MOST_REMEMBERED_WEIGHTS"),
        (prepare_job, "MOST_PLANNED"),
        (import_module("prunecast.codesign.predict"), "MOST_AHEAD"),
    ):
        monkeypatch.setattr(module, limit, 0)
    large = predict("gpt2", **model)
    assert json_text(large.document()) == json_text(small.document())
    assert len(drawn) == len({*drawn}) == len({(row.m, row.k) for row in small})
    again, row = small[1], large[1]
    assert row.plan.fingerprint() == again.plan.fingerprint()
    assert row.plan is row.plan


@pytest.mark.parametrize(
    ("workload", "loaded"),
    [(None, {"b"}), ("prefill:64", {"a", "b"}), ("prefill:64,decode:2@64", {"a", "b"})],
)
def test_rows_of_a_table_find_their_layers_again_and_matrices_alone_read_no_others(workload, loaded):
    weights = {name: np.ones((64, 64), np.float16) for name in ("a", "b")}
    tokens = {"tokens": 64} if workload is None else {"workload": workload}
    table = predict(weights, gpu="t4", engine="model", kernels="dense", crossovers=False, **tokens)
    names = [row.layer for row in table if row.layer.startswith("b")]
    found = prepare_job.predicted_layers(weights, table.provenance, names)
    assert {*names} <= {*found}
    assert {name.split()[0] for name in found} == loaded
