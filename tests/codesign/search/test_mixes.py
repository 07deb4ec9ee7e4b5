"""Workloads as what a latency is of: every pass by itself, and mixes of them."""

import numpy as np
import pytest

from prunecast.codesign.search import Targets, prune_model
from prunecast.codesign.search.model_search import DENSE, ModelSearch
from prunecast.codesign.search.options import Options, mixed_options
from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.patterns import parse_pattern
from prunecast.workload.engines import Engine
from prunecast.workload.graph import parse_workload
from prunecast.workload.load import load_workload, standard_workload

GPU = load_gpu("h200-sxm")
MIX = "prefill:8x448=1,decode:8@200=40"


def weights(m, k, seed=0):
    return np.random.default_rng(seed).standard_normal((m, k)).astype(np.float16)


def search_of(workload, name="whisper-tiny"):
    runs = parse_workload(workload)
    model = Engine(name="model", gpu=GPU)
    search = ModelSearch(
        workload=load_workload(name, runs),
        engine=model,
        dtype="fp16",
        families=("2:4",),
    )
    search.prepare()
    return search


def test_the_dense_time_of_a_mix_is_the_mean_of_its_passes():
    alone = [search_of(part) for part in ("prefill:8x448", "decode:8@200")]
    mixed = search_of(MIX)
    first, then = (search.total(search.dense_seconds(), DENSE) for search in alone)
    assert mixed.total(mixed.dense_seconds(), DENSE) == pytest.approx((first + 40 * then) / 41)


def test_one_pass_as_a_mix_is_that_pass():
    layer = {"a": weights(1024, 1024)}
    found = [
        prune_model(layer, Targets(latency_share=0.7), gpu=GPU, engine="model", **said).result
        for said in ({"workload": "prefill:2048"}, {"workload": "prefill:2048=3"})
    ]
    assert found[0].layers == found[1].layers or found[0].layers[0].rows() == found[1].layers[0].rows()


def test_each_pass_of_a_mix_runs_its_own_kernel():
    """The slow twin: prune to what was chosen, plan each pass by itself, add up with the shares."""
    layer = {"a": weights(2048, 2048)}
    found = prune_model(
        layer,
        Targets(latency_share=0.6),
        gpu=GPU,
        engine="model",
        families=("atp",),
        workload="prefill:2048=1,decode:1@100=20",
    ).result
    (chosen,) = found.layers
    assert chosen.kernel == "stspmm+small-n"
    importance = np.abs(layer["a"]).astype(np.float32)
    pattern = parse_pattern(chosen.pattern)
    kept = pattern.map(pattern.prune({"a": importance}, chosen.sparsity)["a"])
    from prunecast.choice import fastest_plan
    from prunecast.launch import CacheState
    from prunecast.models import estimate

    l2 = CacheState("model", 2.0 * layer["a"].size)
    seconds = [
        estimate(fastest_plan(kernel, kept, n=n, dtype="fp16", gpu=GPU), GPU, l2=l2).seconds
        for kernel, n in (("stspmm", 2048), ("small-n", 1))
    ]
    assert chosen.seconds == pytest.approx((seconds[0] + 20 * seconds[1]) / 21)
    assert found.seconds <= 0.6 * found.dense_seconds


def options(seconds, pattern="atp:64"):
    return Options.of(pattern, seconds, sparsity=0.5, importance=3.0, kept=10)


def test_a_menu_of_two_passes_has_what_both_can_run_with_all_kernels():
    few = Options.joined([options({"stspmm": 2.0, "small-n": 1.0}), options({"2:4": 7.0}, "2:4")])
    many = options({"stspmm": 8.0})
    mixed = mixed_options([(0.25, many), (1.5, few)], copies=4)
    assert [(o.kernel, o.seconds, o.importance, o.kept) for o in mixed] == [
        ("stspmm", 5.0, 12.0, 40),
        ("stspmm+small-n", 3.5, 12.0, 40),
    ]


def test_layers_alike_are_pruned_alike_and_count_as_often_as_they_are():
    """Two nodes of a graph, one of which stands for three layers, against the same layer three times."""
    from prunecast.workload.graph import ModelGraph, Operation

    def searched(names, copies):
        graph = ModelGraph(name="chain")
        graph.add(Operation(name="x", kind="input", elements_out=512 * 2048, layout="tokens"))
        last = "x"
        for name in names:
            product = Operation(
                name=name, kind="gemm", m=512, k=512, n=2048, elements_out=512 * 2048, copies=copies
            )
            last = graph.add(product, [last])
        model = Engine(name="model", gpu=GPU)
        search = ModelSearch(
            workload=standard_workload([graph]), engine=model, dtype="fp16", families=("2:4",)
        )
        search.prepare()
        return search

    alike, apart = searched(["a"], 3), searched(["a", "b", "c"], 1)
    assert alike.workload.weights == apart.workload.weights
    assert alike.dense_seconds()["a"] == pytest.approx(sum(apart.dense_seconds().values()))
    (option,) = (o for o in alike.options["a"] if o.pattern == "2:4")
    assert option.kept == 3 * apart.options["a"][1].kept
    assert option.seconds == pytest.approx(3 * apart.options["a"][1].seconds)


@pytest.mark.parametrize(
    ("name", "said", "words"),
    [
        ("bert-small", {"workload": "decode:16@64"}, "one by one"),
        ("bert-small", {"workload": "batch:8", "tokens": 64}, "exclude each other"),
        ("bert-small", {"tokens": 2**24 + 1}, "at most 16777216"),
        ("bert-small", {"tokens": 2**13, "batch": 2**12}, "at most 16777216 tokens"),
        ("bert-small", {"workload": "batch:16777216"}, "at most 16777216 tokens"),
        ("bert-small", {"batch": 0}, "batch must be at least 1"),
        ("bert-small", {"workload": "pre"}, "must be like"),
    ],
)
def test_bad_workloads(name, said, words):
    with pytest.raises(BadInput, match=words):
        prune_model(name, Targets(speedup=1.1), gpu=GPU, engine="model", **said)
