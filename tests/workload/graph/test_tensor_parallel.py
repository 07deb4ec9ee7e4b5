"""Models that several GPUs share: the shares make up the model, and sums over GPUs follow."""

from collections import Counter

import pytest

from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.workload.graph import model_time, parse_workload
from prunecast.workload.graph.shapes import transformers
from prunecast.workload.graph.workloads import load_pass
from prunecast.workload.memory import pass_memory

EVEN = ("llama-3-70b", "mixtral-8x7b", "bert-large", "qwen2.5-7b", "vit-large-16")
"""Models whose heads and features four GPUs divide."""


def graph(name, gpus, workload="prefill:2x256"):
    (run,) = parse_workload(workload)
    return load_pass(name, run._replace(gpus=gpus))


@pytest.mark.parametrize("name", EVEN)
@pytest.mark.parametrize("gpus", [2, 4])
def test_shares_make_up_the_products_and_the_attention(name, gpus):
    whole, share = graph(name, 1), graph(name, gpus)
    for node, product in whole.products.items():
        own = share[node]
        assert own.runs == product.runs
        # The router of experts, patches of images and BERT's few classes are on every GPU
        if node.endswith("router") or node == "patches":
            assert (own.m, own.k) == (product.m, product.k)
        elif node == "head":
            assert product.m <= gpus * own.m < product.m + gpus
        else:
            assert (
                gpus * own.m * own.k * own.n * own.runs == product.m * product.k * product.n * product.runs
            ), node
    attention = [sum(o.runs * o.flops for o in each if o.kind == "attention") for each in (whole, share)]
    assert attention[0] == gpus * attention[1]


@pytest.mark.parametrize("name", EVEN)
@pytest.mark.parametrize("gpus", [2, 4])
def test_shares_make_up_the_table_of_embeddings(name, gpus):
    rows, own = (transformers()[name].share(count).embedding_rows for count in (1, gpus))
    assert rows <= gpus * own < rows + gpus


@pytest.mark.parametrize("gpus", [2, 8])
def test_every_sum_of_partial_products_is_reduced_once(gpus):
    share = graph("llama-3-70b", gpus)
    sums = [o for o in share if o.kind == "all reduce"]
    layers = transformers()["llama-3-70b"].layers
    assert sum(o.runs for o in sums) == 2 * layers + 1  # attention and feed-forward parts, embeddings
    for o in sums:
        (source,) = share.sources(o.name)
        assert source.kind in ("gemm", "input")
        assert o.elements_out == source.elements_out == 8192 * 512
        assert o.gpus == gpus
    assert Counter(o.kind for o in share)["all gather"] == 1
    assert not any(o.gpus > 1 for o in graph("llama-3-70b", 1))


def test_few_key_heads_are_on_several_gpus():
    keys = {gpus: graph("qwen2.5-7b", gpus)["layer.0.key"].m for gpus in (1, 2, 4)}
    assert keys == {1: 512, 2: 256, 4: 128}
    shape = transformers()["llama-3-70b"]
    assert [shape.share(gpus).key_width for gpus in (1, 8, 16)] == [1024, 128, 128]


@pytest.mark.parametrize("gpus", [2, 4, 8])
def test_cache_and_weights_are_divided(gpus):
    (run,) = parse_workload("decode:16@4096")
    whole, share = (
        pass_memory(load_pass("llama-3-70b", run._replace(gpus=count)), 16, 2) for count in (1, gpus)
    )
    assert gpus * share.cache == whole.cache
    assert gpus * share.weights == pytest.approx(whole.weights, rel=1e-3)


def test_two_gpus_are_faster_than_one_and_slower_than_half():
    gpu = load_gpu("h200-sxm")

    def seconds(gpus):
        model = graph("llama-3-70b", gpus, "prefill:4096")
        # Products at a fixed rate: their shares are even by the test above
        products = {name: p.m * p.k * p.n * p.runs * 2e-15 for name, p in model.products.items()}
        return model_time(model, gpu, products).seconds

    assert seconds(1) / 2 < seconds(2) < seconds(1)
    assert seconds(2) / 2 < seconds(4) < seconds(2)


@pytest.mark.parametrize(
    ("name", "gpus", "message"),
    [
        ("gpt2", 8, "must divide the 12 heads, got 8"),
        ("qwen2.5-7b", 8, "must divide the 28 heads, got 8"),
        ("resnet50", 2, "tensor-parallel is of transformers"),
    ],
)
def test_what_cannot_be_divided_is_refused(name, gpus, message):
    with pytest.raises(BadInput, match=message):
        graph(name, gpus)


def test_torch_runs_one_gpu():
    (run,) = parse_workload("prefill:128")
    with pytest.raises(BadInput, match="torch runs a model on one GPU"):
        load_pass("llama-3-8b", run._replace(gpus=2), "torch")
