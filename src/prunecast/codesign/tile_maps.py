"""File names in the folder of a pruned model, and reader and writer of `tiles.npz`, its tile maps."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import numpy as np
import numpy.typing as npt

from prunecast.choice import PrunedMap
from prunecast.errors import BadInput
from prunecast.patterns import NestedMap, TileMap
from prunecast.patterns.sources.readers import file_tensors
from prunecast.patterns.sources.safetensors import utf8_name
from prunecast.patterns.sources.stored_tensor import LARGEST_MATRIX, StoredTensor, failures_named

WEIGHTS = "weights.safetensors"
TILES = "tiles.npz"
LONGEST_NAME = 60_000
"""Maximum length of a layer name in bytes. A zip archive stores the length of an entry's name in 16 bits, and
`write_tile_maps` appends a suffix to the layer name."""


def check_layer_names(names: Iterable[str]) -> None:
    """Raise BadInput for layer names that cannot be stored in `tiles.npz`.

    The file is a zip archive, in which names end at a zero byte and have a limited length.

    Raises
    ------
    BadInput : a name contains a zero byte or has more than 60,000 bytes
    """
    for name in names:
        if "\0" in name or len(utf8_name(name).encode()) > LONGEST_NAME:
            raise BadInput(
                f"{TILES} cannot hold a layer whose name has a zero byte or more than {LONGEST_NAME} bytes, "
                f"got {name[:80]!r}"
            )


def tiles_of(maps: Mapping[str, PrunedMap]) -> dict[str, TileMap]:
    """Return layer -> tile map, for the layers whose map in `maps` is a tile map or a nested map.

    Of a nested map (single elements kept inside of tiles), the tiles are returned.
    """
    found = {name: kept.tiles if isinstance(kept, NestedMap) else kept for name, kept in maps.items()}
    return {name: kept for name, kept in found.items() if isinstance(kept, TileMap)}


def write_tile_maps(path: str | Path, maps: Mapping[str, TileMap]) -> None:
    """Write tile maps to an `.npz` file.

    Each field of a map is an array `LAYER/FIELD`, such as `LAYER/row_start`; the pattern string is text.
    Layers have the same names as in `weights.safetensors`.
    """
    arrays: dict[str, npt.NDArray[Any]] = {}
    for layer, tiles in maps.items():
        name = utf8_name(layer)
        arrays |= {f"{name}/{column}": getattr(tiles, column) for column in TileMap.ARRAYS}
        arrays[f"{name}/shape"] = np.array([tiles.m, tiles.k], dtype=np.int32)
        arrays[f"{name}/pattern"] = np.array(tiles.pattern)
    np.savez_compressed(path, allow_pickle=False, **arrays)


def read_tile_maps(path: str | Path) -> dict[str, TileMap]:
    """Read a file that `write_tile_maps` wrote; return layer -> tile map.

    Raises
    ------
    BadInput : the file cannot be read, or does not contain tile maps
    """
    with failures_named(Path(path)):
        stored = file_tensors(Path(path))
        names = [key.removesuffix("/shape") for key in stored if key.endswith("/shape")]
        if not names:
            raise ValueError(f"wanted tile maps, got {', '.join(stored) or 'no arrays':.80}")
        return {name: _tile_map(name, stored) for name in names}


def holds_tile_maps(path: Path) -> bool:
    """Return True for a file with the arrays that `write_tile_maps` writes and no others.

    Only their names are read.
    """
    try:
        with ZipFile(path) as archive:
            names = {name.rpartition("/")[2].removesuffix(".npy") for name in archive.namelist()}
    except (OSError, ValueError, BadZipFile):
        return False
    return names == {*TileMap.ARRAYS, "shape", "pattern"}


def _tile_map(name: str, stored: Mapping[str, StoredTensor]) -> TileMap:
    m, k = (int(size) for size in _int32(name, "shape", stored))
    if m < 1 or k < 1 or m * k > LARGEST_MATRIX:
        raise ValueError(f"{name}: wanted a matrix of 1 to {LARGEST_MATRIX} elements, got {m}x{k}")
    columns = {column: _int32(name, column, stored) for column in TileMap.ARRAYS}
    return TileMap(m=m, k=k, pattern=str(stored[f"{name}/pattern"].load()), **columns)


def _int32(name: str, column: str, stored: Mapping[str, StoredTensor]) -> npt.NDArray[np.int32]:
    array = stored[f"{name}/{column}"].load()
    if array.dtype != np.int32 or array.ndim != 1:
        raise ValueError(f"{name}/{column} must be a list of int32, got {array.dtype} {array.shape}")
    return array
