"""The promise of a pruned folder: read from its recipe, and measured with its own weights and tiles."""

import json
import sys
from pathlib import Path

import pytest

from prunecast.cli import main
from prunecast.codesign.search import Targets, prune_model
from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.validation.torch_models import ModelCase
from prunecast.validation.torch_models import compare as comparing
from prunecast.validation.torch_models.compare import beside
from prunecast.validation.torch_models.promise import Promise

torch = pytest.importorskip("torch")
GPU = load_gpu("h200-sxm")
SIZES = {"vocab_size": 512, "num_hidden_layers": 1, "num_attention_heads": 4, "hidden_size": 128}
SIZES |= {"intermediate_size": 256, "max_position_embeddings": 64}
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def transformers():
    # From the repository's root, transformers would take its link `kernels` for the package of that name
    here, before = {"", ".", str(Path.cwd())}, list(sys.path)
    sys.path[:] = [each for each in sys.path if each not in here]
    yield pytest.importorskip("transformers")
    sys.path[:] = before


@pytest.fixture(scope="module", params=["Llama", "Bert"])
def folder(request, transformers, tmp_path_factory):
    root = tmp_path_factory.mktemp("promise")
    torch.manual_seed(0)
    config = getattr(transformers, f"{request.param}Config")(**SIZES)
    name = {"Llama": "LlamaForCausalLM", "Bert": "BertModel"}[request.param]
    getattr(transformers, name)(config).half().save_pretrained(root / "source")
    options = {"gpu": "h200-sxm", "engine": "model", "runtime": "torch", "workload": "prefill:2x32"}
    prune_model(root / "source", Targets(sparsity=0.4), out=root / "out", families=["atp"], **options)
    return root / "out"


def test_a_promise_is_that_of_the_recipe(folder):
    recipe, promise = json.loads((folder / "recipe.json").read_text()), Promise.of(str(folder))
    assert (promise.run.batch, promise.run.tokens, promise.gpu) == (2, 32, "h200-sxm")
    assert promise.share == pytest.approx(recipe["seconds"] / recipe["dense_seconds"])
    case = ModelCase(str(folder), promise.run, promise=promise)
    found = beside(case, {"us": {"dense compiled": 100.0, "sparse compiled": 50.0}}, GPU, engine="simulator")
    assert found.speedup.predicted == pytest.approx(1.0 / promise.share)
    assert f"promised {promise.share:.1%} of the dense time, measured 50.0%" in found.notes[0]


def test_a_promise_is_kept_within_three_points(folder):
    promise = Promise.of(str(folder))._replace(dense_seconds=1.0, seconds=0.6)
    case = ModelCase(str(folder), promise.run, promise=promise)
    for measured, words in ((62.9, ": kept"), (63.1, ": not kept"), (40.0, ": kept")):
        us = {"dense compiled": 100.0, "sparse compiled": measured}
        assert words in beside(case, {"us": us}, GPU, engine="simulator").notes[0]


@pytest.mark.parametrize(
    ("options", "is_promised"),
    [([], True), (["--workload", "prefill:8"], False), (["--pattern", "tile-wise:16"], False)],
)
def test_a_pass_or_pattern_that_the_user_names_is_no_promise(folder, monkeypatch, options, is_promised):
    seen = []

    def validate(case, **others):
        seen.append(case)
        raise BadInput("seen")

    monkeypatch.setattr(comparing, "validate_model", validate)
    assert main(["validate", "--model", str(folder), *options]) == 2
    assert [case.promise is not None for case in seen] == [is_promised]


@pytest.fixture
def measuring(monkeypatch):
    """The module that measures, whose models run on the CPU; graphs, compilers and clocks are fakes."""
    from prunecast.validation.torch_models import measure as measuring
    from prunecast.validation.torch_models.timing import KernelTime, Trace

    monkeypatch.setattr(measuring, "DEVICE", "cpu")
    monkeypatch.setattr(measuring, "captured", lambda forward: forward)
    monkeypatch.setattr(measuring, "times_us", lambda made, rounds: dict.fromkeys(made, 1.0))
    monkeypatch.setattr(measuring, "traced", lambda forward: Trace((KernelTime("a", 3.0, 0.5),), 1.0, 2.0))
    monkeypatch.setattr(torch, "compile", lambda model: model)
    return measuring


