"""Models beside their predictions: the record judges, fakes measure, and no GPU is one line."""

import json
import sys
from pathlib import Path

import pytest

from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.launch import USUAL
from prunecast.validation.torch_models import ModelCase
from prunecast.validation.torch_models import compare as comparing
from prunecast.validation.torch_models.compare import beside, validate_model
from prunecast.validation.torch_models.promise import Promise
from prunecast.workload.graph import Pass
from prunecast.workload.graph.shapes import Transformer

RECORD = Path("benchmarks/measured/h200-sxm-pytorch-models-2026-11-23.json")
GPU = load_gpu("h200-sxm")
MODELS = [m for m in json.loads(RECORD.read_text(encoding="utf-8"))["models"] if m["use"] == "judge"]
US = {"dense compiled": 900.0, "dense zeros compiled": 100.0, "dense eager": 2000.0, "sparse compiled": 600.0}


def case_of(model: dict) -> ModelCase:
    return ModelCase(
        model["model"], Pass(**model["run"]), model["sparsity"], model["pattern"], model["blocks"]
    )


@pytest.mark.parametrize("model", MODELS, ids=[m["case"] for m in MODELS])
def test_whole_models_are_predicted_within_8_percent(model):
    found = beside(case_of(model), model, GPU, engine="model")
    assert abs(found.dense.error) < 0.08
    assert abs(found.sparse.error) < 0.08


def test_the_fastest_of_each_kind_counts_but_none_with_the_zeros_of_the_pruned_model(monkeypatch):
    case = ModelCase("bert-small", Pass(1, 128, label="prefill:128"))
    found = beside(case, {"us": US}, GPU, engine="model")
    assert (found.dense.variant, found.dense.measured_us) == ("dense compiled", 900.0)
    assert (found.sparse.variant, found.sparse.measured_us) == ("sparse compiled", 600.0)
    assert found.speedup.measured == 1.5
    assert found.dense.error == pytest.approx(found.dense.predicted_us / 900.0 - 1.0)


def test_a_model_whose_sparse_side_did_not_run_is_refused():
    with pytest.raises(BadInput, match="no sparse variant ran"):
        beside(ModelCase("bert-small", Pass(1, 128)), {"us": {"dense compiled": 1.0}}, GPU, engine="model")


def test_a_record_is_written_whole(monkeypatch, tmp_path):
    monkeypatch.setattr(comparing, "_check_gpu", lambda gpu: None)
    monkeypatch.setattr(comparing, "_measure", lambda *_: {"us": US, "refused": {}})
    out = tmp_path / "record.json"
    found = validate_model(
        ModelCase("bert-small", Pass(1, 128, label="prefill:128")), engine="model", record=out
    )
    document = json.loads(out.read_text(encoding="utf-8"))
    assert document == json.loads(json.dumps(found.document()))
    assert [row["what"] for row in document["rows"]] == ["dense", "sparse"]
    ratio, (dense, sparse) = document["speedup"], document["rows"]
    for kind in ("measured", "predicted"):
        assert ratio[kind] == pytest.approx(dense[f"{kind}_us"] / sparse[f"{kind}_us"])
    assert ratio["error"] == pytest.approx((1.0 + dense["error"]) / (1.0 + sparse["error"]) - 1.0)


def test_no_record_is_written_over_a_file_or_twice(monkeypatch, tmp_path):
    monkeypatch.setattr(comparing, "_check_gpu", lambda gpu: None)
    monkeypatch.setattr(comparing, "_measure", lambda *_: pytest.fail("measured before the check"))
    out = tmp_path / "record.json"
    out.write_text("dear")
    with pytest.raises(BadInput, match=r"--record .*exists"):
        validate_model(ModelCase("bert-small", Pass(1, 128)), engine="model", record=out)
    assert out.read_text() == "dear"


@pytest.mark.parametrize(
    ("sparse_us", "said"),
    [(529.0, "52.9%: kept (3 points)"), (531.0, "53.1%: not kept (3 points)"), (100.0, "10.0%: kept")],
)
def test_a_promise_is_kept_up_to_three_points(sparse_us, said):
    run = Pass(1, 128)
    promise = Promise(run, "h200-sxm", "model", dense_seconds=2e-3, seconds=1e-3, conditions=USUAL)
    case = ModelCase("bert-small", run, promise=promise)
    found = beside(case, {"us": {"dense eager": 1000.0, "sparse eager": sparse_us}}, GPU, engine="model")
    assert (found.dense.predicted_us, found.sparse.predicted_us) == (2000.0, 1000.0)
    assert f"promised 50.0% of the dense time, measured {said}" in found.promise_kept


