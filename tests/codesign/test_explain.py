import json
import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from prunecast.codesign import explain, predict
from prunecast.codesign.advice import DOUBLED, LayerCase, _changes, evened, rounded
from prunecast.codesign.provenance import json_text
from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.hardware.occupancy import occupancy
from prunecast.launch import USUAL
from prunecast.launch.floor import padded_copy_seconds
from prunecast.patterns import TileMap
from prunecast.plan.program import When
from prunecast.simulator import PIPES, STALLS
from prunecast.workload.engines import Engine
from tests.codesign.weights import uneven

W = np.repeat(np.logspace(-1, 0, 8), 128)[:, None] * uneven(1024, 512)
TOKENS = 4096
EVEN = "the same number of kept columns in every tile"
ORDER = [
    "Speed of light",
    "Roofline",
    "Occupancy",
    "Work distribution over SMs",
    "Warp stalls",
    "Where the time goes",
    "Costs of a k-step",
]


def explained(weights=W, **options):
    return explain(weights, **{"gpu": "h200-sxm", "tokens": TOKENS, **options})


def facts(explanation, title):
    (section,) = (section for section in explanation.sections if section.title == title)
    return {fact.name: fact.value for fact in section.facts}


@pytest.fixture(scope="module")
def simulated():
    return explained(kernel="tile-wise")


def test_sections_stand_in_a_profilers_order(simulated):
    assert [section.title for section in simulated.sections] == ORDER


def test_it_explains_the_very_prediction(simulated):
    row = predict(W, gpu="h200-sxm", tokens=TOKENS, kernels=["tile-wise"], crossovers=False)[-1]
    assert simulated.prediction.seconds == row.seconds
    light = facts(simulated, "Speed of light")
    assert light["duration"] == pytest.approx(row.latency_us)
    assert light["duration"] == pytest.approx(
        light["SM cycles"] / light["SM clock"] + light["launch floor"], rel=1e-3
    )


def test_the_parts_of_the_time_add_up_to_it(simulated):
    parts = facts(simulated, "Where the time goes")
    assert sum(parts.values()) == pytest.approx(simulated.prediction.latency_us)


def test_costs_of_a_step_are_told_apart_by_their_kind(simulated):
    """Four groups of 16 columns: 33 cycles fitted and 22 instructions as compiled for each."""
    of_a_step = facts(simulated, "Costs of a k-step")
    assert of_a_step["producer: wait_per_k16, fitted"] == 4 * 33
    assert of_a_step["producer: producer_instructions_per_k16, as-compiled"] == 4 * 22
    step = simulated.prediction.plan.programs[0].step
    issued = (i.issue * (4 if i.per_k16 else 1) for i in step if i.when == When.ALWAYS)
    assert of_a_step["producer: instructions, by hand"] == sum(issued)
    assert of_a_step["producer: instructions, by hand, refill"] == 4


def test_stalls_are_sorted_and_add_up_to_all_warp_cycles(simulated):
    stalls = facts(simulated, "Warp stalls")
    assert set(stalls) == set(STALLS)
    assert list(stalls.values()) == sorted(stalls.values(), reverse=True)
    assert sum(stalls.values()) == pytest.approx(100)


def test_work_over_sms_counts_every_item_and_sm(simulated):
    work = facts(simulated, "Work distribution over SMs")
    assert work["items per SM, mean"] * 132 == pytest.approx(simulated.prediction.plan.item_count)
    assert sum(value for name, value in work.items() if name.startswith("SMs with")) == 132


def test_nothing_is_attained_above_its_ceiling(simulated):
    roofline = facts(simulated, "Roofline")
    for level in ("compute", "L2", "DRAM"):
        assert roofline["attained"] <= roofline[f"{level} ceiling"]
    # 2 FLOP for each kept weight and token
    kept = simulated.prediction.plan.density * W.size
    assert roofline["useful work"] == pytest.approx(2 * kept * TOKENS / 1e9)


