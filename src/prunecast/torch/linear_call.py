"""The arguments of `prunecast::linear` as a record, for the operator and for what runs it on a GPU."""

from typing import NamedTuple

import torch

from prunecast.torch.epilogue import Epilogue

__all__ = ["LinearCall"]


class LinearCall(NamedTuple):
    """The arguments of `prunecast::linear`, in its order."""

    x_t: torch.Tensor
    images: list[torch.Tensor]
    tiles: torch.Tensor
    bias: torch.Tensor | None
    residual: torch.Tensor | None
    tokens: int
    rows: int
    activation: str
    glu: bool
    features_first: bool
    gpu: str
    plan: int

    @property
    def epilogue(self) -> Epilogue:
        """What becomes of the sums."""
        return Epilogue(self.activation, self.glu, self.features_first)

    def new_y(self) -> torch.Tensor:
        """Room for y."""
        columns = self.x_t.shape[1]
        shape = (self.rows, columns) if self.features_first else (self.tokens, self.rows)
        return self.x_t.new_empty(shape)
