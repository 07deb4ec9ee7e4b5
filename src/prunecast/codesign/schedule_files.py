"""The folder of a model that was pruned while it trained: dense weights with zeros, recipe, tile maps."""

import os
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prunecast.codesign.files import json_text
from prunecast.codesign.plans import PrunedMap
from prunecast.errors import BadInput
from prunecast.patterns import NestedMap, TileMap
from prunecast.patterns.sources import write_weights

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
    aside = final.absolute().with_name(f".{final.name}.{os.getpid()}")
    tiles = tiles_of(maps)
    document = {**recipe, "weights": WEIGHTS, "tiles": TILES if tiles else None}
    try:
        aside.mkdir()
        write_weights(aside / WEIGHTS, arrays)
        if tiles:
            write_tile_maps(aside / TILES, tiles)
        (aside / RECIPE).write_text(json_text(document), encoding="utf-8")
        final.mkdir(exist_ok=True)
        for file in sorted(aside.iterdir()):
            os.replace(file, final / file.name)
    except OSError as error:
        raise BadInput(f"cannot write {folder}: {error.strerror}") from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)
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
        with np.load(path, allow_pickle=False) as stored:
            names = [key.removesuffix("/shape") for key in stored.files if key.endswith("/shape")]
            return {name: _tile_map(name, stored) for name in names}
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise BadInput(f"cannot read tile maps of {path}: {' '.join(str(error).split())}") from None


def _tile_map(name: str, stored: np.lib.npyio.NpzFile) -> TileMap:
    m, k = (int(size) for size in stored[f"{name}/shape"])
    columns = {column: stored[f"{name}/{column}"] for column in _COLUMNS}
    return TileMap(m=m, k=k, pattern=str(stored[f"{name}/pattern"]), **columns)
