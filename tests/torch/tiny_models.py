"""Tiny models of transformers with random weights: one for each family that `families.toml` describes.

`test_architectures.py` adds architectures without a family.
"""

from collections.abc import Mapping
from typing import Any

TEXT = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 8, "vocab_size": 96}
WIDE = {**TEXT, "intermediate_size": 128, "max_position_embeddings": 64, "pad_token_id": 0}
KEYS = {**WIDE, "num_key_value_heads": 4}
HEADS = {**KEYS, "head_dim": 8}
EXPERTS = {**HEADS, "num_experts_per_tok": 2}
LATENT = {
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 8,
}
ROUTED = {"n_routed_experts": 4, "moe_intermediate_size": 32, "n_group": 1, "topk_group": 1}
SOUND = {"d_model": 64, "encoder_layers": 2, "encoder_attention_heads": 8, "encoder_ffn_dim": 128}
SOUND |= {"num_mel_bins": 16, "max_source_positions": 20, "decoder_layers": 1, "pad_token_id": 0}
T5 = {"d_model": 64, "d_kv": 8, "d_ff": 128, "num_layers": 2, "num_heads": 8, "vocab_size": 96}

CLASSES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("Llama", "ForCausalLM", KEYS),
    "mistral": ("Mistral", "ForCausalLM", HEADS),
    "mixtral": ("Mixtral", "ForCausalLM", {**EXPERTS, "num_local_experts": 4}),
    "qwen2": ("Qwen2", "ForCausalLM", KEYS),
    "qwen3": ("Qwen3", "ForCausalLM", HEADS),
    "qwen3_moe": ("Qwen3Moe", "ForCausalLM", {**EXPERTS, "num_experts": 4, "moe_intermediate_size": 32}),
    "gpt_oss": ("GptOss", "ForCausalLM", {**EXPERTS, "num_local_experts": 4}),
    "deepseek_v3": ("DeepseekV3", "ForCausalLM", {**WIDE, **LATENT, **ROUTED, "num_experts_per_tok": 2}),
    "gemma": ("Gemma", "ForCausalLM", HEADS),
    "gemma2": ("Gemma2", "ForCausalLM", HEADS),
    "gemma3_text": ("Gemma3Text", "ForCausalLM", HEADS),
    "phi3": ("Phi3", "ForCausalLM", KEYS),
    "gpt2": ("GPT2", "LMHeadModel", {"n_embd": 64, "n_layer": 2, "n_head": 8, "vocab_size": 96}),
    "falcon": ("Falcon", "ForCausalLM", TEXT),
    "gpt_neox": ("GPTNeoX", "ForCausalLM", WIDE),
    "opt": ("OPT", "ForCausalLM", {**TEXT, "ffn_dim": 128, "max_position_embeddings": 64}),
    "bert": ("Bert", "Model", WIDE),
    "roberta": ("Roberta", "Model", WIDE),
    "vit": ("ViT", "Model", {**WIDE, "image_size": 224, "patch_size": 32}),
    "WhisperEncoder": ("Whisper", "Encoder", SOUND),
    "T5EncoderModel": ("T5", "EncoderModel", T5),
}
"""Family -> names of its configuration and of its model in transformers, and sizes of a tiny model."""
FORMS: dict[str, tuple[str, dict[str, Any]]] = {family: (family, {}) for family in CLASSES}
FORMS |= {
    "falcon as 40B": ("falcon", {"new_decoder_architecture": True, "num_kv_heads": 2}),
    "falcon as 11B": (
        "falcon",
        {"new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1},
    ),
    "falcon as RW": ("falcon", {"alibi": True, "multi_query": False, "parallel_attn": False, "bias": True}),
    "gpt_neox in sequence": ("gpt_neox", {"use_parallel_residual": False, "attention_bias": False}),
    "llama with tied head": ("llama", {"tie_word_embeddings": True}),
    "opt as 350M": ("opt", {"do_layer_norm_before": False, "word_embed_proj_dim": 32}),
    "opt as Galactica": ("opt", {"activation_function": "gelu", "enable_bias": False}),
    "t5 with gate": ("T5EncoderModel", {"feed_forward_proj": "gated-gelu"}),
}
"""Name -> family and sizes of `tiny`: all families, and configurations with other kinds of layers."""
NO_CLASS = ("kimi_k2",)
"""Families that transformers has no class for."""


def tiny(family: str, **sizes: Any) -> Any:
    """Return a tiny model of a family in fp32, with random weights; `sizes` override those of `CLASSES`."""
    import torch

    kind, end, own = CLASSES[family]
    model = built(kind, end, {**own, **sizes})
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.1)
    return model.eval()


def built(kind: str, end: str, sizes: Mapping[str, Any]) -> Any:
    """Return a model of transformers, by the names of its configuration and its class, from a fixed seed."""
    import torch
    import transformers
    from transformers.models.whisper import modeling_whisper

    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**sizes)
    name = f"{kind.removesuffix('Text')}{end}"
    # transformers exports all of these classes but the encoder of Whisper
    return getattr(modeling_whisper if name == "WhisperEncoder" else transformers, name)(config)
