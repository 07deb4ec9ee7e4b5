"""`Pattern`: what every pruning pattern can do, from importance to mask and from mask to map."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import ClassVar, Literal, NamedTuple, Self

import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.patterns.element_map import ElementMap, NestedMap
from prunecast.patterns.importance import ImportanceArray, check_ranks, checked_importance
from prunecast.patterns.tile_map import MaskArray, TileMap

SCOPES = ("layer", "global")
"""`layer` cuts every layer at the sparsity; `global` ranks the pieces of all layers against each other."""


Kept = Literal["elements", "tiles", "elements in tiles"]
"""Elements: any, in rows. Tiles: rows that share their kept columns. Elements in tiles: 2:4 inside them."""


LayerSeconds = Callable[[str, TileMap], float]
"""Predicted seconds of the layer of a name that keeps these tiles."""


class MatrixShape(NamedTuple):
    """Rows and columns of a matrix, printed as `64x128`."""

    rows: int
    columns: int

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern(ABC):
    """A rule that says which masks are allowed. One subclass per family, in its own file.

    The fields of a subclass are its sizes, in the order of the pattern string, where those with a default may
    be left out; it supplies `mask`, or `masks` if layers compete, and `map`, and overrides the rest where the
    family differs.
    """

    family: ClassVar[str]
    """Name of the family: the part of the pattern string before the colon."""
    example: ClassVar[str]
    """A pattern string of the family, for help texts and errors."""
    meaning: ClassVar[str]
    """One line for people: what stays."""
    keeps: ClassVar[Kept] = "elements"
    """What `map` makes; kernels run one kind or the other."""
    ranks: ClassVar[bool] = True
    """Whether importance decides what goes; if so, a layer of zeros is an error."""

    @property
    def seed(self) -> int | None:
        """Seed of what pruning draws at random; None where it draws nothing."""
        return None

    @property
    def needs_times(self) -> bool:
        """Whether pruning asks how long a layer takes, see `timed_by`."""
        return False

    def timed_by(self, seconds: LayerSeconds) -> "Pattern":
        """The pattern with a function that predicts seconds of layers; most patterns ask for no times."""
        return self

    def masks(self, importances: Mapping[str, ImportanceArray], sparsity: float) -> dict[str, MaskArray]:
        """Masks of one group of layers that share a sparsity; input has been checked. Layers do not compete,
        unless overridden.
        """
        return {name: self.mask(scores, sparsity) for name, scores in importances.items()}

    def mask(self, scores: ImportanceArray, sparsity: float) -> MaskArray:
        """Mask (M, K) of one layer by itself, for families whose layers do not compete."""
        raise NotImplementedError(f"{type(self).__name__}: wanted mask, or masks of all layers together")

    @abstractmethod
    def map(self, mask: MaskArray) -> TileMap | ElementMap | NestedMap:
        """Tiles, elements, or elements in tiles that `mask` (M, K) keeps.

        Raises
        ------
        BadInput : the mask breaks the pattern; names the first offending place

        """

    @classmethod
    def from_argument(cls, argument: str) -> Self:
        """Pattern from the text behind the colon, empty if there is none. Raises BadInput."""
        known = fields(cls) if "x" in argument else [each for each in fields(cls) if each.default is MISSING]
        names = [field.name for field in known]
        sizes = parse_sizes(argument, names, cls.example)
        return cls(**dict(zip(names, sizes, strict=True)))

    @property
    def name(self) -> str:
        """The family."""
        return self.family

    @property
    def parameters(self) -> dict[str, int]:
        """The sizes, by name; switches and words are no sizes."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if type(value) is int}

    @property
    def canonical(self) -> str:
        """The one string that names this pattern; `parse_pattern` reads it back."""
        default = {field.name: field.default for field in fields(self)}
        sizes = "x".join(str(size) for name, size in self.parameters.items() if size != default[name])
        return f"{self.family}:{sizes}" if sizes else self.family

    @property
    def smallest(self) -> MatrixShape:
        """Smallest matrix that the pattern can prune: of its `height` and `width`, where it has such."""
        return MatrixShape(getattr(self, "height", 1), getattr(self, "width", 1))

    def sparsity_to_prune(self, sparsity: float | None) -> float:
        """The sparsity that `masks` gets; patterns that have but one override this.

        Raises
        ------
        BadInput : no sparsity given, outside [0, 1), or one that the pattern does not have

        """
        if sparsity is None:
            raise BadInput(f"{self.canonical} has no sparsity of its own: wanted one in [0, 1), got none")
        return check_sparsity(sparsity)

    def prune(
        self, importances: Mapping[str, npt.ArrayLike], sparsity: float | None = None, scope: str = "layer"
    ) -> dict[str, MaskArray]:
        """Masks that keep the most important pieces.

        Parameters
        ----------
        importances : layer name -> importance (M, K), not negative
        sparsity : fraction of elements to remove, in [0, 1); None for patterns with one of their own
        scope : one of `SCOPES`

        Returns
        -------
        layer name -> bool mask (M, K); as few elements are pruned as reach the sparsity

        Raises
        ------
        BadInput : sparsity, scope or importance that the pattern cannot use, by tensor name

        """
        if scope not in SCOPES:
            raise BadInput(f"scope: wanted {' or '.join(SCOPES)}, got {scope!r}")
        if not importances:
            raise BadInput(f"{self.canonical}: no layer to prune")
        fraction = self.sparsity_to_prune(sparsity)
        checked = {name: self._checked(name, array) for name, array in importances.items()}
        if scope == "global":
            return self.masks(checked, fraction)
        return {name: self.masks({name: array}, fraction)[name] for name, array in checked.items()}

    def _checked(self, name: str, array: npt.ArrayLike) -> ImportanceArray:
        scores = checked_importance(name, array)
        least, shape = self.smallest, MatrixShape(*scores.shape)
        if shape.rows < least.rows or shape.columns < least.columns:
            raise BadInput(f"{self.canonical} needs a matrix of {least} or more, got {shape} in {name!r}")
        return check_ranks(name, scores) if self.ranks else scores