def test_numbers_of_the_roofline_are_quotients_of_each_other(simulated):
    roofline, result = facts(simulated, "Roofline"), simulated.prediction.result
    gpu = load_gpu("h200-sxm")
    operations = 1e9 * roofline["useful work"]
    assert 1e12 * roofline["attained"] * simulated.prediction.seconds == pytest.approx(operations)
    dense = 2 * 1024 * 2 * gpu.sm_count * result.clock_hz  # 4096 FLOP per cycle and SM, without sparsity
    assert 1e12 * roofline["compute ceiling"] == pytest.approx(dense)
    rates = {"L2": gpu.l2_bytes_per_s, "DRAM": gpu.dram_bytes_per_s}
    moved = {"L2": result.l2_bytes, "DRAM": result.dram_bytes}
    for level, rate in rates.items():
        intensity = roofline[f"{level} arithmetic intensity"]
        assert 1e6 * roofline[f"{level} traffic"] == pytest.approx(moved[level])
        assert intensity * moved[level] == pytest.approx(operations)
        assert 1e12 * roofline[f"{level} ceiling"] == pytest.approx(intensity * rate)
    assert roofline["L2 hit rate"] == pytest.approx(100 * result.l2_hit_rate)
    light = facts(simulated, "Speed of light")
    busy = [roofline[f"{pipe} busy"] for pipe in PIPES]
    assert 0 < max(busy) <= 100
    assert {light["compute throughput"], light["memory throughput"]} <= set(busy)
    assert light["SM clock"] == pytest.approx(result.clock_hz / 1e6)


def test_facts_of_occupancy_are_those_of_the_block(simulated):
    found, plan = facts(simulated, "Occupancy"), simulated.prediction.plan
    fit = occupancy(plan.resources, load_gpu("h200-sxm"))
    limits = {name.removeprefix("block limit, "): each for name, each in found.items() if "limit," in name}
    assert limits == fit.limits
    assert found["blocks per SM"] == fit.blocks_per_sm == min(limits.values()) == limits[found["limiter"]]
    assert found["occupancy"] == pytest.approx(100 * found["warps per SM"] / 64)
    assert found["shared memory per block"] * 1024 == plan.resources.shared_bytes
    assert (found["blocks launched"], found["work items"]) == (plan.blocks, plan.item_count)
    assert found["registers per thread"] == plan.resources.registers_per_thread


def test_work_over_sms_is_that_of_the_result(simulated):
    work, result = facts(simulated, "Work distribution over SMs"), simulated.prediction.result
    for name, values in (("items", result.sm_items), ("tensor cycles", result.sm_tensor_cycles)):
        least, mean, most = (work[f"{name} per SM, {which}"] for which in ("least", "mean", "most"))
        assert (least, most) == (values.min(), values.max())
        assert least <= mean <= most
        assert mean == pytest.approx(values.mean())
    assert work["imbalance, most over mean"] == pytest.approx(most / mean)
    bounds = [
        [int(each) for each in re.findall(r"(\d+) to (\d+)", name)[0]]
        for name in work
        if name.startswith("SMs")
    ]
    assert bounds[0][0] == 0
    assert all(one[1] == other[0] for one, other in pairwise(bounds))
    assert bounds[-1][1] == most


def test_uneven_tiles_are_told_to_be_even_and_even_ones_are_not():
    rows = np.random.default_rng(0).standard_normal((128, 4096))
    uneven_tiles = np.concatenate([rows * size for size in np.logspace(-2, 0, 8)]).astype(np.float16)
    even_tiles = np.concatenate([rows] * 8).astype(np.float16)
    options = {"engine": "model", "tokens": 8192, "sparsity": 0.75}
    gain = {line.change: line.gain for line in explained(uneven_tiles, **options).advice}
    # A quarter of the tiles has all the work, for 64 of 132 SMs.
    assert gain[EVEN] > 0.1
    assert EVEN not in {line.change for line in explained(even_tiles, **options).advice}


def test_advice_is_sorted_and_its_gain_is_what_it_saves(simulated):
    gains = [line.gain for line in simulated.advice]
    assert gains == sorted(gains, reverse=True)
    assert all(gain > 0.01 for gain in gains)
    assert len(gains) <= 5
    for line in simulated.advice:
        work = 2 if line.change.startswith("twice the tokens") else 1
        assert line.gain == pytest.approx(1 - line.seconds / work / simulated.prediction.seconds)


