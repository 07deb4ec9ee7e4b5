"""`WeightSet`: the matrices of a file, selection of tensors by name, and writing weights to a file."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.files import aside, asked_path
from prunecast.patterns.sources.safetensors import ArraySpec, write_safetensors
from prunecast.patterns.tile_map import MaskArray, WeightArray


class FilterShape(NamedTuple):
    """Shape of a convolution's filter; a row of its weights is one filter, flattened in this order."""

    channels: int
    height: int
    width: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layer:
    """One weight matrix.

    Parameters
    ----------
    name : name of the tensor in the file, or of the file
    shape : M, K
    load : function that returns the weights; if the checkpoint is large, only the matrix that was loaded last
        stays in memory
    dtype : `fp16`, `bf16` or `fp32`, the type of `weights`
    note : conversion of the tensor, e.g. `conv 64x3x7x7 reshaped to 64x147`, or None
    experts : number of experts in the layer if this matrix belongs to one of them, which multiplies only its
        share of the tokens; None for other matrices
    filters : filter shape of a convolution, K = channels * height * width; None for plain matrices
    parts : number of matrices stacked along M: 3 for fused queries, keys and values; 1 for any other matrix
    stored : (M, K) bool, the elements that a sparse file stores, zeros among them; None for dense files
    """

    name: str
    shape: tuple[int, int]
    load: Callable[[], WeightArray]
    dtype: str
    note: str | None = None
    stored: MaskArray | None = None
    filters: FilterShape | None = None
    experts: int | None = None
    parts: int = 1

    def share_of(self, tokens: int, experts_per_token: int) -> int:
        """Return the number of tokens that this matrix multiplies, out of `tokens` in the layer.

        Each token goes to `experts_per_token` experts, which are assumed to get equal numbers of tokens; an
        expert multiplies at least one. A matrix that is not in an expert multiplies all tokens.
        """
        if self.experts is None:
            return tokens
        return min(tokens, max(1, -(-tokens * experts_per_token // self.experts)))

    @property
    def weights(self) -> WeightArray:
        """Return the weights (M, K) as float16, bfloat16 (of ml_dtypes) or float32; all are finite.

        Raises BadInput in the same cases as `read_weights`.
        """
        return self.load()

    @property
    def size(self) -> int:
        """Return M * K."""
        return self.shape[0] * self.shape[1]

    @property
    def kept(self) -> MaskArray:
        """Return the mask (M, K) of the file: its stored elements or, in a dense file, the nonzero ones."""
        return self.weights != 0 if self.stored is None else self.stored


class OneAtATime:
    """Cache of the matrix that was read last, for layers of a checkpoint that is too large for memory."""

    def __init__(self) -> None:
        self._held: tuple[str, WeightArray] | None = None

    def read(self, name: str, load: Callable[[], WeightArray]) -> WeightArray:
        """Return the matrix `name`; `load` is called unless this matrix was read last."""
        if self._held is None or self._held[0] != name:
            self._held = None
            self._held = (name, load())
        return self._held[1]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WeightSet:
    """The layers of a file, in its order.

    Parameters
    ----------
    path : the file
    layers : name -> layer; at least one
    skipped : name -> reason why a selected tensor was left out (dtype, shape)
    lookups : embeddings that were left out, since no matrix product uses them
    skipped_weights : name -> elements of the tensors in `skipped`
    vectors : number of tensors of less than two dimensions (biases, norms), which are left out without a
        reason
    """

    path: Path
    layers: Mapping[str, Layer]
    skipped: Mapping[str, str] = field(default_factory=dict)
    lookups: tuple[str, ...] = ()
    skipped_weights: Mapping[str, int] = field(default_factory=dict)
    vectors: int = 0


def write_weights(
    path: str | Path, arrays: Mapping[str, npt.NDArray[Any]], metadata: Mapping[str, str] | None = None
) -> None:
    """Write arrays to a `.safetensors` file, completely or not at all.

    The file is written under another name in the same folder and then renamed. A reader never sees a partial
    file, and a failure leaves an older file unchanged.

    Parameters
    ----------
    path : ends in `.safetensors`
    arrays : name -> array of any shape, of a type that safetensors stores; a mapping that computes arrays on
        access has a method `form`, which returns the number format and shape of each
    metadata : text entries for the header

    Raises
    ------
    BadInput : another suffix, nothing to write, metadata that is not text, or a file that cannot be written
    """
    final = Path(path)
    texts = dict(metadata or {})
    if final.suffix.lower() != ".safetensors":
        raise BadInput(f"{final}: weights are written to .safetensors, got {final.suffix or 'no suffix'!r}")
    if not arrays:
        raise BadInput(f"{final}: no array to write")
    if not all(isinstance(text, str) for entry in texts.items() for text in entry):
        raise BadInput(f"{final}: metadata must be text to text, got {texts!r:.80}")
    form = getattr(arrays, "form", None) or (lambda name: ArraySpec(arrays[name].dtype, arrays[name].shape))
    forms = {name: form(name) for name in arrays}
    with aside(final) as unfinished:
        try:
            write_safetensors(unfinished, arrays, forms, texts)
        except ValueError as error:
            why = " ".join(str(error).split())
            raise BadInput(f"{asked_path(final)}: cannot be written: {why}") from error


REGEX = "re:"


def listed(selectors: str | Sequence[str]) -> list[str]:
    """Return selectors as a list; a single selector may be a string."""
    return [selectors] if isinstance(selectors, str) else list(selectors)


def select_names(
    names: Iterable[str], target: str | Sequence[str] = (), ignore: str | Sequence[str] = ()
) -> list[str]:
    """Return those `names`, in their order, that match `target` (if it is not empty) and not `ignore`.

    A selector is an exact name, or `re:` with a regular expression that is searched anywhere in the name:
    `re:embed` matches every name that contains `embed`.

    Raises
    ------
    BadInput : an invalid expression, or a target that matches no name (with the nearest names)
    """
    names, target, ignore = list(names), listed(target), listed(ignore)
    for selector in target:
        if not any(_matches(selector, name) for name in names):
            raise BadInput(f"target {selector!r} matches no tensor; {_nearest(selector, names)}")
    wanted = [name for name in names if not target or any(_matches(selector, name) for selector in target)]
    return [name for name in wanted if not any(_matches(selector, name) for selector in ignore)]


def check_ignored(names: Iterable[str], ignore: Sequence[str]) -> None:
    """Raise BadInput for a name to leave out that is not in `names`: a typing error would prune that tensor.

    Regular expressions may match nothing, so that one expression can be used for several models.
    """
    names = list(names)
    for selector in ignore:
        if not selector.startswith(REGEX) and selector not in names:
            raise BadInput(f"ignore {selector!r} matches no tensor; {_nearest(selector, names)}")


def _matches(selector: str, name: str) -> bool:
    if not selector.startswith(REGEX):
        return selector == name
    try:
        return re.search(selector.removeprefix(REGEX), name) is not None
    except re.error as error:
        raise BadInput(f"selector {selector!r}: invalid regular expression: {error}") from error


def _nearest(selector: str, names: list[str]) -> str:
    parts = sum(selector in name for name in names)
    if parts:
        return f"re:{selector} finds {parts} with it in their names"
    near = get_close_matches(selector.removeprefix(REGEX), names, n=3, cutoff=0.4)
    return f"nearest: {', '.join(near)}" if near else f"the file has {', '.join(names[:5]) or 'none'}"
