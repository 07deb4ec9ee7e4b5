"""Packed weights of the tile kernels: the order in which elements of A are stored, and the packing itself.

A slab is the packed weights of one pipeline stage of a tile, a block (block_m, step) of A. All stages have
the same order of elements, so each kernel describes it once (`Slab`); the rows and columns of a stage select
the elements. A place is an index into a flattened slab. `gather` uses only functions that NumPy, CuPy and
torch share, so that operators and torch layers pack identical bytes with the same code.
"""

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.kernels.device.tile_stages import TileStages
from prunecast.patterns.element_map import ElementMap
from prunecast.patterns.tile_map import TileMap


class Slab(NamedTuple):
    """Memory layout of a slab, the packed weights of one stage: its shape, and the order of its elements."""

    order: npt.NDArray[np.int64]
    """(elements,) index into the flattened weights (block_m, step) of a stage, for each place of the slab.
    With 2:4 it is an index into the kept weights (block_m, step / 2)."""
    shape: tuple[int, ...]
    """Shape of a slab in elements."""
    codes: npt.NDArray[np.int64] | None = None
    """(metadata elements, 4) with 2:4 weights, otherwise None. A 16-bit element of the metadata holds the
    positions of the kept weights of four groups, each of four weights; `codes` contains the indices of these
    groups in (block_m, step / 4), lowest bits first. A slab is the weights, then the metadata, then zeros."""


def _positions(kept: int) -> tuple[int, int, int, int]:
    """Return two positions in a group of four, and a flag for each of them: 1 if the position is kept.

    `kept` is the mask of the group, bit i for position i.

    The hardware needs two different positions. A position that is not kept is multiplied by 0; it is as late
    in the group as possible, because the padding of a column list is at its end.
    """
    places = [place for place in range(4) if kept >> place & 1]
    if len(places) == 2:
        return places[0], places[1], 1, 1
    if len(places) == 1:
        return (places[0], 3, 1, 0) if places[0] < 3 else (2, 3, 0, 1)
    return 2, 3, 0, 0


_TWO_OF_FOUR = np.array([_positions(kept) for kept in range(16)])
"""Mask of four columns -> positions of the two that 2:4 multiplies, and if each is kept. Kind: definition,
PTX ISA, mma.sp metadata."""


class PackingMap(NamedTuple):
    """Map from each place of the packed weights to the element of A (M, K) that is stored there.

    The arrays are NumPy arrays; `on` moves them to another framework. `order`, `shape` and `codes` are those
    of a `Slab`; `two_of_four` is the table of kept positions by mask, or None.
    """

    rows: Any
    """(stages, block_m, 1): row of A; M for padding (the row of zeros that `gather` expects)."""
    columns: Any
    """(stages, 1, step): column of A; K for padding."""
    order: Any
    """Order of the elements of a stage, see `Slab.order`."""
    shape: tuple[int, ...]
    codes: Any
    two_of_four: Any

    @classmethod
    def of(cls, stages: TileStages, slab: Slab, m: int, k: int) -> "PackingMap":
        """Return the map of a matrix A (m, k) whose stages have the layout `slab`."""
        rows, columns = stages.stage_rows.astype(np.int64), stages.columns.astype(np.int64)
        rows, columns = np.where(rows < 0, m, rows)[:, :, None], np.where(columns < 0, k, columns)[:, None]
        return cls(rows, columns, *slab, None if slab.codes is None else _TWO_OF_FOUR)

    @classmethod
    def of_places(cls, rows: npt.NDArray[np.int64], columns: npt.NDArray[np.int64]) -> "PackingMap":
        """Return the map of a kernel whose packed weights have no regular slab.

        Parameters
        ----------
        rows, columns : (stages, *shape) row and column of A at each place; M and K for padding
        """
        stages, *shape = rows.shape
        order = np.arange(prod(shape))  # Its size, because a reshape to -1 fails without stages
        flat = stages, order.size
        return cls(rows.reshape(flat), columns.reshape(flat), order, tuple(shape), None, None)

    def on(self, moved: Callable[[npt.NDArray[Any]], Any]) -> "PackingMap":
        """Return the map with each array converted by `moved`, e.g. to a CuPy array or a torch tensor."""
        return PackingMap(*(moved(each) if isinstance(each, np.ndarray) else each for each in self))


