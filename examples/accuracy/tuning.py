"""Training loops of the studies: a warm-up, a cosine to zero, and masks kept on the way."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from prunecast.torch import Pruner

WEIGHT_DECAY = 0.1
GRADIENT_NORM_LIMIT = 1.0


def rate_at(step: int, steps: int, warmup_steps: int, peak: float) -> float:
    """Learning rate: linear warm-up times a cosine that falls to zero."""
    return peak * min(1.0, (step + 1) / warmup_steps) * 0.5 * (1 + math.cos(math.pi * step / steps))


def make_optimizer(model: nn.Module, device: torch.device) -> torch.optim.AdamW:
    """AdamW that decays matrices and kernels and leaves norms and biases alone."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": WEIGHT_DECAY},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, betas=(0.9, 0.95), fused=device.type == "cuda")


def train(
    model: nn.Module,
    loss_of: Callable[[nn.Module, Any], Tensor],
    batches: Iterable[Any],
    rates: list[float],
    pruner: Pruner | None = None,
    watch: Callable[[int], None] | None = None,
) -> None:
    """One optimizer step per rate; bfloat16 products on CUDA. With a pruner, masks hold throughout.

    `watch` is told the number of steps done, after each.
    """
    device = next(model.parameters()).device
    optimizer = make_optimizer(model, device)
    model.train()
    for step, (rate, batch) in enumerate(zip(rates, batches, strict=False), 1):
        for group in optimizer.param_groups:
            group["lr"] = rate
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
            loss = loss_of(model, batch)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), GRADIENT_NORM_LIMIT)
        optimizer.step()
        if pruner is not None:
            pruner.step()
        if watch is not None:
            watch(step)
    model.eval()
