"""The folder of a model that was pruned while it trained: dense weights with zeros, recipe, tile maps."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prunecast.choice import PrunedMap
from prunecast.codesign.files import json_text
from prunecast.errors import BadInput
from prunecast.files import folder_aside
from prunecast.patterns import NestedMap, TileMap
from prunecast.patterns.sources import write_weights
from prunecast.patterns.sources.numpy_files import read_npz
from prunecast.patterns.sources.sparse_matrix import LARGEST_MATRIX
from prunecast.patterns.sources.stored_tensor import StoredTensor

__all__ = ["TILES", "read_tile_maps", "tiles_of", "write_pruned", "write_tile_maps"]

WEIGHTS, RECIPE, TILES = "weights.safetensors", "recipe.json", "tiles.npz"

_COLUMNS = ("row_start", "row_index", "column_start", "column_index")


def write_pruned(
    folder: str | Path,
    arrays: Mapping[str, npt.NDArray[Any]],
    maps: Mapping[str, PrunedMap],
    recipe: Mapping[str, Any],
) -> Path:
    """Write `weights.safetensors`, `recipe.json` and, where a pattern has tiles, `tiles.npz`; the folder.

    The files are finished in a folder of their own before any takes its place.

    Parameters
    ----------
    folder : made if there is none; its parent must exist
    arrays : all tensors of the model, zeros where they are pruned
    maps : layer -> what it keeps
    recipe : what `recipe.json` holds; `weights` and `tiles` are filled in

    Raises
    ------
    BadInput : a folder that cannot be written; then nothing is
    """
    final = Path(folder)
    tiles = tiles_of(maps)
    document = {**recipe, "weights": WEIGHTS, "tiles": TILES if tiles else None}
    with folder_aside(final, last=RECIPE) as aside:
        write_weights(aside / WEIGHTS, arrays)
        if tiles:
            write_tile_maps(aside / TILES, tiles)
        (aside / RECIPE).write_text(json_text(document), encoding="utf-8")
    return final


def tiles_of(maps: Mapping[str, PrunedMap]) -> dict[str, TileMap]:
    """The maps that are tiles, and the tiles around the elements of nested maps."""
    found = {name: kept.tiles if isinstance(kept, NestedMap) else kept for name, kept in maps.items()}
    return {name: kept for name, kept in found.items() if isinstance(kept, TileMap)}


def write_tile_maps(path: str | Path, maps: Mapping[str, TileMap]) -> None:
    """Write tile maps as arrays `LAYER/row_start` and so on of an `.npz` file, pattern strings as text."""
    arrays: dict[str, npt.NDArray[Any]] = {}
    for name, tiles in maps.items():
        arrays |= {f"{name}/{column}": getattr(tiles, column) for column in _COLUMNS}
        arrays[f"{name}/shape"] = np.array([tiles.m, tiles.k], dtype=np.int32)
        arrays[f"{name}/pattern"] = np.array(tiles.pattern)
    np.savez_compressed(path, allow_pickle=False, **arrays)


def read_tile_maps(path: str | Path) -> dict[str, TileMap]:
    """Layer -> tile map of a file that `write_tile_maps` wrote.

    Raises
    ------
    BadInput : the file cannot be read, or does not hold tile maps
    """
    try:
        stored = read_npz(Path(path))
        names = [key.removesuffix("/shape") for key in stored if key.endswith("/shape")]
        return {name: _tile_map(name, stored) for name in names}
    except (KeyError, ValueError, TypeError) as error:
        raise BadInput(f"cannot read tile maps of {path}: {' '.join(str(error).split())}") from None


def _tile_map(name: str, stored: Mapping[str, StoredTensor]) -> TileMap:
    m, k = (int(size) for size in _int32(name, "shape", stored))
    if m < 1 or k < 1 or m * k > LARGEST_MATRIX:
        raise ValueError(f"{name}: wanted a matrix of 1 to {LARGEST_MATRIX} elements, got {m}x{k}")
    columns = {column: _int32(name, column, stored) for column in _COLUMNS}
    return TileMap(m=m, k=k, pattern=str(stored[f"{name}/pattern"].load()), **columns)


def _int32(name: str, column: str, stored: Mapping[str, StoredTensor]) -> npt.NDArray[np.int32]:
    array = stored[f"{name}/{column}"].load()
    if array.dtype != np.int32 or array.ndim != 1:
        raise ValueError(f"{name}/{column} must be a list of int32, got {array.dtype} {array.shape}")
    return array
