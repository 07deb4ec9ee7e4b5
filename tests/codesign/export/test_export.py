"""Exported latencies: the predictor equals `predict`, and readers of both formats get the same passes."""

import csv
import json
import subprocess
import sys

import pytest

from prunecast.cli import main
from prunecast.codesign import predict
from prunecast.codesign.export import PassPredictor, export
from prunecast.errors import BadInput

pq = pytest.importorskip("pyarrow.parquet")

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "intermediate_size": 2048,
    "vocab_size": 8192,
    "max_position_embeddings": 32768,
    "torch_dtype": "bfloat16",
}
EXPERTS = {
    **LLAMA,
    **{"architectures": ["MixtralForCausalLM"], "model_type": "mixtral"},
    **{"num_local_experts": 4, "num_experts_per_tok": 2},
}
SETTINGS = {"gpu": "h100-sxm", "engine": "model", "dtype": "bf16"}


def config(folder, content):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(content))
    return folder / "config.json"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return {"llama": config(folder / "llama", LLAMA), "experts": config(folder / "experts", EXPERTS)}


@pytest.fixture(scope="module")
def predictors(models):
    return {name: PassPredictor(model, **SETTINGS) for name, model in models.items()}


def seconds(model, workload, **more):
    settings = {**SETTINGS, "runtime": "engine", "kernels": "dense", **more}
    return predict(model, workload=workload, **settings).whole.best.seconds


@pytest.mark.parametrize("name", ["llama", "experts"])
@pytest.mark.parametrize(
    ("workload", "batch"),
    [
        ("decode:16@3000", {"decodes": [3000] * 16}),
        ("prefill:512", {"prefills": [512]}),
        ("prefill:4x512", {"prefills": [512] * 4}),
    ],
)
def test_batches_on_the_grid_are_predicted_as_by_predict(models, predictors, name, workload, batch):
    assert predictors[name].seconds(**batch) == pytest.approx(seconds(models[name], workload), rel=1e-9)


def test_batches_between_are_close_and_mixed_ones_cost_more_than_their_parts_share(models, predictors):
    one = predictors["llama"]
    assert one.seconds(prefills=[3000]) == pytest.approx(seconds(models["llama"], "prefill:3000"), rel=0.1)
    mixed = one.seconds(prefills=[512, (256, 1024)], decodes=[100, 2000, 900])
    apart = [one.seconds(prefills=[512]), one.seconds(prefills=[(256, 1024)])]
    assert max(apart) < mixed < sum(apart) + one.seconds(decodes=[100, 2000, 900])


@pytest.mark.parametrize("batch", [{}, {"prefills": [0]}, {"decodes": [-1]}, {"prefills": [(16, -1)]}])
def test_a_batch_that_is_none_is_refused(predictors, batch):
    with pytest.raises(BadInput, match="a batch needs prefills or decodes"):
        predictors["llama"].seconds(**batch)


def read_systems(folder):
    """Return table -> its rows, as AIConfigurator finds them: by the YAML of the system."""
    (system,) = [file for file in folder.glob("*.yaml") if file.stem != "query_versions"]
    where = next(line for line in system.read_text().splitlines() if line.startswith("data_dir"))
    data = folder / json.loads(where.partition(": ")[2])
    return {file.stem: pq.read_table(file).to_pylist() for file in data.glob("*/vllm/0.24.0/*.parquet")}


@pytest.mark.parametrize("name", ["llama", "experts"])
def test_products_and_attention_of_a_systems_folder_add_up_to_the_pass(models, predictors, name, tmp_path):
    export(models[name], format="aiconfigurator", out=tmp_path / "out", **SETTINGS)
    tables = read_systems(tmp_path / "out")
    tokens, context = 16, 4095
    products = [row for row in tables["gemm_perf"] if row["m"] == tokens]
    layer_ms = sum(row["latency"] for row in products if row["n"] != 8192)
    head_ms = sum(row["latency"] for row in products if row["n"] == 8192)
    (attention,) = [
        row["latency"]
        for row in tables["generation_attention_perf"]
        if (row["batch_size"], row["step"]) == (tokens, context)
    ]
    times = predictors[name].times
    norms = times.sum_of(["norm1", "norm2"])[4] + (0 if name == "experts" else times.parts["gating"][4])
    if name == "experts":
        (experts,) = [
            row["latency"]
            for row in tables["moe_perf"]
            if (row["num_tokens"], row["distribution"]) == (tokens, "power_law_1.01")
        ]
        layer_ms += experts
    found = 4 * (layer_ms + attention + 1e3 * norms) + head_ms
    assert found == pytest.approx(1e3 * predictors[name].seconds(decodes=[context] * tokens), rel=1e-3)
    assert {row["kernel_source"] for rows in tables.values() for row in rows} == {"prunecast"}


def read_bundle(folder):
    """Return table -> rows with numbers, as LLMServingSim reads them."""
    (tp,) = folder.glob("*/*/*/tp*")
    assert (tp.parent / "meta.yaml").is_file()
    found = {}
    for file in tp.glob("*.csv"):
        with file.open() as text:
            found[file.stem] = [
                {key: value if key == "layer" else float(value) for key, value in row.items()}
                for row in csv.DictReader(text)
            ]
    return found


