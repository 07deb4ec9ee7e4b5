"""`WeightSet`: the matrices that a file holds, ready to be scored and pruned."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from prunecast.patterns.tile_map import MaskArray, WeightArray


class FilterShape(NamedTuple):
    """What a row of a convolution's weights is: a filter, flattened in this order."""

    channels: int
    height: int
    width: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layer:
    """One weight matrix.

    Parameters
    ----------
    name : name of the tensor in the file, or of the file
    weights : (M, K) float16, bfloat16 (of ml_dtypes) or float32; finite
    dtype : `fp16`, `bf16` or `fp32`, the type of `weights`
    note : what was done to the tensor on the way, e.g. `conv 64x3x7x7 reshaped to 64x147`, or None
    experts : among so many matrices a model divides its tokens, this one gets a part; None gets all
    filters : of a convolution, K = channels * height * width; None for plain matrices
    stored : (M, K) bool, the elements that a sparse file stores, zeros among them; None for dense files

    """

    name: str
    weights: WeightArray
    dtype: str
    note: str | None = None
    stored: MaskArray | None = None
    filters: FilterShape | None = None
    experts: int | None = None

    def tokens(self, tokens: int, experts_per_token: int) -> int:
        """Tokens that reach this matrix of all that the model gets: experts share them evenly."""
        if self.experts is None:
            return tokens
        return min(tokens, max(1, -(-tokens * experts_per_token // self.experts)))

    @property
    def kept(self) -> MaskArray:
        """(M, K) bool: the mask that the file itself states, stored elements or else those not zero."""
        return self.weights != 0 if self.stored is None else self.stored


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WeightSet:
    """The layers of a file, in its order.

    Parameters
    ----------
    path : the file
    layers : name -> layer; at least one
    skipped : name -> why a tensor was left out (dtype, shape); those not selected are not listed
    lookups : embeddings that were left out: rows are taken of them, they multiply nothing
    skipped_weights : name -> elements of the tensors in `skipped`
    vectors : tensors of less than two dimensions (biases, norms), left out without a word

    """

    path: Path
    layers: Mapping[str, Layer]
    skipped: Mapping[str, str] = field(default_factory=dict)
    lookups: tuple[str, ...] = ()
    skipped_weights: Mapping[str, int] = field(default_factory=dict)
    vectors: int = 0
