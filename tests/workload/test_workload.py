"""Standard models and files as a workload runs them."""

import contextlib

import numpy as np
import onnx
import pytest

from prunecast.codesign import predict
from prunecast.codesign.checked_settings import settings_of
from prunecast.codesign.prepare_job import workload_of
from prunecast.codesign.search.prune_model import search_of
from prunecast.errors import BadInput
from prunecast.workload import load, random_weights, table_rows
from prunecast.workload.conv_settings import ConvSettings
from prunecast.workload.graph import Pass, load_pass, parse_workload
from prunecast.workload.load import load_workload
from prunecast.workload.table_rows import rows_of
from tests import onnx_files

SETTINGS = {"gpu": "h200-sxm", "engine": "model", "crossovers": False, "kernels": ["stspmm"]}


def weights(m, k, seed=0):
    return np.random.default_rng(seed).standard_normal((m, k)).astype(np.float16)


def test_rows_stand_for_all_products_of_their_shape():
    table = predict("whisper-tiny", workload="decode:2@100", **SETTINGS)
    (run,) = parse_workload("decode:2@100")
    products = load_pass("whisper-tiny", run).products
    pruned = {name: product for name, product in products.items() if name != "head"}
    assert sum(table.runs.values()) == len(pruned)
    shapes = {(p.m, p.k, p.n) for p in pruned.values()}
    assert sorted((row.m, row.k, row.n) for row in table if row.kernel == "dense") == sorted(shapes)
    seconds = {(row.m, row.k): row.seconds for row in table if row.kernel == "dense"}
    assert table.dense_seconds == pytest.approx(sum(seconds[p.m, p.k] for p in pruned.values()))


def test_the_whole_model_has_what_lies_outside_of_the_rows():
    table = predict("whisper-tiny", workload="decode:2@100", **SETTINGS)
    assert table.whole.dense.seconds > table.dense_seconds
    assert table.whole.dense.transpose_seconds == 0.0
    more = predict("whisper-tiny", workload="decode:2@10000", **SETTINGS)
    assert more.dense_seconds == table.dense_seconds
    assert more.whole.dense.seconds_by_kind["attention"] > table.whole.dense.seconds_by_kind["attention"]


def test_a_mix_is_the_mean_of_its_passes():
    parts = [predict("whisper-tiny", workload=text, **SETTINGS) for text in ("batch:2", "decode:2@100")]
    mixed = predict("whisper-tiny", workload="batch:2=1,decode:2@100=3", **SETTINGS)
    for name in ("dense_seconds", "best_seconds"):
        first, then = (getattr(table, name) for table in parts)
        assert getattr(mixed, name) == pytest.approx(0.25 * first + 0.75 * then)
    first, then = (table.whole.dense.seconds for table in parts)
    assert mixed.whole.dense.seconds == pytest.approx(0.25 * first + 0.75 * then)


def test_layers_of_a_file_have_the_tokens_of_each_pass():
    layers = {"a": weights(256, 256)}
    mixed = predict(layers, workload="prefill:512=1,decode:4@99=1", **SETTINGS)
    assert [(row.layer, row.n) for row in mixed if row.kernel == "dense"] == [
        ("a prefill:512", 512),
        ("a decode:4@99", 4),
    ]
    alone = [predict(layers, tokens=n, l2="model", **SETTINGS) for n in (512, 4)]
    assert mixed.best_seconds == pytest.approx(sum(table.best_seconds for table in alone) / 2)
    assert mixed.whole is None


@pytest.mark.parametrize(
    ("source", "said", "state"),
    [
        ({"a": weights(1024, 1024)}, {"tokens": 2048}, "cold"),
        ({"a": weights(1024, 1024)}, {"workload": "prefill:2048"}, "model"),
        ("bert-small", {"workload": "batch:4", "runtime": "engine"}, "model"),
        ("bert-small", {"runtime": "engine"}, "model"),
        ("bert-small", {}, "cold"),
    ],
)
def test_layers_of_a_model_find_b_in_l2(source, said, state):
    usual, *others = (predict(source, l2=l2, **said, **SETTINGS) for l2 in (None, "warm", "model", "cold"))
    same = dict(zip(("warm", "model", "cold"), others, strict=True))[state]
    assert usual.provenance.conditions.l2 == same.provenance.conditions.l2
    assert [row.seconds for row in usual] == [row.seconds for row in same]
    times = [table.dense_seconds for table in others]
    assert times == sorted(times)
    assert times[0] < times[-1]


