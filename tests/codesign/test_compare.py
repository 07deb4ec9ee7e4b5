import json

import numpy as np
import pytest

from prunecast.codesign import compare, compare_gpus, predict
from prunecast.errors import BadInput
from tests.codesign.weights import uneven

W = {"a": uneven(128, 128), "b": uneven(256, 128)}
OPTIONS = {"tokens": 256, "engine": "model", "kernels": ["tile-wise"]}


def saved(path, **options):
    table = predict(W, **{"gpu": "h200-sxm", **OPTIONS, "crossovers": False, **options})
    table.save(path)
    return table


def test_rows_are_matched_by_layer_and_kernel(tmp_path):
    first = saved(tmp_path / "a.json")
    second = saved(tmp_path / "b.json", gpu="l4", kernels=["tile-wise", "csr"], ignore=["b"])
    comparison = compare(tmp_path / "a.json", tmp_path / "b.json")
    assert comparison.columns == ("a.json (h200-sxm)", "b.json (l4)")
    assert [(row.layer, row.kernel) for row in comparison.rows] == [("a", "dense"), ("a", "tile-wise")]
    assert comparison.rows[1].seconds == (first[1].seconds, second[1].seconds)
    assert comparison.rows[1].ratio == (1.0, second[1].seconds / first[1].seconds)
    assert comparison.unmatched == ("b, dense, n=256", "b, tile-wise, n=256", "a, csr, n=256")


def test_a_file_with_itself_has_ratio_one(tmp_path):
    saved(tmp_path / "a.json")
    comparison = compare(tmp_path / "a.json", tmp_path / "a.json")
    assert {row.ratio for row in comparison.rows} == {(1.0, 1.0)}
    assert comparison.unmatched == ()


def test_a_file_with_conditions_in_its_rows_alone_is_of_these_conditions(tmp_path):
    """As version 0.2.0 wrote files."""
    saved(tmp_path / "a.json", state="sustained")
    document = json.loads((tmp_path / "a.json").read_text())
    del document["state"]
    (tmp_path / "a.json").write_text(json.dumps(document))
    comparison = compare(tmp_path / "a.json", tmp_path / "a.json")
    assert {each["state"] for each in comparison.document()["conditions"]} == {"sustained"}


@pytest.mark.parametrize("name", ["state", "launch", "l2"])
def test_a_file_with_unknown_conditions_is_named(tmp_path, name):
    for file in ("a.json", "b.json"):
        saved(tmp_path / file)
    document = json.loads((tmp_path / "b.json").read_text())
    (tmp_path / "b.json").write_text(json.dumps({**document, name: "tepid"}))
    with pytest.raises(BadInput, match=rf"b\.json: {name} must be one of .*, got 'tepid'"):
        compare(tmp_path / "a.json", tmp_path / "b.json")


def test_each_column_has_the_conditions_of_its_times(tmp_path):
    asked = {"a": {"state": "sustained"}, "b": {"launch": "stream", "l2": "warm"}}
    for name, options in asked.items():
        saved(tmp_path / f"{name}.json", **options)
    comparison = compare(tmp_path / "a.json", tmp_path / "b.json")
    usual = {"state": "burst", "launch": "graph", "l2": "cold"}
    assert comparison.document()["conditions"] == [usual | options for options in asked.values()]
    several = compare_gpus(W, gpus=["h200-sxm", "l4"], **OPTIONS, state="sustained")
    assert several.document()["conditions"] == [usual | asked["a"]] * 2


def test_one_model_on_several_gpus():
    comparison = compare_gpus(W, gpus=["h200-sxm", "l4", "t4"], **OPTIONS)
    assert comparison.columns == ("h200-sxm", "l4", "t4")
    on_l4 = predict(W, gpu="l4", **OPTIONS, crossovers=False)
    assert [row.seconds[1] for row in comparison.rows] == [row.seconds for row in on_l4]
    assert all(row.ratio[1] == row.seconds[1] / row.seconds[0] for row in comparison.rows)
    assert comparison.document()["columns"] == ["h200-sxm", "l4", "t4"]


def test_totals_of_layers_on_each_gpu_are_sorted():
    comparison = compare_gpus(W, gpus=["t4", "h200-sxm", "gtx-1080-ti"], dtype="fp32", **OPTIONS)
    seconds = [row.seconds for row in comparison.gpus]
    assert seconds == sorted(seconds)
    for row in comparison.gpus:
        table = predict(W, gpu=row.gpu, dtype="fp32", **OPTIONS, crossovers=False)
        assert (row.dense_seconds, row.seconds) == (table.dense_seconds, table.best_seconds)
        assert row.seconds_low < row.seconds < row.seconds_high
        assert (row.per_s, row.memory_bytes, row.fits) == (None, None, None)
    evidence = {row.gpu: row.evidence for row in comparison.gpus}
    assert evidence == {"h200-sxm": "measured", "t4": "published", "gtx-1080-ti": "guess"}