@dataclass(frozen=True, slots=True, kw_only=True)
class GuidedPattern(Pattern):
    """A family whose layout can follow predicted time."""

    guided: bool = False
    seconds: LayerSeconds | None = field(default=None, compare=False, repr=False)
    """What predicts, for `guided`."""

    @property
    def needs_times(self) -> bool:
        """Only if guided."""
        return self.guided

    def timed_by(self, seconds: LayerSeconds) -> Self:
        """The pattern guided by these predictions."""
        return replace(self, seconds=seconds)

    def told_times(self) -> LayerSeconds:
        """What predicts. Raises BadInput if nothing does."""
        if self.seconds is None:
            raise BadInput(
                f"{self.canonical} needs a kernel and a GPU, whose times guide it: wanted predict or prune"
            )
        return self.seconds


def check_sparsity(sparsity: float) -> float:
    """`sparsity`, refused outside [0, 1)."""
    if not 0.0 <= sparsity < 1.0:
        raise BadInput(f"sparsity must be in [0, 1), got {sparsity}")
    return float(sparsity)


def parse_sizes(argument: str, names: Sequence[str], example: str) -> list[int]:
    """One whole number from 1 for each name, joined by `x` or `:`, from the argument of a pattern string."""
    sizes = re.split("[x:]", argument) if argument else []
    if len(sizes) != len(names) or not all(re.fullmatch("0*[1-9][0-9]{0,8}", size) for size in sizes):
        wanted = f"{' and '.join(names)} from 1" if names else "nothing after the name"
        raise BadInput(f"pattern like {example}: wanted {wanted}, got {argument!r}")
    return [int(size) for size in sizes]