def test_stspmm_advice_is_the_prediction_of_stspmm(simulated):
    (line,) = (line for line in simulated.advice if line.change.startswith("stspmm"))
    row = predict(W, gpu="h200-sxm", tokens=TOKENS, kernels=["stspmm"], crossovers=False)[-1]
    assert line.seconds == row.seconds


@pytest.mark.parametrize(
    ("tokens", "apart", "copied"),
    [(6280, 6336, False), (1001, 1024, True), (6336, 0, False), (1024, 0, False)],
)
@pytest.mark.parametrize("engine", ["simulator", "model"])
def test_padding_is_advised_where_rows_begin_within_sectors_or_are_copied(engine, tokens, apart, copied):
    """Measured: 20 to 24 % of 6280 tokens' time, 60 to 80 % of 1001's (0007)."""
    told = explained(uneven(2048, 768), engine=engine, kernel="stspmm", tokens=tokens)
    gains = {line.change: line.gain for line in told.advice if "padding" in line.change}
    assert bool(gains) == (tokens in (6280, 1001))
    for change, gain in gains.items():
        assert change.startswith(f"rows of B and C that are {apart} tokens apart")
        assert ("nothing is copied" in change) == copied
        assert gain > (0.5 if copied else 0.08)
    assert ("copies of B and C" in told.prediction.note) == copied


def test_an_explanation_tells_copies_apart():
    told = explained(uneven(2048, 768), engine="simulator", kernel="stspmm", tokens=1001)
    parts = facts(told, "Where the time goes")
    copies_us = 1e6 * padded_copy_seconds(told.prediction.plan, load_gpu("h200-sxm"))
    assert parts["copies to padded rows (two launches)"] == pytest.approx(copies_us)
    assert sum(parts.values()) == pytest.approx(1e6 * told.prediction.seconds)


def test_a_slow_launch_is_noticed():
    changes = [
        line.change for line in explained(uneven(128, 128), engine="model", launch="stream", tokens=64).advice
    ]
    assert "launched in a CUDA graph" in changes


@pytest.mark.parametrize("kernel", ["dense", "csr", "2:4"])
def test_kernels_without_tiles_are_shown_what_tiles_would_bring(kernel):
    explanation = explained(uneven(1024, 1024), kernel=kernel, engine="model", tokens=2048)
    assert explanation.prediction.kernel == kernel
    assert any("run by stspmm" in line.change for line in explanation.advice) or kernel == "2:4"


def test_the_closed_form_model_explains_less():
    explanation = explained(engine="model")
    assert [section.title for section in explanation.sections] == [*ORDER[:4], ORDER[-1]]
    assert facts(explanation, "Speed of light")["compute throughput"] <= 100


def test_the_document_is_json_and_holds_the_prediction(simulated):
    document = simulated.document()
    assert document["predictions"][0]["kernel"] == "tile-wise"
    assert json_text(document) == json_text(explained(kernel="tile-wise").document())


def test_one_layer_at_a_time():
    with pytest.raises(BadInput, match=r"explain takes one layer, got 2 \(a, b, ...\)"):
        explained({"a": W, "b": W})
    assert explained({"a": W, "b": W}, target=["b"], engine="model").prediction.layer == "b"


@pytest.mark.parametrize(
    ("pattern", "kernel"),
    [(None, "tile-wise"), ("block:64x64", "block-sparse"), ("2:4", "2:4"), ("unstructured", "csr")],
)
def test_without_a_kernel_it_is_one_that_runs_the_pattern(pattern, kernel):
    told = explain(uneven(256, 256), gpu="h200-sxm", tokens=256, engine="model", pattern=pattern)
    assert told.prediction.kernel == kernel


