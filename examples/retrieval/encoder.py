"""The sentence encoder: Hugging Face's BERT, the mean over tokens, length 1."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from prunecast.validation.torch_models.models import without_mask


def load_encoder(folder: Path, dtype: torch.dtype = torch.float32) -> nn.Module:
    """BERT without its pooler and without dropout."""
    from transformers import BertModel

    options = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "add_pooling_layer": False}
    found: nn.Module = BertModel.from_pretrained(folder, dtype=dtype, **options)
    return found


def random_encoder() -> nn.Module:
    """One layer with random weights."""
    from transformers import BertConfig, BertModel

    sizes = {"hidden_size": 128, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 256}
    config = BertConfig(vocab_size=50, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **sizes)
    torch.manual_seed(0)
    return BertModel(config, add_pooling_layer=False)


def states(model: nn.Module, ids: Tensor) -> Tensor:
    """(layers, texts, tokens, hidden): what layers say of token numbers (texts, tokens); 0 is filling."""
    found = model(input_ids=ids, attention_mask=_seen(ids), output_hidden_states=True).hidden_states
    return torch.stack(found[1:])


def _seen(ids: Tensor) -> Tensor:
    """(texts, 1, 1, tokens): what may be looked at, as a CUDA graph can hold it."""
    return (ids != 0)[:, None, None]


def pooled(last: Tensor, ids: Tensor) -> Tensor:
    """Unit vectors (texts, hidden): means over tokens of the last layer's states (texts, tokens, hidden)."""
    mask = (ids != 0)[..., None]
    return functional.normalize((last.float() * mask).sum(1) / mask.sum(1), dim=-1)


def embed(model: nn.Module, ids: Tensor) -> Tensor:
    """Unit vectors (texts, hidden) of token numbers (texts, tokens)."""
    return pooled(model(input_ids=ids, attention_mask=_seen(ids)).last_hidden_state, ids)


class Encoder(nn.Module):
    """The timed pass: whole texts, no mask, states of all tokens."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        model.set_attn_implementation(without_mask())

    def forward(self, ids: Tensor) -> Tensor:
        """States (texts, tokens, hidden) of ids (texts, tokens)."""
        return self.model(ids).last_hidden_state
