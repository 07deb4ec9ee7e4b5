"""Memory of a pruned model: bytes that its kernels read, counted again layer by layer from the masks."""

import json
from pathlib import Path

import numpy as np
import pytest

from prunecast.choice import fastest_plan
from prunecast.codesign.search import Targets
from prunecast.codesign.search.prune_model import masks_of, search_of
from prunecast.codesign.search.target import prune_to_targets
from prunecast.codesign.study.storage import read_result
from prunecast.hardware import load_gpu
from prunecast.kernels import DTYPE_BYTES
from prunecast.models import packed_bytes
from prunecast.patterns import parse_pattern

GPU = load_gpu("h200-sxm")
CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    **{"hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 2, "vocab_size": 1000},
    **{"num_attention_heads": 4, "num_key_value_heads": 2},
}


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    path = Path(tmp_path_factory.mktemp("model")) / "config.json"
    path.write_text(json.dumps(CONFIG))
    search = search_of(str(path), gpu=GPU, engine="model", workload="prefill:4096", families=["atp", "2:4"])
    search.prepare()
    return search, prune_to_targets(search, Targets(sparsity=0.5))


def test_weights_are_those_that_kernels_read(searched):
    search, result = searched
    (dense,), (pruned,) = result.dense_memory, result.memory
    packed, unpacked = 0.0, 0.0
    masks = masks_of(search, result)
    for layer in result.layers:
        if layer.pattern == "dense":
            continue
        parts = [masks[name] for name in layer.names]
        kept = parse_pattern(layer.pattern).map(np.concatenate(parts))
        plan = fastest_plan(layer.kernel, kept, n=layer.n, dtype="fp16", gpu=GPU)
        packed += layer.copies * packed_bytes(plan)
        unpacked += layer.copies * DTYPE_BYTES["fp16"] * layer.m * layer.k
    assert unpacked > 0.0
    assert dense.weights - pruned.weights == pytest.approx(unpacked - packed, rel=1e-3)
    assert pruned.cache == dense.cache
    assert pruned.activations == dense.activations


def test_all_weights_count_once_where_nothing_is_pruned(searched):
    search, result = searched
    parameters = 2 * 1000 * 512 + 2 * (512 * (512 + 2 * 256 + 512) + 3 * 512 * 1024)
    assert result.dense_memory[0].weights == 2 * parameters
    assert search.memory({}) == result.dense_memory


def test_a_stored_result_keeps_its_memory(searched):
    _, result = searched
    again = read_result(json.loads(json.dumps(result.document())), "trial 0")
    assert again.memory == result.memory
    assert again.dense_memory == result.dense_memory
    assert again.gpu_bytes == GPU.dram_bytes


@pytest.mark.parametrize("shape", [(256, 256), (192, 320), (100, 36)])
def test_weights_packed_as_two_of_four_have_the_same_bytes_whatever_is_kept(shape):
    pattern = parse_pattern("2:4")
    weights = np.abs(np.random.default_rng(0).standard_normal(shape, dtype=np.float32))
    masks = [pattern.prune({"w": weights}, 0.5)["w"], np.zeros(shape, np.bool_)]
    plans = [fastest_plan("2:4", pattern.map(mask), n=256, dtype="fp16", gpu=GPU) for mask in masks]
    assert len({packed_bytes(plan) for plan in plans}) == 1
