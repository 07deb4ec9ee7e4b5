"""Memory of a pass: published parameter counts, and laws."""

import pytest

from prunecast.workload.graph import parse_workload
from prunecast.workload.graph.workloads import load_pass
from prunecast.workload.memory import USABLE_SHARE, pass_memory

PARAMETERS = {
    "llama-2-7b": 6.74e9,
    "llama-3-8b": 8.03e9,
    "llama-3-70b": 70.6e9,
    "mixtral-8x7b": 46.7e9,
    "gpt2": 124e6,
    "bert-base": 110e6,
    "gemma-2-9b": 9.24e9,
    "qwen2.5-7b": 7.62e9,
    "resnet50": 25.6e6,
    "vit-large-16": 304e6,
}
"""Parameters as the model cards print them."""


def memory(name, workload, runtime="engine", packed=None):
    (run,) = parse_workload(workload)
    return pass_memory(load_pass(name, run, runtime), run.batch, 2, packed)


@pytest.mark.parametrize("name", PARAMETERS)
def test_weights_are_the_published_parameters(name):
    """Norms, biases and position tables are not counted: 1.5 % of BERT, less of all others."""
    assert memory(name, "batch:1").weights / 2 == pytest.approx(PARAMETERS[name], rel=0.02)


@pytest.mark.parametrize("runtime", ["engine", "torch"])
def test_cache_of_a_llama(runtime):
    """2 (keys, values) x 32 layers x 8 heads x 128 features x 2 bytes for each token."""
    found = memory("llama-3-8b", "decode:16@4095", runtime)
    assert found.cache == 2 * 32 * 8 * 128 * 2 * 16 * 4096
    assert memory("llama-3-8b", "prefill:2048", runtime).cache == 2 * 32 * 8 * 128 * 2 * 2048


def test_an_encoder_keeps_no_cache():
    assert memory("bert-base", "batch:8").cache == 0.0


@pytest.mark.parametrize("workload", ["prefill:2x256", "decode:3@512"])
def test_the_largest_batch_is_the_largest_that_fits(workload):
    kind, size = workload.split(":")
    found = memory("llama-3.2-1b", workload)
    for gpu_bytes in (2e9, 8e9, 24e9):
        most = found.largest_batch(gpu_bytes)

        def of(batch, kind=kind, size=size):
            rest = size.split("x" if kind == "prefill" else "@")[1]
            text = f"{batch}x{rest}" if kind == "prefill" else f"{batch}@{rest}"
            return memory("llama-3.2-1b", f"{kind}:{text}")

        if most == 0:
            assert found.weights > USABLE_SHARE * gpu_bytes - found.total
            continue
        assert of(most).fits(gpu_bytes)
        assert not of(most + 1).fits(gpu_bytes)


def test_a_model_above_the_memory_fits_no_batch():
    found = memory("llama-3-70b", "decode:1@16")
    assert not found.fits(24e9)
    assert found.largest_batch(24e9) == 0


def test_packed_weights_replace_dense_ones():
    dense = memory("llama-3.2-1b", "prefill:64")
    (run,) = parse_workload("prefill:64")
    up = load_pass("llama-3.2-1b", run)["layer.0.up"]
    packed = memory("llama-3.2-1b", "prefill:64", packed={"layer.0.up": 1000.0})
    assert dense.weights - packed.weights == 2 * up.m * up.k - 1000


@pytest.mark.parametrize("name", ["bert-small", "resnet18", "gpt2", "whisper-tiny"])
def test_live_activations_against_a_slow_count(name):
    """At each operation: its own output, and earlier ones that it or a later operation reads."""
    (run,) = parse_workload("batch:2")
    graph = load_pass(name, run)
    order = list(graph)
    place = {o.name: i for i, o in enumerate(order)}
    most = 0
    for now in range(len(order)):
        live = [
            o
            for o in order[: now + 1]
            if o.name == order[now].name
            or not graph.readers(o.name)
            or any(place[reader.name] >= now for reader in graph.readers(o.name))
        ]
        most = max(most, sum(o.elements_out for o in live))
    assert graph.most_live == most
