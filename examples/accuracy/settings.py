"""What the studies compare: patterns, sparsities, seeds and budgets. One place, so that all scripts agree."""

from __future__ import annotations

import os
from typing import NamedTuple

TINY = bool(os.environ.get("ACCURACY_TINY"))
"""Set to try the scripts out: sizes and budgets that a CPU does in seconds, results that mean nothing."""
SPARSITIES = (0.5, 0.75, 0.9)
SEEDS = (0, 1, 2)
GPUS = ("h200-sxm", "a100-sxm4-80gb")


class Case(NamedTuple):
    """One way to prune the model."""

    pattern: str
    sparsity: float

    @property
    def name(self) -> str:
        """As results and files call it."""
        return f"{self.pattern}@{self.sparsity:g}"


def cases(height: int, group: int, block: int) -> list[Case]:
    """All patterns at all sparsities that they can have.

    Parameters
    ----------
    height : rows of a tile
    group : rows of a group of vectors
    block : rows and columns of a sparse block
    """
    anywhere = (
        "unstructured",
        "balanced:64",
        f"block:{block}x{block}",
        f"vector-wise:{group}",
        f"shuffled-block:{group}",
        f"tile-wise:{height}",
        f"tile-wise-2d:{height}",
        f"apriori:{height}",
        f"tile-element:{height}",
        f"atp:{height}",
        f"atp-2d:{height}",
        f"atp:{height}:shuffled",
        "dense-block:8",
    )
    found = [Case("dense", 0.0), Case("2:4", 0.5)]
    found += [Case(f"tvw:{height}", sparsity) for sparsity in SPARSITIES[1:]]
    found += [Case(f"vnm:{group}:2:8", 0.75), Case(f"vnm:{group}:2:20", 0.9)]
    return found + [Case(pattern, sparsity) for pattern in anywhere for sparsity in SPARSITIES]


class Language:
    """The language model: BERT-Small's size, trained on Python's standard library by `stdlib_lm`."""

    layers, hidden, heads, feed_forward = 4, 512, 8, 2048
    train_steps, train_batch, train_rate, train_dropout = 2500, 128, 1e-3, 0.1
    tune_steps, tune_batch, tune_rate, tune_dropout = 250, 32, 2e-3, 0.1
    warmup_steps = 20
    updates, update_share = 8, 0.6
    """Masks change so often, in this share of the tuning steps, on a cubic curve."""
    importance = "taylor"
    target = ("re:^blocks",)
    evaluation_windows = 256
    tokens = 8192
    """N of predictions and measurements."""
    cases = cases(height=128, group=64, block=64)


class Digits:
    """The residual network on scikit-learn's digits."""

    widths, blocks = (64, 128, 256), 2
    train_steps, train_batch, train_rate = 300, 128, 3e-3
    tune_steps, tune_rate = 150, 1e-3
    """One shot by magnitude comes before them."""
    warmup_steps = 20
    train_images = 600
    """Of 1797; the others judge."""
    ignore = ("stem.weight", "head.weight")
    images = 1024
    """Per batch of predictions and measurements; N is images times pixels of a layer's output."""
    cases = cases(height=64, group=32, block=32)


if TINY:
    Language.layers, Language.hidden, Language.feed_forward = 1, 128, 256
    Language.train_steps, Language.train_batch, Language.evaluation_windows = 12, 2, 2
    Language.tune_steps, Language.tune_batch, Language.tokens = 40, 2, 256
    Digits.widths, Digits.blocks = (64, 64), 1
    Digits.train_steps, Digits.tune_steps, Digits.train_images, Digits.images = 5, 3, 200, 16
