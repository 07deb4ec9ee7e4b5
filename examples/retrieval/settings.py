"""Sizes and budgets of the retrieval study, in one place."""

from __future__ import annotations


class Retrieval:
    """all-MiniLM-L6-v2 finds the gloss of a sentence."""

    most_tokens = 48
    """Of a text in training and judging; one gloss in a hundred is longer and is cut."""
    batch, length = 64, 128
    """Of the pass that is timed."""
    target = ("re:^encoder",)
