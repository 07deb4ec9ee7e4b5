"""Exported latencies: the predictor equals `predict`, and readers of both formats get the same passes."""

import csv
import json
import re
import subprocess
import sys
from itertools import pairwise

import pytest

from prunecast.cli import main
from prunecast.codesign import predict, prune
from prunecast.codesign.export import PassPredictor, aiconfigurator, export, llmservingsim
from prunecast.codesign.export.aiconfigurator import tensor_rate
from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.workload.layers import Removed

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


def test_a_bundle_says_what_was_predicted_and_that_nothing_was_measured(predictors):
    times = predictors["llama"].times
    found = llmservingsim.meta(times, "bf16")
    assert (found["gpu"], found["hardware"]) == (times.gpu.title, "h100-sxm")
    assert (found["variant"], found["tp_degrees"]) == ("bf16", [1])
    assert found["skew_profile"] == found["skew_fit"] == {"enabled": False}
    assert found["attention_grid"] == {"max_kv": 32768}
    assert found["engine_effective"] == {"max_num_batched_tokens": times.columns[-1], "max_num_seqs": 256}
    assert [*found["engine_resolved"]["per_tp"]] == ["1"]


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


@pytest.mark.parametrize("tokens", [128, 512])
def test_products_and_attention_of_a_prompt_add_up_to_its_pass(predictors, tokens):
    """A prompt has nothing in the cache, and the head multiplies only its last token."""
    times = predictors["llama"].times
    found = {table.name: table.rows for table in aiconfigurator.tables(times)}
    layer_ms = sum(row["latency"] for row in found["gemm"] if (row["m"], row["n"] != 8192) == (tokens, True))
    (head_ms,) = (row["latency"] for row in found["gemm"] if (row["m"], row["n"]) == (1, 8192))
    (attention_ms,) = (
        row["latency"]
        for row in found["context_attention"]
        if (row["batch_size"], row["isl"], row["step"]) == (1, tokens, 0)
    )
    others = times.sum_of(["norm1", "norm2", "gating"])[times.columns.tolist().index(tokens)]
    total_ms = 4 * (layer_ms + attention_ms + 1e3 * others) + head_ms
    assert total_ms == pytest.approx(1e3 * predictors["llama"].seconds(prefills=[tokens]), rel=1e-3)


def test_yaml_files_of_a_systems_folder_state_the_schema_that_the_simulator_reads(models, tmp_path):
    export(models["llama"], format="aiconfigurator", out=tmp_path / "out", **SETTINGS)
    stated = {file.name: file.read_text() for file in (tmp_path / "out").rglob("*.yaml")}
    versioned = ["collection_meta.yaml", "query_versions.yaml"]
    assert [name for name in sorted(stated) if name in versioned] == versioned
    for name in versioned:
        assert stated[name].startswith("schema_version: 1\n")


def test_peaks_are_two_operations_for_each_multiply_add_at_the_clock_of_full_load():
    """A100: 312 TFLOP/s at 1410 MHz (data sheet), which at full load are 1200 MHz."""
    a100 = load_gpu("a100-sxm4-80gb")
    assert a100.clock_burst_hz == (1410e6, 1200e6)
    assert tensor_rate(a100, a100.tensor_bf16_fma_per_clk_per_sm) == pytest.approx(
        312e12 * 1200 / 1410, rel=0.025
    )


@pytest.mark.parametrize(
    ("axis", "first", "last"),
    [
        (llmservingsim.CHUNKS[1:], 16, 8192),
        (llmservingsim.HISTORY[1:], 512, 32768),
        (llmservingsim.DECODES[1:], 1, 256),
        (llmservingsim.CONTEXTS, 16, 32768),
        (aiconfigurator.BYTES, 2**10, 2**28),
        (aiconfigurator.PROMPT_BATCHES, 1, 32),
        (aiconfigurator.PROMPTS[2:], 64, 16384),
        ([1 + cached for cached in aiconfigurator.CONTEXTS[2:]], 64, 32768),
    ],
)
def test_axes_of_tables_double_from_their_first_point_to_the_last(axis, first, last):
    """Readers interpolate linearly between the points, or go on from the last ones."""
    assert (axis[0], axis[-1]) == (first, last)
    assert all(later == 2 * one for one, later in pairwise(axis))


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


def line(points, at):
    """Return a value on the line through the two points beside `at`, or through the first or last two."""
    known = sorted(points)
    if len(known) == 1 or at <= known[0]:
        return points[known[0]]
    after = next((place for place, one in enumerate(known) if one > at), len(known) - 1)
    low, high = known[after - 1], known[after]
    return points[low] + (at - low) / (high - low) * (points[high] - points[low])


