"""Dense experts of a model are one fused call, whose parts are the operations of the graph."""

import json

import pytest

from prunecast.codesign import predict
from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.workload.graph.config import checkpoint_shape
from prunecast.workload.graph.experts import fused_call
from prunecast.workload.graph.model_time import model_time
from prunecast.workload.graph.shapes import Pass
from prunecast.workload.graph.workloads import load_pass

H100 = load_gpu("h100-sxm")
FAST = {"gpu": "h100-sxm", "kernels": "dense", "engine": "model", "crossovers": False}
CONFIG = {
    "model_type": "mixtral",
    "vocab_size": 1000,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
}


def config_in(folder, **changed):
    path = folder / "config.json"
    path.write_text(json.dumps({**CONFIG, **changed}))
    return path


@pytest.mark.parametrize("name", ["qwen3-30b-a3b", "mixtral-8x7b"])
@pytest.mark.parametrize("run", [Pass(16, 1, 1024), Pass(1, 4096, routing="power-law:1.2")])
def test_operations_of_a_layer_are_the_parts_of_one_call(name, run):
    graph = load_pass(name, run)
    operations = [o for o in graph if o.experts is not None]
    sizes = operations[0].experts.sizes
    layers = next(o.copies for o in operations if not o.experts.is_product)
    assert sizes.tokens == run.columns
    assert sizes.routing == run.routing
    seconds = sum(o.runs * o.experts.seconds(H100, "bf16", "burst") for o in operations)
    assert seconds == pytest.approx(layers * fused_call(sizes, H100, "bf16", "burst").seconds)


def test_a_sparse_expert_is_no_part_of_a_fused_call():
    graph = load_pass("mixtral-8x7b", Pass(16, 1, 1024))
    products = dict.fromkeys(graph.products, 1e-3)
    dense = model_time(graph, H100, products, dtype="bf16")
    sparse = model_time(graph, H100, products, dtype="bf16", sparse=frozenset(["layers.experts.up"]))
    sorting = next(o for o in graph if o.experts is not None and o.experts.part == "sort")
    part = sorting.copies * sorting.experts.seconds(H100, "bf16", "burst")
    assert dense.seconds_of[sorting.name] == pytest.approx(part)
    assert sparse.seconds_of[sorting.name] != pytest.approx(part)


def test_skewed_routing_reads_fewer_experts():
    seconds = {
        routing: predict(
            "qwen3-30b-a3b", workload="decode:16@1024", routing=routing, **FAST
        ).whole.dense.seconds
        for routing in ("balanced", "random", "power-law:1.2")
    }
    assert seconds["power-law:1.2"] < seconds["random"] < seconds["balanced"]


def test_rows_of_experts_add_up_to_the_products_of_the_calls():
    table = predict("mixtral-8x7b", workload="decode:16@1024", **FAST)
    graph = load_pass("mixtral-8x7b", Pass(16, 1, 1024))
    sizes = next(o.experts.sizes for o in graph if o.experts is not None)
    parts = fused_call(sizes, H100, "fp16", "burst").parts
    rows = {row.layer: table.runs[row.layer] * row.seconds for row in table.predictions}
    assert rows["layers.experts.gate"] == pytest.approx(32 * parts["gate_up"])  # with the ups, of one shape
    assert rows["layers.experts.down"] == pytest.approx(32 * parts["down"])
    assert "grouped launch" in next(
        row.note for row in table.predictions if row.layer == "layers.experts.down"
    )


def test_more_experts_for_a_token_than_there_are_is_refused(tmp_path):
    with pytest.raises(BadInput, match="num_experts_per_tok must be 1 to the 4 experts, got 5"):
        checkpoint_shape(config_in(tmp_path, num_experts_per_tok=5))
    assert checkpoint_shape(config_in(tmp_path, num_experts_per_tok=4)).experts_per_token == 4


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--routing", "zipf"], "routing must be random, balanced or like power-law:1.2"),
        (["--scales", "row", "--dtype", "fp8"], "scales must be one of"),
        (["--gpu", "a100-sxm4-80gb", "--dtype", "fp8"], "needs fp8 tensor cores"),
    ],
)
def test_bad_options_end_with_one_line_and_exit_code_2(run, options, words):
    asked = (
        "predict",
        "mixtral-8x7b",
        "--workload",
        "decode:1@128",
        "--kernel",
        "dense",
        "--engine",
        "model",
    )
    code, _, error = run(*asked, *options)
    assert code == 2
    assert words in error
    assert len(error.strip().splitlines()) == 1


def test_pruned_experts_share_a_grouped_launch():
    """The row of an expert is its share; gate and up are one launch."""
    asked = {**FAST, "kernels": "stspmm", "pattern": "tile-wise:128", "sparsity": 0.75}
    table = predict("mixtral-8x7b", workload="decode:16@1024", **asked)
    rows = {row.layer: row for row in table.predictions if row.kernel == "stspmm"}
    gate, down = rows["layers.experts.gate"], rows["layers.experts.down"]
    assert (gate.m, gate.k, gate.n) == (14336, 4096, 4)
    assert gate.plan.m == 2 * 8 * 14336  # gates and ups of eight experts
    assert down.plan.m == 8 * 4096
    for row, copies in ((gate, 16), (down, 8)):
        assert row.plan.experts == 8
        assert row.seconds == pytest.approx(row.result.seconds / copies)
        assert "share of one expert in the grouped launch of 8" in row.note
    # A quarter of the weights, which is what decoding reads
    dense = {row.layer: row.seconds for row in table.predictions if row.kernel == "dense"}
    assert gate.seconds < 0.5 * dense["layers.experts.gate"]
    assert table.whole.best.seconds < 0.6 * table.whole.dense.seconds
    memory = table.whole.phases[0]
    assert memory.best.memory.weights < 0.4 * memory.dense.memory.weights


def test_tokens_are_sorted_for_sparse_experts_too():
    graph = load_pass("mixtral-8x7b", Pass(16, 1, 1024))
    products = dict.fromkeys(graph.products, 1e-3)
    times = [
        model_time(graph, H100, products, dtype="bf16", sparse=sparse)
        for sparse in (frozenset[str](), frozenset(["layers.experts.gate", "layers.experts.up"]))
    ]
    dense_s, sparse_s = (time.seconds_of["layers.to_experts"] for time in times)
    assert sparse_s > dense_s  # sorting, and a pass that moves x


def test_skewed_routing_makes_sparse_experts_faster_in_decode():
    asked = {**FAST, "kernels": "small-n", "pattern": "tile-wise:128", "workload": "decode:16@1024"}
    seconds = {
        routing: predict("qwen3-30b-a3b", routing=routing, **asked).whole.best.seconds
        for routing in ("balanced", "random", "power-law:1.2")
    }
    assert seconds["power-law:1.2"] < seconds["random"] < seconds["balanced"]
