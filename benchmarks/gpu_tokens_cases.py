"""What `benchmarks.gpu_tokens` runs: products, token counts, and where rows of B and C begin."""

import math
from typing import Any, NamedTuple

from prunecast.validation.case import Case

__all__ = [
    "AROUND",
    "AT",
    "COPIED",
    "DENSE",
    "MOVED",
    "PADDED",
    "PADDED_TOKENS",
    "Product",
    "Rows",
    "pads_of",
    "to_multiple",
]


def to_multiple(count: int, step: int) -> int:
    """Rounded up."""
    return -(-count // step) * step


class Rows(NamedTuple):
    """Where rows of a matrix begin, in elements of two bytes."""

    pitch: int
    offset: int = 0
    """Of the first row, from a line of L2."""


class Product(NamedTuple):
    """A layer and what is kept of it; `dense` keeps all."""

    kernel: str
    m: int
    k: int
    pattern: str = "tile-wise:128"
    sparsity: float = 0.75
    distribution: str = "equal"

    def case(self, tokens: int) -> Case:
        """As a suite would have it."""
        name = f"{self.m}x{self.k}x{tokens} {self.pattern} {self.sparsity} {self.distribution}"
        of_map = {key: value for key, value in self._asdict().items() if key != "kernel"}
        return Case(name=name, dtype="fp16", kernels=(self.kernel,), use="fit", n=tokens, **of_map)

    def sets(self, tokens: int, cold_bytes: float, most: int) -> int:
        """How many exceed `cold_bytes` together."""
        one = 2 * ((1 - self.sparsity) * self.m * self.k + tokens * (self.m + self.k))
        return min(max(math.ceil(cold_bytes / one), 2), most)

    def facts(self, part: str, tokens: int) -> dict[str, Any]:
        """For a row of the record."""
        return {"part": part} | self._asdict() | {"tokens": tokens}


AT = 1536
"""Tokens of products whose rows are moved: whole lines."""
_BEGIN = [Rows(AT + more) for more in (0, 8, 16, 32, 64)] + [Rows(AT, offset) for offset in (8, 16)]
_WHOLE = Rows(AT)
AROUND = (
    [(rows, _WHOLE) for rows in _BEGIN] + [(_WHOLE, rows) for rows in _BEGIN[1:]] + [(_BEGIN[1], _BEGIN[1])]
)
MOVED = (
    Product("stspmm", 4096, 4096, sparsity=0.8),
    Product("stspmm", 5120, 1280, sparsity=0.85),
    Product("tile-wise", 5120, 1280, sparsity=0.85),
    Product("stspmm", 5120, 5120, "block:64x32", 0.8),
    Product("stspmm", 768, 768),
    Product("2:4", 5120, 1280, "2:4", 0.5),
    Product("block-sparse", 4096, 1024, "block:64x64", 0.75),
    Product("balanced", 2048, 2048, "balanced:32", 0.75),
)
PADDED = ((768, 768), (3072, 768), (4096, 4096))
PADDED_TOKENS = (200, 1000, 1576, 6280, 6304)
COPIED = (50, 100, 197, 1001, 1002, 1500, 4321)
DENSE = (77, 197, 200, 333, 1001, 1576, 4321)


def pads_of(tokens: int) -> list[int]:
    """Pitches of rows of so many tokens: as they are, and whole sectors, pairs of them and lines."""
    return sorted({to_multiple(tokens, step) for step in (8, 16, 32, 64)})