class Simulator:
    """Seconds of a pass, looked up as LLMServingSim 2.0 does (`serving/core/trace_generator.py`).

    All axes are interpolated on lines. A batch has the sum of its new prompt tokens, the sum of their cached
    ones, its number of decodes and their mean context. Experts are looked up by active experts, then tokens.
    """

    PASS = ("embedding", "final_layernorm")
    LAYER = ("layernorm", "layernorm", "qkv_proj", "rotary_emb", "o_proj")
    FEED_FORWARD = ("gate_up_proj", "act_fn", "down_proj")

    def __init__(self, folder, layers):
        self.tables, self.layers = read_bundle(folder), layers

    def of(self, table, layer, key, at):
        return line({r[key]: r["time_us"] for r in self.tables[table] if r["layer"] == layer}, at)

    def attention(self, chunk, history, decodes, context):
        rows = self.tables["attention"]
        axes = ("prefill_chunk", "n_decode", "kv_prefill", "kv_decode")
        nested = {}
        for row in rows:
            one, two, three, four = (row[axis] for axis in axes)
            nested.setdefault(one, {}).setdefault(two, {}).setdefault(three, {})[four] = row["time_us"]

        def at(values, queries):
            if not queries:
                return values
            return line({key: at(own, queries[1:]) for key, own in values.items()}, queries[0])

        return at(nested, (chunk, decodes, history, context))

    def seconds(self, prefills, decodes, active=0):
        tokens = sum(new for new, _ in prefills) + len(decodes)
        history = sum(cached for _, cached in prefills)
        mean = sum(decodes) // len(decodes) if decodes else 0
        layer = self.attention(tokens - len(decodes), history, len(decodes), mean)
        feed_forward = () if active else self.FEED_FORWARD
        layer += sum(self.of("dense", one, "tokens", tokens) for one in (*self.LAYER, *feed_forward))
        if active:
            known = {}
            for row in self.tables["moe"]:
                known.setdefault(row["activated_experts"], {})[row["tokens"]] = row["time_us"]
            layer += line({experts: line(own, tokens) for experts, own in known.items()}, active)
        sequences = len(prefills) + len(decodes)
        found = self.layers * layer + self.of("dense", "embedding", "tokens", tokens)
        return 1e-6 * (found + self.of("per_sequence", "lm_head", "sequences", sequences))


@pytest.mark.parametrize(
    ("batch", "most"),
    [
        (([(2048, 0)], []), 0.002),
        (([(700, 0)], []), 0.03),
        (([(300, 3000)], [100, 2000, 900]), 0.03),
        # 96 tiles of queries take as long as 128: not on the line from 64 to 128
        (([(1536, 5000)], [700] * 24), 0.1),
        (([], [1500]), 0.03),
        (([], [3000] * 12), 0.03),
        (([], [500, 9000, 2000, 100]), 0.03),
    ],
)
@pytest.mark.parametrize("name", ["llama", "experts"])
def test_a_bundle_read_as_the_simulator_does_has_the_times_of_the_predictor(
    bundles, predictors, name, batch, most
):
    active = min(4, 2 * sum(new for new, _ in batch[0]) + 2 * len(batch[1])) if name == "experts" else 0
    found = bundles[name].seconds(*batch, active)
    assert found == pytest.approx(predictors[name].seconds(*batch), rel=most)


@pytest.fixture(scope="module")
def bundles(models, tmp_path_factory):
    found = {}
    for name, model in models.items():
        folder = tmp_path_factory.mktemp("bundles") / name
        export(model, format="llmservingsim", out=folder, **SETTINGS)
        found[name] = Simulator(folder, 4)
    return found


CATALOG = {
    "llama": "embedding layernorm qkv_proj rotary_emb o_proj gate_up_proj act_fn down_proj final_layernorm",
    "experts": "embedding layernorm qkv_proj rotary_emb o_proj final_layernorm",
}
"""Layers of `profiler/models/llama.yaml` and `mixtral.yaml` that are looked up by tokens."""


@pytest.mark.parametrize("name", CATALOG)
def test_a_bundle_has_every_layer_of_the_catalogs_and_what_the_loader_reads(bundles, name):
    tables = bundles[name].tables
    assert set(CATALOG[name].split()) <= {row["layer"] for row in tables["dense"]}
    assert {row["layer"] for row in tables["per_sequence"]} == {"lm_head", "sampler"}
    assert {row["layer"] for row in tables["attention"]} == {"attention"}
    assert ("moe" in tables) == (name == "experts")
    pairs = {(row["prefill_chunk"], row["n_decode"]) for row in tables["attention"]}
    chunks, decodes = ({pair[place] for pair in pairs} for place in (0, 1))
    assert pairs == {(a, b) for a in chunks for b in decodes} - {(0.0, 0.0)}


