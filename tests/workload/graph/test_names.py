"""Names of standard models as people write them."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from prunecast.codesign import predict
from prunecast.errors import BadInput
from prunecast.workload.graph import Pass, load_pass
from prunecast.workload.graph.names import WORKLOADS, is_hub_name, known_name, near_names
from prunecast.workload.graph.shapes import transformers
from prunecast.workload.layers import is_standard
from tests.naive.transformer_weights import layer_weights

HUB = {
    "meta-llama/Llama-3.1-8B": "llama-3.1-8b",
    "meta-llama/Llama-3.1-8B-Instruct": "llama-3.1-8b",
    "meta-llama/Meta-Llama-3-8B": "llama-3-8b",
    "meta-llama/Llama-2-7b-hf": "llama-2-7b",
    "meta-llama/Llama-2-7b-chat-hf": "llama-2-7b",
    "Qwen/Qwen2.5-7B-Instruct": "qwen2.5-7b",
    "Qwen/Qwen3-30B-A3B-Instruct-2507": "qwen3-30b-a3b",
    "mistralai/Mixtral-8x7B-Instruct-v0.1": "mixtral-8x7b",
    "mistralai/Mistral-7B-v0.3": "mistral-7b",
    "google/gemma-3-27b-it": "gemma-3-27b",
    "microsoft/phi-4": "phi-4",
    "microsoft/Phi-3-mini-4k-instruct": "phi-3-mini",
    "openai/gpt-oss-120b": "gpt-oss-120b",
    "openai/whisper-large-v3": "whisper-large-v3",
    "google/vit-base-patch16-224": "vit-base-16",
    "google-bert/bert-base-uncased": "bert-base",
    "openai-community/gpt2": "gpt2",
    "facebook/opt-6.7b": "opt-6.7b",
    "EleutherAI/gpt-neox-20b": "gpt-neox-20b",
    "EleutherAI/pythia-6.9b-deduped": "pythia-6.9b",
    "databricks/dolly-v2-3b": "dolly-v2-3b",
    "microsoft/resnet-50": "resnet50",
    "stabilityai/stable-diffusion-xl-base-1.0": "sdxl",
    "stable-diffusion-v1-5/stable-diffusion-v1-5": "stable-diffusion-1.5",
}


@pytest.mark.parametrize("name", HUB)
def test_a_name_of_a_hub_is_that_of_a_standard_model(name):
    assert known_name(name) == HUB[name]
    assert is_standard(name)


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_name_means_itself_in_any_case(name):
    assert known_name(name) == known_name(name.upper()) == known_name(f"someone/{name.title()}") == name


@pytest.mark.parametrize("name", ["llama-9-8b", "whisper-large", "gemma", "", "weights.safetensors", "bert"])
def test_other_names_mean_no_model(name):
    assert known_name(name) is None


@pytest.mark.parametrize(
    ("text", "is_of_a_hub"),
    [
        ("meta-llama/Llama-3.1-8B", True),
        ("llama-3.1-8b", False),
        ("a/b/c", False),
        ("./folder", False),
        ("", False),
    ],
)
def test_names_of_a_hub_have_an_organisation(text, is_of_a_hub):
    assert is_hub_name(text) == is_of_a_hub


def test_near_names_ignore_case_organisation_and_dashes():
    assert near_names("meta-llama/Llama3") == near_names("llama-3")
    assert near_names("openai/GPT-OSS-21B") == ["gpt-oss-20b", "gpt-oss-120b"]


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("meta-llama/Llama-4-Maverick-17B-128E", "layers alternate"),
        ("meta-llama/Llama-9-8B", "nearest standard models: llama-3-8b"),
        ("someone/something", "no such file; standard models: resnet18"),
    ],
)
def test_an_unknown_name_is_one_line(name, complaint):
    with pytest.raises(BadInput, match=complaint):
        predict(name, gpu="h200-sxm")


BILLIONS = {
    # As published with the models: Llama team 2024, Qwen team 2025, Gemma team 2025, OpenAI 2025 (table 1)
    **{"llama-3.1-8b": 8.03, "llama-3.1-70b": 70.6, "llama-3.1-405b": 405.9, "llama-2-13b": 13.0},
    **{"qwen3-1.7b": 1.72, "qwen3-235b-a22b": 235.1, "mixtral-8x22b": 140.6, "mistral-nemo-12b": 12.2},
    **{"mistral-small-24b": 23.6, "gemma-3-1b": 1.0, "gemma-3-12b": 11.8, "gemma-3-27b": 27.0},
    **{"phi-4-mini": 3.84, "gpt-oss-20b": 20.9, "gpt-oss-120b": 116.8},
    **{"deepseek-v3": 671.0, "kimi-k2": 1026.4},
}


@pytest.mark.parametrize("name", BILLIONS)
def test_a_model_has_its_published_parameters(name):
    shape = transformers()[name]
    found = layer_weights(shape) + shape.hidden * (shape.head + shape.embedding_rows)
    assert found / 1e9 == pytest.approx(BILLIONS[name], rel=0.01)


def test_the_unet_of_sdxl_has_its_published_parameters():
    """D. Podell et al. 2023, table 1: 2.6 billion; by its configuration 2,567 million."""
    products = load_pass("sdxl", Pass(1)).products.values()
    assert sum(each.m * each.k * each.copies for each in products) == pytest.approx(2567e6, rel=0.005)


@pytest.mark.parametrize("name", ["stable-diffusion-1.5", "sdxl"])
def test_the_time_step_of_a_unet_is_embedded_in_four_times_its_first_width(name):
    """320 features; every residual block projects the 1280 of the embedding to its own width."""
    products = load_pass(name, Pass(1)).products
    sizes = {part: (products[part].m, products[part].k) for part in ("time.1", "time.2")}
    assert sizes == {"time.1": (1280, 320), "time.2": (1280, 1280)}
    blocks = {part: each for part, each in products.items() if part.endswith(".time")}
    assert len(blocks) == len([part for part in products if part.endswith(".conv1")])
    assert {each.k for each in blocks.values()} == {1280}
    assert all(each.m == products[part.replace(".time", ".conv2")].m for part, each in blocks.items())


def test_an_unknown_type_of_model_names_what_is_not_counted(tmp_path):
    save_file({"layers.0.up.weight": np.ones((64, 64), np.float32)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mamba2"}))
    table = predict(tmp_path, gpu="h200-sxm", engine="model", crossovers=False, kernels="csr")
    (skipped,) = (each for each in table.skipped if each.kernel is None)
    assert skipped.layer == "config.json"
    assert skipped.reason.startswith("model_type 'mamba2' is not known: its matrices count, and the")
