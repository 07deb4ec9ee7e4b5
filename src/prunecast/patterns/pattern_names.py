"""Parse pattern strings: `tile-wise:128`, `2:4`, `block:64x64`.

A string is a family and, after a colon, its sizes. `2:4` and `64x64` need no family.
"""

import re
from difflib import get_close_matches

from prunecast.arguments import checked
from prunecast.errors import BadInput
from prunecast.patterns.adaptive_tile_pattern import AdaptiveTile2DPattern, AdaptiveTilePattern
from prunecast.patterns.dense_block_pattern import DenseBlockPattern
from prunecast.patterns.n_of_m import BalancedPattern, NOfMPattern
from prunecast.patterns.pattern import Pattern
from prunecast.patterns.plain import (
    BlockSparsePattern,
    DensePattern,
    UnstructuredPattern,
    ZerosPattern,
    ZeroTilesPattern,
)
from prunecast.patterns.shuffled_block import ShuffledBlockPattern
from prunecast.patterns.tile_element import TileElementPattern
from prunecast.patterns.tile_two_of_four import TileTwoOfFourPattern
from prunecast.patterns.tile_wise import AprioriPattern, TileWisePattern
from prunecast.patterns.tile_wise_2d import TileWise2DPattern
from prunecast.patterns.vector_n_of_m import VectorNOfMPattern
from prunecast.patterns.vector_wise import VectorWisePattern

PATTERNS: dict[str, type[Pattern]] = {
    "dense": DensePattern,
    "unstructured": UnstructuredPattern,
    "block": BlockSparsePattern,
    "n-of-m": NOfMPattern,
    "balanced": BalancedPattern,
    "vector-wise": VectorWisePattern,
    "shuffled-block": ShuffledBlockPattern,
    "tile-wise": TileWisePattern,
    "tile-wise-2d": TileWise2DPattern,
    "apriori": AprioriPattern,
    "tile-element": TileElementPattern,
    "atp": AdaptiveTilePattern,
    "atp-2d": AdaptiveTile2DPattern,
    "dense-block": DenseBlockPattern,
    "tvw": TileTwoOfFourPattern,
    "vnm": VectorNOfMPattern,
    "zeros": ZerosPattern,
    "zero-tiles": ZeroTilesPattern,
}
"""Family -> pattern class, in the order of help texts."""

ALIASES = {
    "tw": "tile-wise",
    "tw-2d": "tile-wise-2d",
    "tw2d": "tile-wise-2d",
    "shfl-bw": "shuffled-block",
    "tew": "tile-element",
}
"""Alternative name -> family."""


@checked
def parse_pattern(text: str) -> Pattern:
    """Return the pattern that `text` names; `parse_pattern(text).canonical` is its unique spelling.

    Raises
    ------
    BadInput : unknown family (with the nearest ones), or sizes that the family cannot use
    """
    plain = text.strip().lower()
    family, _, argument = plain.partition(":")
    if re.fullmatch("[0-9]+:[0-9]+", plain):
        family, argument = "n-of-m", plain
    elif re.fullmatch("[0-9]+x[0-9]+", plain):
        family, argument = "block", plain
    family = ALIASES.get(family, family)
    if family not in PATTERNS:
        raise BadInput(f"unknown pattern {text!r}; {_advice(family)}")
    return PATTERNS[family].from_argument(argument)


def _advice(family: str) -> str:
    known = {**{name: name for name in PATTERNS}, **ALIASES}
    near = get_close_matches(family.replace("_", "-"), known)
    examples = dict.fromkeys(PATTERNS[known[name]].example for name in near)
    if examples:
        return f"did you mean {' or '.join(examples)}?"
    return f"known: {', '.join(pattern.example for pattern in PATTERNS.values())}"