def test_a_gpu_that_a_model_does_not_fit_comes_last():
    asked = {"workload": "decode:8@65536", "engine": "model", "kernels": ["stspmm"]}
    comparison = compare_gpus("llama-3.2-1b", gpus=["t4", "rtx-4090", "a100-sxm4-80gb"], **asked)
    assert [row.fits for row in comparison.gpus] == [True, True, False]
    assert comparison.gpus[-1].gpu == "t4"
    for row in comparison.gpus:
        assert row.per_s == pytest.approx(8 / row.seconds)
        assert row.fits == (row.memory_bytes <= 0.9 * row.gpu_bytes)
        assert row.fits == (row.largest_batch >= 8)
    alone = predict("llama-3.2-1b", gpu="rtx-4090", crossovers=False, **asked).whole.phases[0].best
    first = next(row for row in comparison.gpus if row.gpu == "rtx-4090")
    assert (first.seconds, first.seconds_low, first.seconds_high) == (
        *(alone.time.seconds, alone.low_s, alone.high_s),
    )
    assert [row["gpu"] for row in comparison.document()["gpus"]] == [row.gpu for row in comparison.gpus]
    comparison.plot()


def test_nothing_in_common(tmp_path):
    saved(tmp_path / "a.json")
    saved(tmp_path / "b.json", tokens=512)
    with pytest.raises(BadInput, match="share no layer, kernel and number of tokens"):
        compare(tmp_path / "a.json", tmp_path / "b.json")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"seconds": -1.0}, "seconds must be 1e-12 to 1e\\+09, got -1.0"),
        ({"seconds": "fast"}, r"predictions\[0\] must have seconds as float"),
        ({"layer": None}, r"predictions\[0\] must have layer as str"),
    ],
)
def test_rows_that_are_none(tmp_path, change, complaint):
    path = tmp_path / "a.json"
    saved(path)
    document = json.loads(path.read_text())
    document["predictions"][0].update(change)
    path.write_text(json.dumps(document))
    with pytest.raises(BadInput, match=complaint):
        compare(path, path)


def test_a_kernel_that_some_gpus_lack_keeps_its_row():
    weights = np.random.default_rng(0).standard_normal((128, 128)).astype(np.float16)
    gpus = ("h200-sxm", "t4", "a100-sxm4-80gb")
    comparison = compare_gpus({"a": weights}, gpus=gpus, tokens=64, engine="model", kernels="all")
    (row,) = (row for row in comparison.rows if row.kernel == "2:4")
    assert [time is None for time in row.seconds] == [False, True, False]
    assert [ratio is None for ratio in row.ratio] == [False, True, False]


def test_several_gpus_are_predicted_as_each_alone():
    weights = {"a": uneven(256, 256), "b": uneven(128, 256, seed=1)}
    options = {"tokens": 256, "engine": "model"}
    both = compare_gpus(weights, gpus=["h200-sxm", "t4"], **options)
    for place, gpu in enumerate(["h200-sxm", "t4"]):
        alone = {
            (row.layer, row.kernel): row.seconds
            for row in predict(weights, gpu=gpu, crossovers=False, **options)
        }
        found = {(row.layer, row.kernel): row.seconds[place] for row in both.rows}
        assert found == {key: alone[key] for key in found}


def test_kernels_of_a_model_that_cannot_win_are_predicted_by_the_closed_form():
    asked = {"workload": "batch:1", "runtime": "engine", "target": ["layer.0.up"]}
    table = predict("bert-small", gpu="h200-sxm", **asked)
    for rows in table.layers():
        best = min(row.seconds for row in rows if row.kernel != "dense")
        by_form = [row for row in rows if row.engine == "model"]
        assert by_form
        assert min(row.seconds for row in by_form) > best
        assert rows[0].engine == "simulator"


def test_gpus_are_named_once_and_messages_name_the_function():
    with pytest.raises(TypeError, match="compare_gpus: wanted the GPUs as gpus=, got gpu="):
        compare_gpus(W, gpus=["h200-sxm", "l4"], gpu="h200-sxm", **OPTIONS)
    with pytest.raises(TypeError, match="compare_gpus: tokens must be a whole number or None, got 'x'"):
        compare_gpus(W, gpus=["h200-sxm", "l4"], tokens="x")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seconds": "1"}, "predictions[0] must have seconds as float, got '1'"),
        ({"n": True}, "predictions[0] must have n as int, got True"),
    ],
)
def test_a_row_that_is_no_prediction_is_refused_with_what_it_holds(tmp_path, change, words):
    path = tmp_path / "a.json"
    saved(path)
    document = json.loads(path.read_text())
    document["predictions"][0] |= change
    path.write_text(json.dumps(document))
    with pytest.raises(BadInput) as refusal:
        compare(path, path)
    assert words in str(refusal.value)
