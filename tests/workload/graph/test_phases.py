"""Prompts and single tokens: what a workload's text means, what is read from the cache, which experts run."""

import itertools
from dataclasses import replace

import pytest

from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.kernels.libraries.attention.shape import mean_keys
from prunecast.kernels.libraries.experts.call import ExpertLayer
from prunecast.launch import Conditions
from prunecast.workload.graph import Pass, load_pass, parse_workload
from prunecast.workload.graph.experts import active_experts
from prunecast.workload.graph.runtimes import engine_seconds
from prunecast.workload.graph.shapes import transformers
from prunecast.workload.graph.workloads import transformer_graph, unfused_transformer

GPU = load_gpu("h200-sxm")

LAYER_WEIGHTS = {
    # 1e9 weights without embeddings, as the models' own pages give them
    "qwen2.5-0.5b": 0.36,
    "qwen2.5-1.5b": 1.31,
    "qwen2.5-7b": 6.53,
    "qwen2.5-14b": 13.1,
    "qwen2.5-32b": 31.0,
    "qwen2.5-72b": 70.0,
    "qwen3-0.6b": 0.44,
    "qwen3-4b": 3.6,
    "qwen3-8b": 6.95,
    "qwen3-14b": 13.2,
    "qwen3-32b": 31.2,
    "qwen3-30b-a3b": 29.9,
    "gemma-2b": 1.98,
    "gemma-7b": 7.75,
    "gemma-2-9b": 8.32,
}
WEIGHTS = {
    # 1e9 weights in all; of embeddings once where they are the last product too
    "llama-3-70b": 69.5,
    "llama-3.2-1b": 1.24,
    "llama-3.2-3b": 3.21,
    "mistral-7b": 7.11,
    "mixtral-8x7b": 46.6,
    "phi-3-mini": 3.72,
    "vit-base-16": 0.0863,
    "vit-large-16": 0.304,
    "vit-huge-14": 0.632,
    "whisper-tiny": 0.037,
    "whisper-large-v3": 1.54,
    "stable-diffusion-1.5": 0.859,
}


@pytest.mark.parametrize("name", LAYER_WEIGHTS)
def test_layers_have_the_published_weights(name: str) -> None:
    found = load_pass(name, Pass(1, 1))
    assert (found.weights - found["head"].weights) / 1e9 == pytest.approx(LAYER_WEIGHTS[name], rel=0.02)


@pytest.mark.parametrize("name", WEIGHTS)
def test_models_have_the_published_weights(name: str) -> None:
    assert load_pass(name, Pass(1)).weights / 1e9 == pytest.approx(WEIGHTS[name], rel=0.005)


def test_every_shape_has_a_source() -> None:
    assert all(shape.source for shape in transformers().values())


def test_a_mix_of_passes_is_read_with_its_shares() -> None:
    assert parse_workload("prefill:4x2048=1, decode:16@4096=3,batch:8=0") == (
        Pass(4, 2048, all_logits=False, share=0.25, label="prefill:4x2048"),
        Pass(16, 1, 4096, all_logits=False, share=0.75, label="decode:16@4096"),
    )


def test_a_batch_may_state_tokens():
    assert parse_workload("batch:4x2048") == (Pass(4, 2048, label="batch:4x2048"),)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "prefill",
        "prefill:0",
        "prefill:2048@5",
        "decode:16",
        "decode:16/padded",
        "prefill:16/unpadded",
        "decode:4x16@9",
        "batch:4x",
        "batch:8=-1",
        "batch:8=0",
        "batch:8,batch:8",
        "prefill:16777216x2",
        "decode:1@99999999",
        "batch:8=nan",
        "prefill:" + "9" * 5000,
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match="workload"):
        parse_workload(text)


def test_a_token_reads_keys_and_values_of_all_before_it() -> None:
    found = load_pass("llama-3-8b", Pass(16, 1, cached=4096, all_logits=False))
    attention = found["layer.0.attention"]
    cached_bytes = 2 * 1024 * 4096 * 16 * 2
    assert attention.elements_cached * 2 == cached_bytes
    seconds = engine_seconds(attention, GPU)
    assert seconds >= cached_bytes / GPU.dram_peak_bytes_per_s
    assert {product.n for product in found.products.values()} == {16}


def test_a_prompt_needs_the_last_token_s_logits_alone() -> None:
    (run,) = parse_workload("prefill:2x2048")
    products = load_pass("llama-3-8b", run).products
    assert (products["head"].n, products["layer.0.query"].n) == (2, 4096)