def test_cells_have_the_numbers_of_the_rows_in_their_units():
    found = beside(ModelCase("bert-small", Pass(1, 128)), {"us": US}, GPU, engine="model")
    dense, sparse, ratio = found.cells()
    for cells, each in ((dense, found.dense), (sparse, found.sparse)):
        assert cells["measured"] == f"{each.measured_us:.1f} us"
        assert cells["predicted"] == f"{each.predicted_us:.1f} us"
        assert cells["fastest as"] == each.variant
    assert ratio["measured"] == "1.50x"
    assert ratio["predicted"] == f"{found.dense.predicted_us / found.sparse.predicted_us:.2f}x"
    errors = [float(cells["error %"]) for cells in found.cells()]
    wanted = [*(row["error"] for row in found.frame_rows()), found.speedup.error]
    assert errors == pytest.approx([100 * error for error in wanted], abs=0.06)


def test_what_cannot_be_measured_is_one_line_and_writes_nothing(monkeypatch, tmp_path):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    out = tmp_path / "record.json"
    with pytest.raises(BadInput, match="needs PyTorch with CUDA and a GPU"):
        validate_model(ModelCase("bert-base", Pass(1, 128)), record=out)
    with pytest.raises(BadInput, match="fp16 or bf16"):
        validate_model(ModelCase("bert-base", Pass(1, 128)), dtype="fp32")
    assert not list(tmp_path.iterdir())


SHAPES = {
    "tiny-llama": Transformer(
        layers=1, hidden=64, heads=4, key_heads=2, feed_forward=128, gated=True, rms_norm=True, rotary=True
    ),
    "tiny-bert": Transformer(layers=1, hidden=64, heads=4, feed_forward=128, norm_first=False, causal=False),
    "tiny-vit": Transformer(layers=1, hidden=64, heads=4, feed_forward=128, causal=False, patch=32),
    "tiny-gpt": Transformer(layers=1, hidden=64, heads=4, feed_forward=128),
}
RUNS = {
    "tiny-llama": [Pass(1, 32, label="a"), Pass(3, 1, 16, label="b")],
    "tiny-bert": [Pass(2, 16)],
    "tiny-vit": [Pass(2)],
    "tiny-gpt": [Pass(2, 16)],
}


@pytest.mark.parametrize(("name", "run"), [(name, run) for name, runs in RUNS.items() for run in runs])
def test_measuring_with_fakes_of_the_gpu(monkeypatch, name, run):
    """Models are built, pruned and run on the CPU; graphs, compilers and clocks are fakes."""
    torch = pytest.importorskip("torch")
    # From the repository's root, transformers would take its link `kernels` for the package of that name
    here = {"", ".", str(Path.cwd())}
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each not in here])
    pytest.importorskip("transformers")
    from prunecast.validation.torch_models import measure as measuring
    from prunecast.validation.torch_models.timing import Trace
    from prunecast.workload.graph import shapes

    monkeypatch.setitem(shapes.transformers(), name, SHAPES[name])
    monkeypatch.setattr(measuring, "DEVICE", "cpu")
    monkeypatch.setattr(measuring, "captured", lambda forward: forward)
    monkeypatch.setattr(
        measuring, "times_us", lambda made, rounds: {n: (f(), 1.0)[1] for n, f in made.items()}
    )
    monkeypatch.setattr(measuring, "traced", lambda forward: Trace((), 1.0, 2.0))
    monkeypatch.setattr(torch, "compile", lambda model: model)
    case = ModelCase(name, run, 0.5, "tile-wise:16")
    row = measuring.measure(case, "h200-sxm", rounds=1, say=lambda line: None)
    assert not row["refused"]
    assert set(row["us"]) == set(measuring.VARIANTS) == set(row["error"])
    assert max(row["error"].values()) < 0.01  # of fp16: the sparse model computes what its dense twin does
    json.dumps(row)
