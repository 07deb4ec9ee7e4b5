"""Apply masks to all tensors of a weight file; tensors without a mask stay unchanged."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.patterns.sources.readers import open_tensors, reader_of
from prunecast.patterns.sources.roles import expert_names
from prunecast.patterns.sources.safetensors import ArraySpec
from prunecast.patterns.sources.stored_tensor import StoredTensor, failures_named
from prunecast.patterns.tile_map import MaskArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Checkpoint:
    """All tensors of a file, in their original shapes, and the text entries of its header."""

    arrays: Mapping[str, npt.NDArray[Any]]
    """Tensor name -> array, including vectors and convolutions."""
    metadata: Mapping[str, str]
    """Text entries of the header."""


Update = Callable[[str, npt.NDArray[Any], MaskArray], npt.NDArray[Any]]
"""Function of a layer's name, weights (M, K) and mask that returns pruned weights of the same dtype."""


def masked_checkpoint(
    path: str | Path, masks: Mapping[str, MaskArray], update: Update | None = None
) -> Checkpoint:
    """Return the tensors of a file; those with a mask (M, K) are zero where the mask is False.

    Write the result with `write_weights`.

    Parameters
    ----------
    path : file or folder of weights
    masks : layer -> mask (M, K); M is the first size of the tensor, and K the product of the others
    update : function that computes the pruned weights of a tensor that is one layer; None to set weights to
        zero

    Raises
    ------
    BadInput : an unreadable file, or a mask for a tensor that does not exist or has another shape
    """
    file = Path(path)
    arrays = MaskedTensors(file, open_tensors(file), masks, update)
    return Checkpoint(arrays=arrays, metadata=reader_of(file).texts(file))


class MaskedTensors(Mapping[str, npt.NDArray[Any]]):
    """Mapping of the tensors of a file with masks applied; each tensor is read on access.

    Parameters
    ----------
    file : path for messages
    tensors : name -> tensor as it is stored
    masks, update : as in `masked_checkpoint`

    Raises
    ------
    BadInput : a mask for a tensor that does not exist or has another shape; on access, an unreadable file
    """

    def __init__(
        self,
        file: Path,
        tensors: Mapping[str, StoredTensor],
        masks: Mapping[str, MaskArray],
        update: Update | None = None,
    ) -> None:
        self._file, self._tensors, self._masks, self._update = file, tensors, masks, update
        self._experts = {name: expert_names(name, tensor) for name, tensor in tensors.items()}
        shapes = {name: tensor.shape for name, tensor in tensors.items()}
        shapes |= {own: shapes[name][1:] for name, names in self._experts.items() for own in names}
        for name, mask in masks.items():
            shape = shapes.get(name)
            if shape is None:
                raise BadInput(f"{file}: a mask names tensor {name!r}, which is not in the file")
            if not shape or mask.shape != (shape[0], int(np.prod(shape[1:]))):
                raise BadInput(
                    f"{file}: tensor {name!r} of shape {shape} does not fit a mask of shape {mask.shape}"
                )

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        tensor, kept, owns = self._tensors[name], self._masks.get(name), self._experts[name]
        with failures_named(self._file, name):
            array = (tensor.as_stored or tensor).load()
        if any(own in self._masks for own in owns):
            kept = np.stack([self._masks.get(own, np.ones(tensor.shape[1:], np.bool_)) for own in owns])
        if kept is not None and self._update is not None and name in self._masks:
            array = self._update(name, array.reshape(kept.shape), kept).reshape(array.shape)
        elif kept is not None:
            array = np.where(kept.reshape(array.shape), array, array.dtype.type(0))
        return array.T if tensor.is_transposed else array

    def only(self, names: Iterable[str]) -> Self:
        """Return the mapping of some of the tensors."""
        found = copy(self)
        found._tensors = {name: self._tensors[name] for name in names}
        return found

    def form(self, name: str) -> ArraySpec:
        """Return the number format and shape of an array, from the header unless numpy lacks the format."""
        import ml_dtypes

        tensor = self._tensors[name]
        dtype = (tensor.as_stored or tensor).dtype
        try:
            known = np.dtype(getattr(ml_dtypes, dtype, dtype))
        except (TypeError, ValueError):  # numpy lacks the format, which loading converts or refuses
            known = self[name].dtype
        return ArraySpec(known, tensor.shape[::-1] if tensor.is_transposed else tensor.shape)
