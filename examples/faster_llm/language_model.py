"""A Llama over bytes of Python's standard library: its text, its training, its loss."""

import math
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

sys.path.append(str(Path(__file__).resolve().parents[1] / "stdlib_lm"))

from corpus import bytes_tensor, even_windows, random_windows, read_corpus

LEARNING_RATE, WARM_UP_STEPS, GRADIENT_NORM = 6e-4, 100, 1.0
JUDGED_WINDOWS = 128


class Text:
    """Windows of `context` + 1 bytes of both splits, on one device."""

    def __init__(self, context: int, device: str) -> None:
        corpus = read_corpus()
        self.training = bytes_tensor(corpus.training, torch.device(device))
        held_out = bytes_tensor(corpus.validation, torch.device(device))
        self.held_out = even_windows(held_out, JUDGED_WINDOWS, context + 1)
        self._generator = torch.Generator(device).manual_seed(0)
        self._bytes = context + 1

    def batch(self, windows: int) -> torch.Tensor:
        """Random windows (windows, context + 1) of the training split."""
        return random_windows(self.training, windows, self._bytes, self._generator)


def new_model(hidden: int, layers: int, context: int) -> nn.Module:
    """Hugging Face's Llama with random weights in fp32, one token a byte."""
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=256,
            hidden_size=hidden,
            intermediate_size=4 * hidden,
            num_hidden_layers=layers,
            num_attention_heads=max(hidden // 64, 1),
            max_position_embeddings=2 * context,
            tie_word_embeddings=True,
        )
    )


def loss_of(model: nn.Module, windows: torch.Tensor) -> torch.Tensor:
    """Mean loss in nats a byte."""
    with torch.autocast(windows.device.type, torch.bfloat16):
        logits = model(windows[:, :-1], use_cache=False).logits
    return functional.cross_entropy(logits.flatten(0, 1).float(), windows[:, 1:].flatten())


@torch.no_grad()
def held_out_loss(model: nn.Module, text: Text) -> float:
    """Mean loss in nats a byte on files that training never saw."""
    losses = [loss_of(model, part) for part in text.held_out.split(16)]
    return float(torch.stack(losses).mean())


def train(
    model: nn.Module, text: Text, seconds: float, windows: int, masks: dict[str, torch.Tensor] | None = None
) -> int:
    """Train for so long and return the number of steps; weights outside of `masks` stay zero."""
    parameters, steps = dict(model.named_parameters()), 0
    optimizer = torch.optim.AdamW(model.parameters(), LEARNING_RATE, weight_decay=0.1)
    loss_in_training = torch.compile(loss_of) if text.training.is_cuda else loss_of
    begin = time.monotonic()
    while (gone := (time.monotonic() - begin) / seconds) < 1.0 or steps == 0:
        rate = (
            LEARNING_RATE * min(1.0, (steps + 1) / WARM_UP_STEPS) * (1 + math.cos(math.pi * min(gone, 1))) / 2
        )
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        loss_in_training(model, text.batch(windows)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), GRADIENT_NORM)
        optimizer.step()
        with torch.no_grad():
            for name, mask in (masks or {}).items():
                parameters[name].mul_(mask)
        steps += 1
        if text.training.is_cuda:
            torch.cuda.synchronize()  # the schedule follows the clock
    return steps
