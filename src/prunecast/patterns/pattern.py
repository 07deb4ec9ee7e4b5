"""`Pattern`: the interface of all pruning patterns, from importance to mask and from mask to map."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.patterns.element_map import ElementMap, NestedMap
from prunecast.patterns.importance import ImportanceArray, check_ranks, checked_importance
from prunecast.patterns.tile_map import MaskArray, TileMap

SCOPES = ("layer", "global")
"""`layer` prunes every layer to the sparsity; `global` prunes all layers together with one ranking."""


Kept = Literal["elements", "tiles", "elements in tiles"]
"""Kind of map. `elements`: single elements, stored row by row. `tiles`: sets of rows that share their kept
columns. `elements in tiles`: tiles in which each row keeps 2 of 4 neighbouring columns.
"""


LayerSeconds = Callable[[str, TileMap], float]
"""Function of a layer's name and tile map that predicts the seconds of the layer."""


class MatrixShape(NamedTuple):
    """Rows and columns of a matrix, printed as `64x128`."""

    rows: int
    columns: int

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern(ABC):
    """A rule that defines which masks are allowed. Each family is a subclass in its own file.

    The integer fields of a subclass are its sizes, in the order of the pattern string, which may omit sizes
    with a default. A bool field that is True is the last word of the string, as in `tvw:128:even`. A subclass
    defines `map` and either `mask`, if it prunes each layer independently, or `masks`, if it ranks the
    weights of several layers together. It overrides other methods where the family differs.
    """

    family: ClassVar[str]
    """Name of the family: the part of the pattern string before the colon."""
    example: ClassVar[str]
    """A pattern string of the family, for help texts and errors."""
    meaning: ClassVar[str]
    """Description of the kept weights in one line, for help texts."""
    separator: ClassVar[str] = "x"
    """Text between the sizes in the pattern string."""
    keeps: ClassVar[Kept] = "elements"
    """Kind of map that `map` returns; each kernel runs one kind."""
    ranks: ClassVar[bool] = True
    """True if the pattern prunes by importance; a layer with zero importance everywhere is then an error."""
    by_blocks: ClassVar[bool] = False
    """True if the pattern accepts float16 importance and converts it in blocks of rows, so that the whole
    matrix is never converted to float32, which needs twice the memory."""

    @property
    def seed(self) -> int | None:
        """Return the seed of random choices in pruning; None if pruning makes no random choices."""
        return None

    @property
    def needs_times(self) -> bool:
        """Return True if pruning needs predicted times of layers, see `timed_by`."""
        return False

    def timed_by(self, seconds: LayerSeconds, confirm: LayerSeconds | None = None) -> "Pattern":
        """Return the pattern with functions that predict the seconds of a layer.

        Most patterns prune without predicted times, and are returned unchanged.
        """
        return self

    def masks(self, importances: Mapping[str, ImportanceArray], sparsity: float) -> dict[str, MaskArray]:
        """Return layer -> mask (M, K) for a group of layers pruned to `sparsity`.

        By default each layer is pruned to it independently. A subclass may override this method so that only
        the group as a whole reaches it. `prune` checks the arguments first.
        """
        return {name: self.mask(scores, sparsity) for name, scores in importances.items()}

    def mask(self, scores: ImportanceArray, sparsity: float) -> MaskArray:
        """Return the mask (M, K) of one layer. Patterns that rank layers together override `masks`."""
        raise NotImplementedError(f"{type(self).__name__}: wanted mask, or masks of all layers together")

    @abstractmethod
    def map(self, mask: MaskArray) -> TileMap | ElementMap | NestedMap:
        """Return the map of the tiles, elements, or elements in tiles that `mask` (M, K) keeps.

        Raises
        ------
        BadInput : the mask breaks the pattern; the message names the first position
        """

    @classmethod
    def from_argument(cls, argument: str) -> Self:
        """Return the pattern for `argument`, the part of its string after the colon (empty without a colon).

        Raises BadInput if the sizes are invalid.
        """
        before, _, last = argument.rpartition(":")
        is_flag = any(field.name == last for field in fields(cls) if field.type is bool)
        text = before if is_flag else argument
        sizes = [field for field in fields(cls) if field.type is int]
        required = sum(field.default is MISSING for field in sizes)
        given = len(re.split("[x:]", text)) if text else 0
        names = [field.name for field in sizes[: max(required, given)]]
        values: dict[str, Any] = dict(zip(names, parse_sizes(text, names, cls.example), strict=True))
        return cls(**values, **{last: True} if is_flag else {})

    @property
    def name(self) -> str:
        """Return the name of the family."""
        return self.family

    @property
    def parameters(self) -> dict[str, int]:
        """Return field name -> value of the integer fields."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if type(value) is int}

    @property
    def canonical(self) -> str:
        """Return the unique string of this pattern, which `parse_pattern` accepts."""
        default = {field.name: field.default for field in fields(self)}
        sizes = [str(size) for name, size in self.parameters.items() if size != default[name]]
        flags = [name for name in default if getattr(self, name) is True]
        return ":".join(filter(None, (self.family, self.separator.join(sizes), *flags)))

    @property
    def smallest(self) -> MatrixShape:
        """Return the smallest matrix that can be pruned: `height` rows and `width` columns, by default 1."""
        return MatrixShape(getattr(self, "height", 1), getattr(self, "width", 1))

    def sparsity_to_prune(self, sparsity: float | None) -> float:
        """Return the sparsity to pass to `masks`; patterns with only one sparsity override this method.

        Raises
        ------
        BadInput : the sparsity is missing, outside [0, 1), or one that the pattern does not have
        """
        if sparsity is None:
            raise BadInput(f"{self.canonical} has no sparsity of its own: wanted one in [0, 1), got none")
        return check_sparsity(sparsity)

    def prune(
        self, importances: Mapping[str, npt.ArrayLike], sparsity: float | None = None, scope: str = "layer"
    ) -> dict[str, MaskArray]:
        """Return masks that keep the most important weights that the pattern allows.

        Parameters
        ----------
        importances : layer name -> importance (M, K), not negative
        sparsity : fraction of elements to remove, in [0, 1); None for patterns that have only one
        scope : one of `SCOPES`

        Returns
        -------
        layer name -> bool mask (M, K), True for kept elements; as few as possible are pruned to reach the
        sparsity

        Raises
        ------
        BadInput : a sparsity, scope or importance that the pattern cannot use; the message names the layer
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
        scores = checked_importance(name, array, keep_half=self.by_blocks)
        least, shape = self.smallest, MatrixShape(*scores.shape)
        if shape.rows < least.rows or shape.columns < least.columns:
            raise BadInput(f"{self.canonical} needs a matrix of {least} or more, got {shape} in {name!r}")
        return check_ranks(name, scores) if self.ranks else scores