def gather(wide: Any, places: PackingMap, xp: Any, kept: Any = None) -> Any:
    """Return the packed weights, (stages, *shape of a slab), in the dtype of `wide`.

    Parameters
    ----------
    wide : (M + 1, K + 1): A with a row and a column of zeros appended; for 2:4 the bits of A as integers
    places : map of the packed weights
    xp : module of the framework: NumPy, CuPy or torch
    kept : (M + 1, K + 1) mask of the elements that 2:4 keeps; None if all nonzero elements are kept

    Raises
    ------
    BadInput : 2:4, and more than two elements of a group of four are kept
    """
    stages, values = len(places.rows), wide[places.rows, places.columns]
    size = prod(values.shape[1:])  # A reshape to -1 would fail without stages
    values = values.reshape(stages, size)
    if places.codes is None:
        return values[:, places.order].reshape(stages, *places.shape)
    flags = values != 0 if kept is None else kept[places.rows, places.columns]
    fours, flags = values.reshape(stages, size // 4, 4), flags.reshape(stages, size // 4, 4)
    if bool((flags.sum(-1) > 2).any()):
        raise BadInput("2:4: more than two of four neighbours are kept")
    mask = flags[..., 0] + 2 * flags[..., 1] + 4 * flags[..., 2] + 8 * flags[..., 3]
    found = places.two_of_four[mask]
    at, along = found[..., :2], getattr(xp, "take_along_axis", None) or xp.take_along_dim
    two = xp.where(found[..., 2:] != 0, along(fours, at, -1), 0 * fours[..., :2])
    two = two.reshape(stages, size // 2)
    names = (at[..., 0] + 4 * at[..., 1])[:, places.codes]
    metadata = names[..., 0] + (names[..., 1] << 4) + (names[..., 2] << 8) + (names[..., 3] << 12)
    filled = prod(places.shape) - two.shape[1] - metadata.shape[1]
    parts = two[:, places.order], xp.asarray(metadata, dtype=two.dtype), 0 * two[:, :filled]
    return xp.concatenate(parts, 1).reshape(stages, *places.shape)


def to_bits(values: npt.NDArray[np.floating[Any]], dtype: str) -> npt.NDArray[Any]:
    """Return `values` rounded to `fp16` or `bf16`, as their bits in uint16; for `fp32` as float32 values.

    Raises BadInput for any other dtype.
    """
    if dtype == "fp32":
        return np.asarray(values, np.float32)
    if dtype == "fp16":
        return values.astype(np.float16).view(np.uint16)
    if dtype == "bf16":
        import ml_dtypes

        return values.astype(ml_dtypes.bfloat16).view(np.uint16)
    raise BadInput(f"weights are fp16, bf16 or fp32, got {dtype}")


def packed_weights(
    weights: npt.NDArray[Any],
    tiles: TileMap,
    stages: TileStages,
    slab: Slab,
    inner: ElementMap | None = None,
) -> npt.NDArray[Any]:
    """Return the packed weights of a layer, (stages, *shape of a slab).

    Parameters
    ----------
    weights : (M, K) result of `to_bits`; elements outside of the tiles are not used
    stages : stages of `tiles`
    slab : memory layout of a stage
    inner : elements inside the tiles that 2:4 keeps; None without 2:4

    Raises
    ------
    BadInput : the shape of `weights` differs from the map's, or in the same cases as `gather`
    """
    if weights.shape != (tiles.m, tiles.k):
        raise BadInput(f"weights must have the map's shape {(tiles.m, tiles.k)}, got {weights.shape}")
    places = PackingMap.of(stages, slab, *weights.shape)
    kept = None if inner is None else np.pad(inner.mask(), (0, 1))
    # Indexing in NumPy may return an array that is not C-contiguous
    return np.ascontiguousarray(gather(np.pad(weights, (0, 1)), places, np, kept))
