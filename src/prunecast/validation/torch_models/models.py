"""Build Hugging Face models, from a folder or with random weights, and the forward passes that are timed.

Dense and sparse models use attention without a mask. No input is padded, and the mask that transformers
builds under torch.compile would prevent flash attention. `sdpa_without_mask` is transformers' own function
for `scaled_dot_product_attention`, which uses `is_causal` if there is no mask. It is registered under this
name because transformers builds no mask for unknown names.
"""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from prunecast.errors import BadInput
from prunecast.validation.torch_models.predicted import ModelCase
from prunecast.validation.torch_models.timing import Forward
from prunecast.workload.graph.config import QUANTIZED
from prunecast.workload.graph.image_nets import PIXELS
from prunecast.workload.graph.shapes import Pass, Transformer, transformers

VOCABULARY = 512
"""Tokens of the vocabulary of built models. Kind: choice."""
WITHOUT_MASK = "sdpa_without_mask"


def make_model(case: ModelCase, dtype: torch.dtype, device: str) -> nn.Module:
    """Return the model of a case on a device. Raises BadInput if transformers is not installed."""
    if case.model in transformers():
        with torch.device(device):
            return _standard(case.shape).to(dtype).eval()
    options: dict[str, Any] = {"dtype": dtype, "attn_implementation": without_mask()}
    kind = _transformers().AutoModel
    if case.promise is not None:
        kind, config = _class_of(case.model)
        options["config"] = config
        if "add_pooling_layer" in inspect.signature(kind).parameters:
            options["add_pooling_layer"] = False  # no part of predictions
    return kind.from_pretrained(case.model, local_files_only=True, **options).to(device).eval()


def _class_of(folder: str) -> tuple[Any, Any]:
    """Return the class that a folder's configuration names, and the configuration without pruning."""
    hf = _transformers()
    config = hf.AutoConfig.from_pretrained(folder, local_files_only=True)
    if hasattr(config, QUANTIZED):
        delattr(config, QUANTIZED)
    return getattr(hf, (config.architectures or ["AutoModel"])[0]), config


def without_zeros(model: nn.Module) -> nn.Module:
    """Replace the zeros of a pruned model in place by normal random numbers, and return the model.

    In each weight matrix the random numbers have the RMS of the kept values. Reason: products with zeros draw
    less power, so that the time of the dense model would be too short if it ran with pruned weights.
    """
    with torch.no_grad():
        for weight in (p for p in model.parameters() if p.dim() > 1):
            is_zero = weight == 0
            if bool(is_zero.any()):
                kept = weight[~is_zero].float()
                scale = kept.square().mean().sqrt() if kept.numel() else torch.ones(())
                weight.copy_(torch.where(is_zero, torch.randn_like(weight) * scale.to(weight), weight))
    return model


def _transformers() -> Any:
    try:
        import transformers
    except ImportError as missing:
        raise BadInput(f"models are built by Hugging Face's transformers: {missing}") from None
    return transformers


def without_mask() -> str:
    """Register an attention function without masks in transformers, and return its name."""
    _transformers()
    from transformers import AttentionInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    AttentionInterface.register(WITHOUT_MASK, sdpa_attention_forward)
    return WITHOUT_MASK


def _standard(shape: Transformer) -> nn.Module:
    """Return LLaMA for gated blocks, GPT-2 for other causal models, ViT for image patches, else BERT."""
    hf = _transformers()
    sizes = {
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "intermediate_size": shape.feed_forward,
        "attn_implementation": without_mask(),
    }
    words = {"vocab_size": VOCABULARY, "max_position_embeddings": 8192}
    if shape.gated:
        keys = shape.key_heads or shape.heads
        return hf.LlamaModel(hf.LlamaConfig(**sizes, **words, num_key_value_heads=keys))
    if shape.causal:
        return hf.GPT2Model(
            hf.GPT2Config(
                n_embd=shape.hidden,
                n_layer=shape.layers,
                n_head=shape.heads,
                n_inner=shape.feed_forward,
                vocab_size=VOCABULARY,
                n_positions=8192,
                attn_implementation=without_mask(),
            )
        )
    if shape.patch:
        return hf.ViTModel(
            hf.ViTConfig(**sizes, image_size=PIXELS, patch_size=shape.patch), add_pooling_layer=False
        )
    return hf.BertModel(hf.BertConfig(**sizes, **words), add_pooling_layer=False)


def passes(case: ModelCase, device: str) -> Callable[[nn.Module], Forward]:
    """Return a function that makes the timed forward pass of a model. All models get the same input."""
    if case.shape.patch:
        return _pictures(case.run.batch, device)
    return _decode(case.run, device) if case.run.cached else _whole(case.run, device)


def _ids(run: Pass, device: str) -> torch.Tensor:
    return torch.randint(0, VOCABULARY, (run.batch, run.tokens), device=device)


def _whole(run: Pass, device: str) -> Callable[[nn.Module], Forward]:
    """Return the function of `passes` for a pass over random token ids without cached tokens."""
    kept = [_ids(run, device)]

    def call(model: nn.Module) -> Forward:
        plain = getattr(model, "_orig_mod", model)
        # Only decoders keep a cache; encoders, which have a pooler, may have the entry in their config, too
        may_cache = getattr(plain.config, "use_cache", False) and not hasattr(plain, "pooler")
        options: dict[str, Any] = {"use_cache": False} if may_cache else {}
        if "logits_to_keep" in inspect.signature(plain.forward).parameters:
            options["logits_to_keep"] = 1  # only the last token of a prompt needs logits
        return lambda: _result(model(kept[0], **options))

    return call


def _result(output: Any) -> torch.Tensor:
    found: torch.Tensor = output.logits if "logits" in output else output.last_hidden_state
    return found


def _pictures(batch: int, device: str) -> Callable[[nn.Module], Forward]:
    """Return the function of `passes` for a batch of random images."""
    kept: list[torch.Tensor] = []

    def call(model: nn.Module) -> Forward:
        if not kept:
            kept.append(
                torch.randn(batch, 3, PIXELS, PIXELS, device=device).to(next(model.parameters()).dtype)
            )
        return lambda: _result(model(kept[0]))

    return call


def _decode(run: Pass, device: str) -> Callable[[nn.Module], Forward]:
    """Return the function of `passes` for decoding: new tokens that follow `run.cached` cached tokens.

    Keys and values are in a static cache. Each model gets its own cache with the same random content, so that
    all models and variants are in the same state. Every pass writes the new keys and values to the same
    positions.
    """
    kept: list[torch.Tensor] = []

    def call(model: nn.Module) -> Forward:
        from transformers import StaticCache

        plain = getattr(model, "_orig_mod", model)
        token = kept[0] if kept else _ids(run, device)
        place = torch.arange(run.cached, run.cached + run.tokens, device=device).expand(run.batch, -1)
        cache = StaticCache(config=plain.config, max_cache_len=run.cached + run.tokens)
        plain(token, past_key_values=cache, position_ids=torch.zeros_like(place))  # makes its tensors
        if not kept:
            one_layer = cache.layers[0].keys
            kept.extend((token, torch.randn_like(one_layer), torch.randn_like(one_layer)))
        for layer in cache.layers:
            layer.keys.copy_(kept[1])
            layer.values.copy_(kept[2])

        def one() -> torch.Tensor:
            for layer in cache.layers:  # the same places again
                if hasattr(layer, "cumulative_length"):
                    layer.cumulative_length.fill_(run.cached)
            given = {"past_key_values": cache, "cache_position": place[0], "position_ids": place}
            return _result(model(token, **given))

        return one

    return call