@pytest.mark.parametrize("tokens", [1, 16, 64, 65, 1024])
def test_without_a_kernel_it_is_the_fastest_in_tiles(tokens):
    asked = {"gpu": "h200-sxm", "tokens": tokens, "engine": "model"}
    able = ["tile-wise", "stspmm"] + (["small-n"] if tokens <= 64 else [])
    rows = predict(uneven(2048, 1024), kernels=able, crossovers=False, **asked)
    least = min(row.seconds for row in rows if row.kernel in able)
    told = explain(uneven(2048, 1024), **asked)
    assert told.prediction.pattern == "tile-wise:128"
    assert told.prediction.seconds == least
    assert tokens > 1 or told.prediction.kernel == "small-n"


def test_a_layer_that_no_kernel_runs_is_refused():
    with pytest.raises(BadInput, match="fp8"):
        explained(uneven(256, 256), dtype="fp8", tokens=64)


@pytest.mark.parametrize(
    ("weights", "options", "verdict"),
    [
        (uneven(256, 512), {"tokens": 64, "kernel": "dense"}, r"blocks leave \d+ of 132 SMs idle: too small"),
        (uneven(4096, 4096), {"kernel": "dense", "engine": "model"}, "Limited by the tensor cores, busy 9"),
        (uneven(8192, 8192), {"tokens": 8, "kernel": "dense", "engine": "model"}, "Limited by DRAM, busy"),
    ],
)
def test_the_verdict_names_what_limits_the_time(weights, options, verdict):
    found = explained(weights, **options)
    assert re.search(verdict, found.verdict), found.verdict
    assert found.document()["verdict"] == found.verdict


@pytest.mark.parametrize("engine", ["model", "simulator"])
def test_sms_without_a_block_are_idle(engine):
    verdict = explained(uneven(256, 512), tokens=64, kernel="dense", engine=engine).verdict
    blocks, idle, sms = map(int, re.findall(r"\d+", verdict))
    assert blocks + idle == sms == 132


def tile_map(kept, k=16):
    """Tiles of 4 rows, each of which keeps the first columns."""
    return TileMap(
        m=4 * len(kept), k=k, row_start=4 * np.arange(len(kept) + 1), row_index=np.arange(4 * len(kept)),
        column_start=np.concatenate([[0], np.cumsum(kept)]),
        column_index=np.concatenate([np.arange(each) for each in kept]), pattern="tile-wise:4",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kept", "wanted"), [([2, 10], [6, 6]), ([16, 16], [16, 16]), ([1, 2, 3], [2, 2, 2])]
)
def test_even_tiles_keep_as_much_in_all(kept, wanted):
    made = evened(tile_map(kept))
    assert made.kept_per_tile.tolist() == wanted
    for tile, (before, after) in enumerate(zip(kept, wanted, strict=True)):
        own = made.column_index[made.column_start[tile] : made.column_start[tile + 1]].tolist()
        assert own == sorted(set(own))
        assert len(set(own) & set(range(before))) == min(before, after)


def test_columns_of_even_tiles_are_dropped_and_added_at_even_distances():
    made = evened(tile_map([2, 10]))
    assert made.column_index[:6].tolist() == [0, 1, 2, 5, 9, 12]
    assert made.column_index[6:].tolist() == [0, 1, 3, 5, 6, 8]


@pytest.mark.parametrize(
    ("kept", "wanted"), [(1, 0), (2, 0), (3, 4), (5, 4), (6, 8), (7, 8), (14, 16), (16, 16)]
)
def test_kept_columns_are_rounded_to_the_nearest_multiple(kept, wanted):
    assert rounded(tile_map([kept, 8]), 4).kept_per_tile.tolist() == [wanted, 8]


def changes_of(tiles, kernel="tile-wise", launch="graph", n=64):
    engine = Engine(name="model", gpu=load_gpu("h200-sxm"), conditions=replace(USUAL, launch=launch))
    m, k = (256, 256) if tiles is None else (tiles.m, tiles.k)
    case = LayerCase(kernel=kernel, m=m, k=k, n=n, dtype="fp16", kept=tiles, engine=engine)
    return {changed.change: changed for changed in _changes(case, None)}


