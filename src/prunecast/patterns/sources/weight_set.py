"""`WeightSet`: the matrices that a file holds, which of them are meant, and the way back to a file."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.files import aside, asked_path
from prunecast.patterns.sources.safetensors import Form, write_safetensors
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
    shape : M, K
    load : gives the weights; large checkpoints hold one matrix at a time and read it again
    dtype : `fp16`, `bf16` or `fp32`, the type of `weights`
    note : what was done to the tensor on the way, e.g. `conv 64x3x7x7 reshaped to 64x147`, or None
    experts : among so many matrices a model divides its tokens, this one gets a part; None gets all
    filters : of a convolution, K = channels * height * width; None for plain matrices
    parts : matrices of as many rows below each other, as queries, keys and values; 1 for any other
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
        """Tokens that reach this matrix of all that the model gets: experts share them evenly."""
        if self.experts is None:
            return tokens
        return min(tokens, max(1, -(-tokens * experts_per_token // self.experts)))

    @property
    def weights(self) -> WeightArray:
        """(M, K) float16, bfloat16 (of ml_dtypes) or float32; finite. Raises BadInput as `read_weights`."""
        return self.load()

    @property
    def size(self) -> int:
        """M * K."""
        return self.shape[0] * self.shape[1]

    @property
    def kept(self) -> MaskArray:
        """(M, K) bool: the mask that the file itself states, stored elements or else those not zero."""
        return self.weights != 0 if self.stored is None else self.stored


class OneAtATime:
    """Holds the matrix that was read last, for layers of a checkpoint that is too large to hold."""

    def __init__(self) -> None:
        self._held: tuple[str, WeightArray] | None = None

    def read(self, name: str, load: Callable[[], WeightArray]) -> WeightArray:
        """The matrix called so, read unless it is the last one again."""
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


def write_weights(
    path: str | Path, arrays: Mapping[str, npt.NDArray[Any]], metadata: Mapping[str, str] | None = None
) -> None:
    """Write arrays to a `.safetensors` file, whole or not at all.

    The file is written under another name in the same folder and then renamed, so that a reader never
    sees half of it and a failure leaves an older file as it was.

    Parameters
    ----------
    path : ends in `.safetensors`
    arrays : name -> array of any shape, of a type that safetensors stores; one that makes them when they are
        asked for says before, in `form`, what each will be
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
    form = getattr(arrays, "form", None) or (lambda name: Form(arrays[name].dtype, arrays[name].shape))
    forms = {name: form(name) for name in arrays}
    with aside(final) as unfinished:
        try:
            write_safetensors(unfinished, arrays, forms, texts)
        except ValueError as error:
            why = " ".join(str(error).split())
            raise BadInput(f"{asked_path(final)}: cannot be written: {why}") from error


REGEX = "re:"


def listed(selectors: str | Sequence[str]) -> list[str]:
    """Selectors as a list: one alone is a string, which is no sequence of letters here."""
    return [selectors] if isinstance(selectors, str) else list(selectors)


def select_names(
    names: Iterable[str], target: str | Sequence[str] = (), ignore: str | Sequence[str] = ()
) -> list[str]:
    """The `names` that a target matches (all, without targets) and no ignore does, in their order.

    A selector is an exact name, or `re:` with a regular expression that is found anywhere in the name:
    `re:embed` means every name with `embed` in it.

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
    """Refuse a name to leave out that is none of `names`: a slip would keep what it meant. Raises BadInput.

    Regular expressions may match nothing, as one that serves several models does.
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