@pytest.mark.parametrize("name", ["llama", "experts"])
def test_layers_of_a_bundle_add_up_to_the_pass(models, predictors, name, tmp_path):
    export(models[name], format="llmservingsim", out=tmp_path / "out", **SETTINGS)
    tables = read_bundle(tmp_path / "out")
    tokens, context = 16, 4096
    dense = {row["layer"]: row["time_us"] for row in tables["dense"] if row["tokens"] == tokens}
    sequence = {row["layer"]: row["time_us"] for row in tables["per_sequence"] if row["sequences"] == tokens}
    (attention,) = [
        row["time_us"]
        for row in tables["attention"]
        if (row["prefill_chunk"], row["n_decode"], row["kv_decode"]) == (0, tokens, context)
    ]
    rest = sum(dense.get(layer, 0.0) for layer in ("qkv_proj", "rotary_emb", "o_proj"))
    rest += sum(dense.get(layer, 0.0) for layer in ("gate_up_proj", "act_fn", "down_proj"))
    rest += sum(row["time_us"] for row in tables.get("moe", ()) if row["tokens"] == tokens)
    layer = rest + 2 * dense["layernorm"] + attention
    found = dense["embedding"] + 4 * layer + sequence["lm_head"] + sequence["sampler"]
    wanted = 1e6 * predictors[name].seconds(decodes=[context] * tokens)
    assert found == pytest.approx(wanted, rel=1e-4)
    pure = {row["n_decode"] for row in tables["attention"] if row["prefill_chunk"] == 0}
    assert 0.0 not in pure


def test_a_pruned_model_is_exported_with_the_sizes_of_the_dense_one(models, tmp_path):
    rows = {}
    for name, more in {"dense": {}, "pruned": {"pattern": "tile-wise:128", "sparsity": 0.75}}.items():
        times = export(models["llama"], format="aiconfigurator", out=tmp_path / name, **SETTINGS, **more)
        assert times.is_pruned == (name == "pruned")
        gemm = read_systems(tmp_path / name)["gemm_perf"]
        rows[name] = {(row["m"], row["n"], row["k"]): row["latency"] for row in gemm}
    assert rows["dense"].keys() == rows["pruned"].keys()
    large = (16384, 4096, 1024)
    assert rows["pruned"][large] < 0.6 * rows["dense"][large]


def test_a_folder_that_is_not_empty_is_refused_before_the_work(models, tmp_path, capsys):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("kept")
    given = ["export", str(models["llama"]), "--format", "llmservingsim", "-o", str(tmp_path / "out")]
    assert main(given) == 2
    err = capsys.readouterr().err.strip().splitlines()
    assert len(err) == 1
    assert "wanted an empty or a new folder" in err[0]
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["mine.txt"]


def test_an_empty_folder_is_filled_by_the_command(models, tmp_path):
    (tmp_path / "out").mkdir()
    given = ["export", str(models["llama"]), "--gpu", "h100-sxm", "--format", "llmservingsim"]
    assert main([*given, "-o", str(tmp_path / "out")]) == 0
    assert read_bundle(tmp_path / "out").keys() == {"dense", "per_sequence", "attention"}


@pytest.mark.parametrize(
    ("model", "given", "complaint"),
    [
        ("llama", ["--format", "vidur"], "format"),
        ("resnet50", ["--format", "llmservingsim"], "generates no tokens"),
        ("bert-base", ["--format", "llmservingsim"], "generates no tokens"),
        ("nowhere.safetensors", ["--format", "llmservingsim"], "nowhere"),
    ],
)
def test_what_cannot_be_exported_is_one_line(models, model, given, complaint, tmp_path, capsys):
    assert main(["export", str(models.get(model, model)), *given, "-o", str(tmp_path / "out")]) == 2
    err = capsys.readouterr().err.strip().splitlines()
    assert len(err) == 1
    assert complaint in err[0]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["llama", "experts"])
def test_aiconfigurator_itself_estimates_from_the_folder(models, predictors, name, tmp_path):
    """Needs `aiconfigurator`, which is not among the locked packages."""
    pytest.importorskip("aiconfigurator")
    export(models[name], format="aiconfigurator", out=tmp_path / "out", **SETTINGS)
    wanted = {
        "static_ctx": predictors[name].seconds(prefills=[2048] * 4),
        "static_gen": predictors[name].seconds(decodes=[2049] * 4),
    }
    for mode, own in wanted.items():
        call = [sys.executable, "-m", "aiconfigurator.main", "cli", "estimate", "--estimate-mode", mode]
        call += ["--systems-paths", str(tmp_path / "out"), "--model-path", str(models[name].parent)]
        call += ["--system", "h100_sxm", "--backend", "vllm", "--isl", "2048", "--osl", "2"]
        call += ["--batch-size", "4", "--moe-tp-size", "1", "--moe-ep-size", "1"]
        text = subprocess.run(call, capture_output=True, text=True, check=True).stdout
        label = "TTFT" if mode == "static_ctx" else "TPOT"
        (line,) = [line for line in text.splitlines() if label in line]
        assert float(line.split()[1]) == pytest.approx(1e3 * own, rel=0.1)
