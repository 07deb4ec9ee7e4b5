"""`Case`: a model, a pass, and how it is pruned."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from prunecast.codesign.graph.config import CONFIG, shape_of_config
from prunecast.codesign.graph.passes import Pass
from prunecast.codesign.graph.shapes import Transformer, transformers
from prunecast.errors import BadInput


class Case(NamedTuple):
    """A model, a pass and how it is pruned."""

    model: str
    """A name of `transformers()`, or a folder as Hugging Face writes it."""
    run: Pass
    sparsity: float = 0.75
    pattern: str = "tile-wise:128"
    blocks: int | None = None
    """Blocks of a model that is named; None for all."""

    @property
    def name(self) -> str:
        """e.g. `llama-2-7b 4 blocks decode:16@1024 75%`."""
        blocks = "" if self.blocks is None else f" {self.blocks} blocks"
        return f"{self.model}{blocks} {self.run.label} {self.sparsity:.0%}"

    @property
    def shape(self) -> Transformer:
        """Sizes of the model, with as many blocks as asked for and without what makes logits.

        Raises
        ------
        BadInput : no standard transformer, and no Hugging Face folder of one that is known
        """
        shape = transformers().get(self.model)
        if shape is None and (Path(self.model) / CONFIG).is_file():
            shape = shape_of_config(Path(self.model) / CONFIG)
        if shape is None:
            known = ", ".join(transformers())
            raise BadInput(f"model must be a Hugging Face folder or one of {known}, got {self.model!r:.80}")
        return replace(shape, head=0, layers=shape.layers if self.blocks is None else self.blocks)