def test_changes_are_those_that_a_layer_has_left_to_make():
    always = {
        "twice the tokens, time per token",
        *(f"a GPU with twice the {each} bandwidth" for each in ("DRAM", "L2")),
    }
    assert set(changes_of(None, "dense")) == always
    assert set(changes_of(None, "dense", "stream")) == always | {"launched in a CUDA graph"}
    assert EVEN not in changes_of(tile_map([64], k=128))
    two = changes_of(tile_map([64, 32], k=128))
    assert {EVEN, "stspmm: split heavy tiles and spread the parts over the SMs"} < set(two)
    assert not any("split heavy" in change for change in changes_of(tile_map([64, 32], k=128), "stspmm"))
    doubled = two["twice the tokens, time per token"]
    assert (doubled.n, doubled.work) == (128, 2.0)
    gpu = load_gpu("h200-sxm")
    for level, names in DOUBLED.items():
        faster = two[f"a GPU with twice the {level} bandwidth"].engine.gpu
        assert {name: getattr(faster, name) / getattr(gpu, name) for name in names} == dict.fromkeys(names, 2)
        changed = {name for name in gpu.provenance if getattr(faster, name) != getattr(gpu, name)}
        assert changed <= set(names)


@pytest.mark.parametrize(
    ("n", "apart", "is_copied"),
    [(64, None, False), (96, 128, False), (100, 128, True), (128, None, False), (129, 192, True)],
)
def test_rows_between_lines_can_be_padded_and_then_need_no_copy(n, apart, is_copied):
    """A line has 64 tokens of fp16. Rows of 100 and 129 tokens are copied: 16 does not divide their bytes."""
    changes = [change for change in changes_of(tile_map([64], k=128), n=n) if "tokens apart" in change]
    end = ": nothing is copied" * is_copied
    wanted = f"rows of B and C that are {apart} tokens apart, padding behind the {n}{end}"
    assert changes == ([] if apart is None else [wanted])


@pytest.mark.parametrize("pattern", [None, "2:4", "unstructured"])
def test_a_speedup_is_over_dense_whichever_kernel_is_explained(pattern):
    asked = {"gpu": "h200-sxm", "tokens": 256, "engine": "model", "pattern": pattern}
    told = explain(uneven(256, 256), **asked).prediction
    rows = {row.kernel: row for row in predict(uneven(256, 256), crossovers=False, **asked)}
    assert told.seconds == rows[told.kernel].seconds
    assert told.speedup_over_dense == pytest.approx(rows["dense"].seconds / told.seconds)


BERT = {"gpu": "h200-sxm", "engine": "model", "target": ["layer.1.output"], "runtime": "engine"}


@pytest.mark.parametrize("tokens", [100, 64])
def test_a_layer_of_a_model_has_the_remarks_of_the_model(tokens):
    """100 tokens should be padded; with 64 in torch some layers stay dense."""
    asked = BERT | {"tokens": tokens, "runtime": "engine" if tokens % 8 else "torch"}
    told = explain("bert-small", **asked)
    table = predict("bert-small", **(asked | {"target": ()}))
    assert table.whole.remarks
    assert told.remarks == table.whole.remarks
    assert told.notes[1:] == told.remarks
    assert told.document()["whole_model"] == table.document()["whole_model"]
    assert told.document()["remarks"] == table.document()["whole_model"]["remarks"]
    alike = next(row for row in table if row.layer == "layer.0.output")
    assert told.alike_s == pytest.approx(table.runs[alike.layer] * told.prediction.seconds)


def test_a_matrix_has_no_remarks_of_a_model():
    told = explained(engine="model")
    assert (told.model, told.alike_s, told.remarks) == (None, None, ())
    assert "whole_model" not in told.document()


def test_a_layer_is_explained_though_other_layers_cannot_have_its_pattern(tmp_path):
    sizes = {"hidden_size": 64, "intermediate_size": 1024, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"model_type": "llama", "vocab_size": 160, **sizes}))
    told = explain(config, **BERT | {"target": ["re:gate"], "pattern": "block:256x16"}, tokens=64)
    assert told.model is None
    (remark,) = told.remarks
    assert remark.startswith(
        "the whole model is not predicted: block:256x16 needs a matrix of 256x16 or more"
    )