def test_the_pruned_folder_is_measured_with_its_tiles_and_a_dense_model_without_zeros(
    folder, measuring, monkeypatch
):
    dense = []
    without_zeros = measuring.without_zeros
    monkeypatch.setattr(measuring, "without_zeros", lambda model: dense.append(without_zeros(model)))
    promise = Promise.of(str(folder))
    case = ModelCase(str(folder), promise.run, promise=promise)
    row = measuring.measure(case, "h200-sxm", rounds=1, say=lambda line: None)
    assert not row["refused"]
    assert max(row["error"].values()) < 0.01
    weights = [p for p in dense[0].parameters() if p.dim() > 1 and "embed" not in str(p.shape)]
    assert sum(int((p == 0).sum()) for p in weights) <= 128  # only the row of the padding token
    assert json.loads(json.dumps(row))["promise"]["conditions"] == promise.conditions.document()
    assert list(row["us"]) == list(measuring.VARIANTS)
    trace = {"busy_us": 1.0, "span_us": 2.0, "kernels": [["a", 3.0, 0.5, 0.0]]}
    assert row["traces"] == dict.fromkeys(measuring.COMPILED, trace)


def test_what_fails_has_its_reason_and_no_time(folder, measuring, monkeypatch):
    """Without a compiler the other variants are measured; a trace is only made of what is compiled."""

    def no_compiler(model):
        raise RuntimeError("no compiler here")

    monkeypatch.setattr(torch, "compile", no_compiler)
    promise, told = Promise.of(str(folder)), []
    case = ModelCase(str(folder), promise.run, promise=promise)
    row = measuring.measure(case, "h200-sxm", rounds=1, say=told.append)
    assert row["refused"] == dict.fromkeys(measuring.COMPILED, "RuntimeError: no compiler here")
    plain = [name for name in measuring.VARIANTS if name not in measuring.COMPILED]
    assert list(row["us"]) == list(row["error"]) == plain
    assert row["traces"] == {}
    assert [line.split(": ")[1].split(",")[0] for line in told] == list(measuring.VARIANTS)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"runtime": "engine"}, "prune --runtime torch"),
        ({"workload": "prefill:2,prefill:3"}, "measures one pass"),
        ({"seconds": "soon"}, "wanted the recipe of"),
    ],
)
def test_what_promises_nothing_that_can_be_measured_is_one_line(folder, tmp_path, change, said):
    recipe = json.loads((folder / "recipe.json").read_text())
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    (tmp_path / "recipe.json").write_text(json.dumps(recipe | change))
    with pytest.raises(BadInput, match=said):
        Promise.of(str(tmp_path))


def test_a_promise_has_the_conditions_of_the_recipe(folder, tmp_path):
    recipe = json.loads((folder / "recipe.json").read_text()) | {"state": "sustained", "l2": "warm"}
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    (tmp_path / "recipe.json").write_text(json.dumps(recipe))
    promise = Promise.of(str(tmp_path))
    assert promise.conditions.words == "sustained, launched in a graph, operands in L2"
    us = {"dense compiled": 100.0, "sparse compiled": 50.0}
    document = beside(
        ModelCase(str(folder), promise.run, promise=promise), {"us": us}, GPU, engine="model"
    ).document()
    assert document.items() >= {"state": "sustained", "launch": "graph", "l2": "warm"}.items()


def test_a_folder_without_a_search_promises_nothing(folder, tmp_path):
    recipe = json.loads((folder / "recipe.json").read_text())
    del recipe["targets"]
    (tmp_path / "config.json").write_text("{}")
    assert Promise.of(str(tmp_path)) is None
    (tmp_path / "recipe.json").write_text(json.dumps(recipe))
    assert Promise.of(str(tmp_path)) is None
    assert Promise.of("bert-base") is None