def test_weights_of_a_model_count_once_whatever_its_passes():
    layers = {"a": weights(1024, 1024), "b": weights(512, 512)}
    once, twice = (
        predict(layers, workload=text, **SETTINGS).provenance.conditions.l2
        for text in ("prefill:64", "prefill:64=1,decode:4@9=1")
    )
    assert once == twice == ("model", 2.0 * (1024 * 1024 + 512 * 512))
    graph = load_pass("bert-small", parse_workload("batch:2")[0])
    found = predict("bert-small", workload="batch:2", runtime="engine", **SETTINGS).provenance.conditions.l2
    assert found.weight_bytes == 2 * graph.weights


def test_experts_of_a_file_share_the_tokens_of_a_pass():
    layers = {f"mlp.experts.{i}.up.weight": weights(256, 256, i) for i in range(4)}
    table = predict(layers, workload="prefill:512", experts_per_token=1, **SETTINGS)
    assert {row.n for row in table} == {128}


def test_what_is_asked_and_found_stands_in_the_document():
    document = predict("whisper-tiny", workload="decode:2@100", **SETTINGS).document()
    assert document["asked"]["workload"] == "decode:2@100"
    assert document["whole_model"]["dense"]["seconds"] > document["whole_model"]["best"]["seconds"] * 0.1
    plain = predict({"a": weights(64, 64)}, tokens=8, **SETTINGS).document()
    assert "runs" not in plain
    assert "workload" not in plain["asked"]


def test_first_and_last_layers_are_left_out_unless_named():
    table = predict("whisper-tiny", workload="decode:2@100", **SETTINGS)
    assert [skipped.layer for skipped in table.skipped] == ["head", "torch"]
    named = predict("whisper-tiny", workload="decode:2@100", target=["head"], **SETTINGS)
    assert {row.layer for row in named} == {"head"}


def test_convolutions_of_a_model_have_their_sizes():
    table = predict("resnet18", target=["re:^stage1"], workload="batch:2", **SETTINGS)
    assert {row.n for row in table} == {2 * 56 * 56}
    assert set(table.convolutions) == {row.layer for row in table}


@pytest.mark.parametrize(
    ("source", "said", "words"),
    [
        ("bert-small", {"workload": "decode:1@5"}, "one by one"),
        ("bert-small", {"workload": "batch:1", "tokens": 5}, "exclude each other"),
        ("bert-small", {"target": ["nothing"]}, "matches no tensor"),
        ("model.onnx", {"workload": "batch:1"}, "says its sizes"),
        ({"a": weights(64, 64)}, {"workload": "decode:1"}, "must be like"),
    ],
)
def test_bad_workloads(source, said, words):
    with pytest.raises(BadInput, match=words):
        predict(source, **{**SETTINGS, **said})


@pytest.mark.parametrize(("normals", "drawn"), [(2**26, 300), (7000, 40)])
@pytest.mark.parametrize("held", [2**23, 4000])
def test_drawn_weights_are_normals_scaled_by_row_and_column(monkeypatch, normals, drawn, held):
    monkeypatch.setattr(random_weights, "HELD_TOGETHER", held)
    monkeypatch.setattr(random_weights, "MOST_NORMALS", normals)
    monkeypatch.setattr(random_weights, "SCALED_AT_A_TIME", 3500)
    rng = np.random.default_rng((4, 2))
    of_weight = np.resize(rng.standard_normal((drawn, 175), np.float32), (300, 175))
    of_column = np.exp(0.5 * rng.standard_normal(175, np.float32))
    of_row = np.exp(0.3 * rng.standard_normal((300, 1), np.float32))
    want = np.abs(of_weight * of_column * of_row)
    np.testing.assert_array_equal(random_weights.heavy_tailed((300, 175), (4, 2)), want)
    half = random_weights.heavy_tailed((300, 175), (4, 2), np.float16)
    np.testing.assert_array_equal(half, want.astype(np.float16))


