"""`Case`: a model, a pass, and how it is pruned."""

from dataclasses import replace
from typing import NamedTuple

from prunecast.codesign.graph.passes import Pass
from prunecast.codesign.graph.shapes import Transformer, transformers


class Case(NamedTuple):
    """A model, a pass and how it is pruned."""

    model: str
    """A name of `transformers()`, or a Hugging Face folder."""
    run: Pass
    sparsity: float = 0.75
    pattern: str = "tile-wise:128"
    blocks: int | None = None
    """Blocks of a standard model; None for all."""

    @property
    def name(self) -> str:
        """e.g. `llama-2-7b 4 blocks decode:16@1024 75%`."""
        blocks = "" if self.blocks is None else f" {self.blocks} blocks"
        return f"{self.model}{blocks} {self.run.label} {self.sparsity:.0%}"

    @property
    def shape(self) -> Transformer:
        """Of a standard model, with as many blocks as asked for."""
        shape = transformers()[self.model]
        return shape if self.blocks is None else replace(shape, layers=self.blocks)
