"""Models with random weights and their inputs, and the dense baseline with fused products.

Dense and sparse models attend without a mask: no input is padded, and transformers builds a mask under
torch.compile that keeps flash attention away. `sdpa_without_mask` is transformers' own function for
`scaled_dot_product_attention`, which takes `is_causal` where there is no mask, under a name that transformers
makes no masks for.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

from prunecast.torch.find import find_layers, matrix_of, sibling_groups

Forward = Callable[[], torch.Tensor]
VOCABULARY = 512
DEVICE = "cuda"
WITHOUT_MASK = "sdpa_without_mask"


class Case(NamedTuple):
    """A model and its input."""

    name: str
    make: Callable[[], nn.Module]
    call: Callable[[nn.Module], Forward]
    """The pass that is timed, of a model on the GPU."""
    max_tokens: int
    sparsity: float


class DenseProduct(nn.Module):
    """Layers that read the same x as one dense product."""

    def __init__(self, parts: list[nn.Linear]) -> None:
        super().__init__()
        self.register_buffer("weight", torch.cat([part.weight.detach() for part in parts]))
        biases = [part.bias for part in parts]
        self.register_buffer("bias", None if biases[0] is None else torch.cat(biases).detach())
        self.held: tuple[torch.Tensor, torch.Tensor] | None = None

    def part(self, x: torch.Tensor, first: int, last: int) -> torch.Tensor:
        """Features `first` to `last` of the product."""
        held = self.held
        is_same = held is not None and held[0] is x
        y = held[1] if is_same else nn.functional.linear(x, self.weight, self.bias)
        self.held = None if last == self.weight.shape[0] else (x, y)
        return y[..., first:last]


class DensePart(nn.Module):
    """Rows of a dense product."""

    def __init__(self, product: DenseProduct, first: int, rows: int) -> None:
        super().__init__()
        self.product, self.first, self.rows = product, first, rows

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Its features of x."""
        return self.product.part(x, self.first, self.first + self.rows)


def fuse_dense(model: nn.Module) -> nn.Module:
    """Siblings become one product, as `sparsify` does with sparse ones."""
    found, _ = find_layers(model)
    for group in sibling_groups(found):
        if len(group) == 1:
            continue
        product, first = DenseProduct([layer.module for layer in group]), 0
        for layer in group:
            rows = matrix_of(layer.module).shape[0]
            parent, _, own = layer.name.rpartition(".")
            setattr(model.get_submodule(parent), own, DensePart(product, first, rows))
            first += rows
    return model


def without_mask() -> str:
    """Name of an attention that is given no mask, registered in transformers."""
    from transformers import AttentionInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    AttentionInterface.register(WITHOUT_MASK, sdpa_attention_forward)
    return WITHOUT_MASK


def llama(blocks: int) -> nn.Module:
    from transformers import LlamaConfig, LlamaModel

    config = LlamaConfig(
        hidden_size=4096,
        intermediate_size=11008,
        num_hidden_layers=blocks,
        num_attention_heads=32,
        vocab_size=VOCABULARY,
        max_position_embeddings=4096,
        attn_implementation=without_mask(),
    )
    return LlamaModel(config)


def bert() -> nn.Module:
    from transformers import BertConfig, BertModel

    config = BertConfig(vocab_size=VOCABULARY, attn_implementation=without_mask())
    return BertModel(config, add_pooling_layer=False)


def vit() -> nn.Module:
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(
        hidden_size=1024,
        num_hidden_layers=24,
        num_attention_heads=16,
        intermediate_size=4096,
        attn_implementation=without_mask(),
    )
    return ViTModel(config, add_pooling_layer=False)


def ids(batch: int, length: int) -> torch.Tensor:
    return torch.randint(0, VOCABULARY, (batch, length), device=DEVICE)


def whole(batch: int, length: int, **options: Any) -> Callable[[nn.Module], Forward]:
    """A pass over token numbers, the same at every call."""
    kept: list[torch.Tensor] = []

    def call(model: nn.Module) -> Forward:
        if not kept:
            kept.append(ids(batch, length))
        return lambda: model(kept[0], **options).last_hidden_state

    return call


def pictures(batch: int) -> Callable[[nn.Module], Forward]:
    """A pass over random pictures."""
    kept: list[torch.Tensor] = []

    def call(model: nn.Module) -> Forward:
        if not kept:
            kept.append(torch.randn(batch, 3, 224, 224, device=DEVICE).to(next(model.parameters()).dtype))
        return lambda: model(kept[0]).last_hidden_state

    return call


def decode(batch: int, cached: int) -> Callable[[nn.Module], Forward]:
    """One token a sequence, behind `cached` others whose keys and values fill a static cache but a place.

    Every call makes a cache of its own with the same random keys and values, so that all models and variants
    are in the same state; every pass writes the same place again.
    """
    kept: list[torch.Tensor] = []

    def call(model: nn.Module) -> Forward:
        from transformers import StaticCache

        plain = getattr(model, "_orig_mod", model)
        token = kept[0] if kept else ids(batch, 1)
        place = torch.full((batch, 1), cached, device=DEVICE)
        cache = StaticCache(config=plain.config, max_cache_len=cached + 1)
        plain(token, past_key_values=cache, position_ids=torch.zeros_like(place))  # makes its tensors
        if not kept:
            one_layer = cache.layers[0].keys
            kept.extend((token, torch.randn_like(one_layer), torch.randn_like(one_layer)))
        for layer in cache.layers:
            layer.keys.copy_(kept[1])
            layer.values.copy_(kept[2])

        def one() -> torch.Tensor:
            for layer in cache.layers:  # the same place again
                if hasattr(layer, "cumulative_length"):
                    layer.cumulative_length.fill_(cached)
            given = {"past_key_values": cache, "cache_position": place[0], "position_ids": place}
            found: torch.Tensor = model(token, **given).last_hidden_state
            return found

        return one

    return call


def model_cases(blocks: int) -> dict[str, Case]:
    """By name; `blocks` are those of Llama."""

    def make() -> nn.Module:
        return llama(blocks)

    found = [
        Case("llama-2048", make, whole(1, 2048, use_cache=False), 2048, 0.75),
        Case("bert-75", bert, whole(32, 128), 4096, 0.75),
        Case("llama-1", make, decode(1, 1024), 256, 0.75),
        Case("llama-16", make, decode(16, 1024), 4096, 0.75),
        Case("llama-2048-50", make, whole(1, 2048, use_cache=False), 2048, 0.5),
        Case("bert-90", bert, whole(32, 128), 4096, 0.9),
        Case("vit-l-75", vit, pictures(32), 32 * 197, 0.75),
    ]
    return {case.name: case for case in found}
