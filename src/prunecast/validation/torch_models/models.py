"""Models with random weights and the passes that are timed, from the shapes of standard transformers.

Hugging Face's code. Dense and sparse models attend without a mask: no input is padded, and transformers
builds a mask under torch.compile that keeps flash attention away.
`sdpa_without_mask` is transformers' own function for `scaled_dot_product_attention`, which takes `is_causal`
where there is no mask, under a name that transformers makes no masks for.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from prunecast.errors import BadInput
from prunecast.validation.torch_models.predicted import Case
from prunecast.validation.torch_models.timing import Forward
from prunecast.workload.graph.image_nets import PIXELS
from prunecast.workload.graph.shapes import Pass, Transformer, transformers

VOCABULARY = 512
WITHOUT_MASK = "sdpa_without_mask"


def make_model(case: Case, dtype: torch.dtype, device: str) -> nn.Module:
    """The model of a case on a device. Raises BadInput for an unknown name, or without transformers."""
    if case.model in transformers():
        with torch.device(device):
            return _standard(case.shape).to(dtype).eval()
    auto = _transformers().AutoModel
    return (
        auto.from_pretrained(
            case.model, dtype=dtype, attn_implementation=without_mask(), local_files_only=True
        )
        .to(device)
        .eval()
    )


def _transformers() -> Any:
    try:
        import transformers
    except ImportError as missing:
        raise BadInput(f"models are built by Hugging Face's transformers: {missing}") from None
    return transformers


def without_mask() -> str:
    """Name of an attention that is given no mask, registered in transformers."""
    _transformers()
    from transformers import AttentionInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    AttentionInterface.register(WITHOUT_MASK, sdpa_attention_forward)
    return WITHOUT_MASK


def _standard(shape: Transformer) -> nn.Module:
    """LLaMA for gated blocks, GPT-2 for other causal ones, else ViT or, with its norms last, BERT."""
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


def passes(case: Case, device: str) -> Callable[[nn.Module], Forward]:
    """A function that makes the timed pass of a model; the same input for every model."""
    if case.shape.patch:
        return _pictures(case.run.batch, device)
    return _decode(case.run, device) if case.run.cached else _whole(case.run, device)


def _ids(run: Pass, device: str) -> torch.Tensor:
    return torch.randint(0, VOCABULARY, (run.batch, run.tokens), device=device)


def _whole(run: Pass, device: str) -> Callable[[nn.Module], Forward]:
    """A pass over token numbers, the same at every call."""
    kept = [_ids(run, device)]

    def call(model: nn.Module) -> Forward:
        plain = getattr(model, "_orig_mod", model)
        may_cache = getattr(plain.config, "use_cache", False) and not hasattr(plain, "pooler")
        options = {"use_cache": False} if may_cache else {}
        return lambda: model(kept[0], **options).last_hidden_state

    return call


def _pictures(batch: int, device: str) -> Callable[[nn.Module], Forward]:
    """A pass over random pictures."""
    kept: list[torch.Tensor] = []

    def call(model: nn.Module) -> Forward:
        if not kept:
            kept.append(
                torch.randn(batch, 3, PIXELS, PIXELS, device=device).to(next(model.parameters()).dtype)
            )
        return lambda: model(kept[0]).last_hidden_state

    return call


def _decode(run: Pass, device: str) -> Callable[[nn.Module], Forward]:
    """New tokens of each sequence behind `cached` others, whose keys and values fill a static cache but their
    places.

    Every call makes a cache of its own with the same random keys and values, so that all models and variants
    are in the same state; every pass writes the same places again.
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
            found: torch.Tensor = model(token, **given).last_hidden_state
            return found

        return one

    return call