def test_a_pruned_model_is_exported_with_the_sizes_of_the_dense_one(models, tmp_path):
    rows = {}
    for name, more in {"dense": {}, "pruned": {"pattern": "tile-wise:128", "sparsity": 0.75}}.items():
        times = export(models["llama"], format="aiconfigurator", out=tmp_path / name, **SETTINGS, **more)
        assert times.is_pruned == (name == "pruned")
        gemm = read_systems(tmp_path / name)["gemm_perf"]
        rows[name] = {(row["m"], row["n"], row["k"]): row["latency"] for row in gemm}
        # AIConfigurator lets no product be faster than these peaks
        system = (tmp_path / name / "h100_sxm.yaml").read_text()
        flops, rate = (
            float(re.search(rf"{key}: (.+)", system)[1]) for key in ("bfloat16_tc_flops", "mem_bw")
        )
        peak_ms = {
            (m, n, k): 1e3 * max(2 * m * n * k / flops, 2 * (m * n + n * k + m * k) / rate)
            for m, n, k in rows[name]
        }
        above = [size for size, own in rows[name].items() if own < 0.999 * peak_ms[size]]
        assert above == [] if name == "pruned" else len(above) < 0.1 * len(peak_ms)
    assert rows["dense"].keys() == rows["pruned"].keys()
    large = (16384, 4096, 1024)
    assert rows["pruned"][large] < 0.6 * rows["dense"][large]


def test_a_pruned_folder_has_the_sizes_of_its_configuration_and_the_times_of_its_recipe(tmp_path):
    transformers = pytest.importorskip("transformers")
    sizes = {**LLAMA, "hidden_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 512}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes))
    model.save_pretrained(tmp_path / "source")
    prune(tmp_path / "source", pattern="2:4", out=tmp_path / "pruned")
    times = export(tmp_path / "pruned", format="aiconfigurator", out=tmp_path / "out", **SETTINGS)
    assert times.is_pruned
    gemm = read_systems(tmp_path / "out")["gemm_perf"]
    assert {(row["n"], row["k"]) for row in gemm} == {
        *((1024, 512), (512, 512), (4096, 512), (512, 2048)),
    }
    table = predict(tmp_path / "pruned", workload="prefill:4096", runtime="engine", **SETTINGS)
    assert times.seconds([(4096, 0)], []) == pytest.approx(table.whole.best.seconds, rel=1e-9)


@pytest.mark.parametrize("parts", [["heads:0.5", "widths:0.5"], ["layers:0.5"]])
def test_a_model_without_some_parts_is_exported_with_its_own_sizes(models, parts, tmp_path):
    removed = Removed(weights=models["llama"], parts=parts)
    predictor = PassPredictor(removed, **SETTINGS)
    export(removed, format="aiconfigurator", out=tmp_path / "out", **SETTINGS)
    sizes = {(row["n"], row["k"]) for row in read_systems(tmp_path / "out")["gemm_perf"]}
    after = removed.sizes()
    joined = after.width + 2 * after.key_width
    wanted = {(joined, 1024), (1024, after.width), (2 * after.feed_forward, 1024), (1024, after.feed_forward)}
    assert sizes == {*wanted, (8192, 1024)}
    assert predictor.times.layers == after.layers
    assert predictor.seconds([2048]) < PassPredictor(models["llama"], **SETTINGS).seconds([2048])


def test_layers_of_their_own_sizes_are_exported_where_one_size_is_not_needed(tmp_path):
    own = {"1": {"intermediate_size": 1024, "num_attention_heads": 4, "num_key_value_heads": 1}}
    uneven = config(tmp_path / "uneven", {**LLAMA, "per_layer_config": own})
    times = export(uneven, format="llmservingsim", out=tmp_path / "bundle", **SETTINGS)
    assert times.uneven == {"query", "key", "value", "output", "gate", "up", "down"}
    batch = ([(2048, 0)], [])
    found = Simulator(tmp_path / "bundle", 4).seconds(*batch)
    assert found == pytest.approx(seconds(uneven, "prefill:2048"), rel=0.002)
    with pytest.raises(BadInput, match="differ between layers, and AIConfigurator reads one size"):
        export(uneven, format="aiconfigurator", out=tmp_path / "systems", **SETTINGS)
    assert not (tmp_path / "systems").exists()


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


PRUNED = {"pattern": "tile-wise:128", "sparsity": 0.75}


@pytest.mark.parametrize(("name", "more"), [("llama", {}), ("experts", {}), ("llama", PRUNED)])
def test_aiconfigurator_itself_estimates_from_the_folder(models, name, more, tmp_path):
    """Needs `aiconfigurator`, which is not among the locked packages."""
    pytest.importorskip("aiconfigurator")
    export(models[name], format="aiconfigurator", out=tmp_path / "out", **SETTINGS, **more)
    predictor = PassPredictor(models[name], **SETTINGS, **more)
    wanted = {
        "static_ctx": predictor.seconds(prefills=[2048] * 4),
        "static_gen": predictor.seconds(decodes=[2049] * 4),
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