@dataclass(frozen=True, slots=True, kw_only=True)
class GuidedPattern(Pattern):
    """A family whose layout can be chosen by predicted time."""

    guided: bool = False
    """True to choose the layout by predicted time instead of by importance only."""
    seconds: LayerSeconds | None = field(default=None, compare=False, repr=False)
    """Function that predicts the seconds of a layer, used if `guided`."""
    confirm: LayerSeconds | None = field(default=None, compare=False, repr=False)
    """Second prediction of the seconds. If it predicts that a guided layout is slower than the unguided one,
    that layout is rejected."""

    @property
    def needs_times(self) -> bool:
        """Return True if the pattern is guided: pruning then needs predicted times."""
        return self.guided

    def timed_by(self, seconds: LayerSeconds, confirm: LayerSeconds | None = None) -> Self:
        """Return a copy of the pattern with functions that predict the seconds of a layer.

        Parameters
        ----------
        seconds : prediction that guides the search
        confirm : second prediction. If it predicts that a guided layout is slower than the unguided one, that
            layout is rejected. None to skip this check
        """
        return replace(self, seconds=seconds, confirm=confirm)

    def told_times(self) -> LayerSeconds:
        """Return the function that predicts the seconds of a layer. Raises BadInput if none was given."""
        if self.seconds is None:
            raise BadInput(
                f"{self.canonical} needs a kernel and a GPU, whose times guide it: wanted predict or prune"
            )
        return self.seconds


def check_sparsity(sparsity: float) -> float:
    """Return `sparsity` as a float. Raises BadInput outside [0, 1)."""
    if not 0.0 <= sparsity < 1.0:
        share = f"; {sparsity:g} % is {sparsity / 100:g}" if 1.0 < sparsity < 100.0 else ""
        raise BadInput(f"sparsity must be in [0, 1), got {sparsity}{share}")
    return float(sparsity)


def parse_sizes(argument: str, names: Sequence[str], example: str) -> list[int]:
    """Parse sizes that are separated by `x` or `:`, one integer of at least 1 for each of `names`.

    Raises
    ------
    BadInput : another number of sizes, or a size that is not an integer of at least 1
    """
    sizes = re.split("[x:]", argument) if argument else []
    if len(sizes) != len(names) or not all(re.fullmatch("0*[1-9][0-9]{0,8}", size) for size in sizes):
        wanted = f"{' and '.join(names)} from 1" if names else "nothing after the name"
        raise BadInput(f"pattern like {example}: wanted {wanted}, got {argument!r}")
    return [int(size) for size in sizes]