@pytest.mark.parametrize(("name", "shares"), [("llama-2-7b", True), ("bert-base", False)])
def test_layers_of_one_role_of_a_large_model_share_a_draw(name, shares):
    layers = load_workload(name, [Pass(1, 64)]).layers
    loads = [layers[f"layer.{place}.down"].load for place in (0, 1)]
    assert (loads[0] is loads[1]) == shares
    assert layers["layer.0.down"].load is not layers["layer.0.output"].load


@pytest.mark.parametrize("more", [0, 1])
def test_the_largest_matrix_that_is_drawn_has_the_most_elements(more, monkeypatch):
    workload = load_workload("bert-base", [Pass(1, 64)], runtime="engine")
    largest = max(layer.size for layer in workload.layers.values())
    monkeypatch.setattr(table_rows, "MOST_DRAWN", largest - more)
    with pytest.raises(BadInput, match="at most") if more else contextlib.nullcontext():
        assert rows_of(workload)
    joined = max(
        layer.size for layer in load_workload("bert-base", [Pass(1, 64)], runtime="torch").layers.values()
    )
    monkeypatch.setattr(load, "MOST_DRAWN", joined - more)
    with pytest.raises(BadInput, match="--runtime engine") if more else contextlib.nullcontext():
        load_workload("bert-base", [Pass(1, 64)], runtime="torch")


@pytest.mark.parametrize("batch", [None, 1, 3])
def test_a_batch_is_that_of_the_model(batch):
    table = predict("resnet18", convolutions=ConvSettings(batch=batch), **SETTINGS)
    images = batch or 8
    assert table.provenance.workload == f"batch:{images}"
    assert {row.n % images for row in table} == {0}
    assert min(row.n for row in table) == 7 * 7 * images


def test_predict_and_prune_load_the_same_layers(tmp_path):
    """The rows of `predict` are the layers of a search, with the tokens of its passes."""
    onnx.save(onnx_files.attention(64), tmp_path / "m.onnx")
    sources = {
        "whisper-tiny": {"workload": "batch:2=1,decode:2@100=3"},
        "resnet50": {"batch": 4},
        str(tmp_path / "m.onnx"): {"batch": 2, "tokens": 32},
    }
    for source, asked in sources.items():
        found = search_of(source, gpu="h200-sxm", engine="model", **asked).workload
        batch = asked.get("batch")
        given = {name: value for name, value in asked.items() if name != "batch"}
        convolutions = ConvSettings(batch=batch)
        settings = settings_of(source, {"gpu": "h200-sxm", **given, "convolutions": convolutions})
        predicted = workload_of(source, settings)
        assert list(predicted.layers) == list(found.layers)
        for name, layer in predicted.layers.items():
            other = found.layers[name]
            assert (layer.shape, layer.tokens, layer.count) == (other.shape, other.tokens, other.count)
            assert layer.convolution == other.convolution
        assert predicted.model_weights == found.model_weights


def test_a_row_runs_as_often_as_its_products(tmp_path):
    (graph,) = [load_pass("whisper-tiny", run) for run in parse_workload("decode:2@100")]
    found = load_workload("whisper-tiny", parse_workload("decode:2@100"))
    rows = rows_of(found)
    assert sorted(name for row in rows.values() for name in row.stands_for) == sorted(found.layers)
    for row in rows.values():
        assert row.runs == sum(graph[name].runs for name in row.stands_for)
        assert {(graph[p].m, graph[p].k, graph[p].n) for p in row.stands_for} == {(*row.shape, row.n)}


def test_experts_that_the_model_states_are_no_option():
    asked = {"workload": "decode:1@8", **SETTINGS}
    with pytest.raises(BadInput, match="experts-per-token 4 has no effect: the model states it"):
        predict("mixtral-8x7b", experts_per_token=4, **asked)
    with pytest.raises(BadInput, match="experts-per-token must be at least 1, got 0"):
        predict("mixtral-8x7b", experts_per_token=0, **asked)
    experts = {f"mlp.experts.{i}.up.weight": weights(64, 64, i) for i in range(4)}
    usual, two = (
        predict(experts, workload="prefill:64", **more, **SETTINGS).best_seconds
        for more in ({}, {"experts_per_token": 2})
    )
    assert usual == two
