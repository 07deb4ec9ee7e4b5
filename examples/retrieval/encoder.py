"""The sentence encoder: Hugging Face's BERT, the mean over tokens, length 1."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional


def load_encoder(folder: Path, dtype: torch.dtype, attention: str = "sdpa") -> nn.Module:
    """BERT without its pooler and without dropout, in evaluation mode."""
    from transformers import BertModel

    options = {"attn_implementation": attention, "add_pooling_layer": False}
    model = BertModel.from_pretrained(
        folder, dtype=dtype, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **options
    )
    found: nn.Module = model.eval()
    return found


def embed(model: nn.Module, ids: Tensor) -> Tensor:
    """Unit vectors (texts, hidden) of token numbers (texts, tokens); 0 fills texts up."""
    mask = ids != 0
    states = model(input_ids=ids, attention_mask=mask).last_hidden_state
    sums = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
    return functional.normalize(sums.float(), dim=-1)
