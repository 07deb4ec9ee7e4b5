"""The dense baseline of a careful user: layers that read the same x as one product."""

import torch
from torch import nn

from prunecast.torch.find import find_layers, matrix_of, sibling_groups


class DenseProduct(nn.Module):  # type: ignore[misc]
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
        y = held[1] if held is not None and is_same else nn.functional.linear(x, self.weight, self.bias)
        self.held = None if last == self.weight.shape[0] else (x, y)
        return y[..., first:last]


class DensePart(nn.Module):  # type: ignore[misc]
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