@pytest.mark.parametrize(("name", "reads"), [("bert-base", True), ("llama-3-8b", False)])
def test_padding_is_a_mask_of_encoders_alone(name: str, reads: bool) -> None:
    """Causal attention never reads what follows a token, and padding follows."""
    (run,) = parse_workload("prefill:2x64/padded")
    found, plain = load_pass(name, run), load_pass(name, run._replace(padded=False))
    calls = [o.attention for o in found if o.attention is not None]
    assert {call.has_mask for call in calls} == {reads}
    unmasked = [call._replace(has_mask=False, masks_keys=False) for call in calls]
    assert unmasked == [o.attention for o in plain if o.attention]
    assert parse_workload("batch:8/padded=2")[0].padded


def test_attention_within_a_window() -> None:
    found = load_pass("gemma-2-9b", Pass(1, 1, cached=8192))
    near, far = found["layer.0.attention"], found["layer.1.attention"]
    assert (far.elements_cached, near.elements_cached) == (2 * 2048 * 8192, 2 * 2048 * 4096)


@pytest.mark.parametrize(
    ("cached", "tokens", "window"), [*itertools.product((0, 3, 20), (1, 5, 16), (0, 4, 30))]
)
def test_mean_keys_is_the_mean_over_tokens(cached: int, tokens: int, window: int) -> None:
    """A token counts as half: the closed form integrates over places."""
    counted = [min(cached + place + 0.5, window or 1e9) for place in range(tokens)]
    found = mean_keys(cached, tokens, window)
    assert found == pytest.approx(sum(counted) / tokens, abs=0.25)


def test_a_token_alone_goes_through_its_own_experts() -> None:
    found = load_pass("mixtral-8x7b", Pass(1, 1, cached=100))
    up = found["layers.experts.up"]
    assert (up.copies, up.runs, up.n) == (32 * 8, 32 * 2, 1)
    many = load_pass("mixtral-8x7b", Pass(1, 2048))["layers.experts.up"]
    assert (many.runs, many.n) == (32 * 8, 512)


def test_active_experts_grow_with_tokens_up_to_all() -> None:
    layer = ExpertLayer(experts=128, per_token=8, hidden=1, width=1, tokens=1)
    counts = [active_experts(layer._replace(tokens=tokens)) for tokens in (1, 2, 4, 8, 16, 64, 4096)]
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (8, 128)


def test_layers_alike_of_large_models_take_as_long_as_one_after_the_other() -> None:
    """What stands for 80 layers counts 80 times, transposes and attention too."""
    large = load_pass("llama-3-70b", Pass(1, 64))
    attention = large["layers.attention"]
    assert attention.copies == 80
    whole = engine_seconds(attention, GPU, Conditions(launch="stream"))
    assert whole >= 80 * GPU.stream_launch_s


def test_whisper_hears_once_and_then_reads_what_it_heard() -> None:
    first = load_pass("whisper-base", Pass(2, 4))
    assert first["encoder.0.query"].n == 3000
    assert "decoder.0.cross.key" in first.products
    then = load_pass("whisper-base", Pass(2, 1, cached=50))
    assert "decoder.0.cross.key" not in then.products
    assert then["decoder.0.cross.attention"].elements_cached == 2 * 512 * 2 * 1500


@pytest.mark.parametrize("name", ["resnet50", "bert-base", "vit-base-16", "stable-diffusion-1.5"])
def test_no_decode_of_what_writes_no_text(name: str) -> None:
    with pytest.raises(BadInput, match="one by one"):
        load_pass(name, Pass(1, 1, cached=5))


GENERATES = [name for name, shape in transformers().items() if shape.causal]


@pytest.mark.parametrize("name", GENERATES)
def test_every_layer_of_a_decode_writes_its_keys_and_values_once(name: str) -> None:
    """MLA stores the latents and the rotary keys that all heads share, in place of keys and values."""
    shape = replace(transformers()[name], layers=2)
    stored = shape.key_rank + shape.rotary_width if shape.key_rank else 2 * shape.key_width
    model = unfused_transformer("x", shape, Pass(3, 1, 9))
    writes = [o for o in model if o.kind == "cache"]
    assert [o.elements_out for o in writes] == [3 * stored] * 2
    assert [[reader.kind for reader in model.readers(o.name)] for o in writes] == [["attention"]] * 2
    assert all(o.kind != "cache" for o in unfused_transformer("x", shape, Pass(3, 9)))


@pytest.mark.parametrize("name", ["gpt2", "opt-350m", "llama-3-8b", "qwen3-4b"])
def test_torch_launches_the_write_of_the_cache_and_an_engine_does_so_in_attention(name: str) -> None:
    shape, run = replace(transformers()[name], layers=2), Pass(3, 1, 9)
    launches = {
        runtime: [o.name for o in transformer_graph(name, shape, run, runtime) if o.kind == "cache"]
        for runtime in ("torch", "engine")
    }
    assert launches == {"torch": ["layer.0.cache", "layer.1.cache"], "engine": []}
