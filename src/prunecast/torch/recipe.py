"""What `sparsify` is told: a pattern, or a recipe as `prunecast prune` writes it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from prunecast.codesign.write_pruned import TILES, read_tile_maps
from prunecast.errors import BadInput
from prunecast.patterns import TileMap, parse_pattern

RECIPE = "recipe.json"


class Recipe(NamedTuple):
    """Patterns of layers, and the share of zeros that each must have."""

    pattern: str
    """Pattern of layers that name none."""
    patterns: Mapping[str, str]
    sparsities: Mapping[str, float]
    """Sparsities of modules by name; empty where none is given."""
    tiles: Mapping[str, TileMap] = {}
    """Tiles of modules by name, where the recipe's folder holds them: what lies in them may be zero."""

    def pattern_of(self, name: str) -> str:
        """The pattern of a layer."""
        return self.patterns.get(name, self.pattern)


def read_recipe(recipe: "str | Path | Mapping[str, Any] | Recipe") -> Recipe:
    """A pattern string, a file or folder with a recipe, or its content.

    Raises
    ------
    BadInput : an unknown pattern, an unreadable file, or one without pattern
    """
    if isinstance(recipe, Recipe):
        return recipe
    if isinstance(recipe, Mapping):
        return _of_document(recipe, "the recipe")
    path = Path(recipe)
    if isinstance(recipe, Path) or path.exists():
        file = path / RECIPE if path.is_dir() else path
        document = _read(file)
        return _of_document(document, str(file))._replace(tiles=_tiles(document, file.parent / TILES))
    if path.name != recipe or path.suffix == ".json":
        raise BadInput(f"{recipe}: wanted a pattern or a folder with {RECIPE}, there is no such folder")
    try:
        return Recipe(parse_pattern(recipe).canonical, {}, {})
    except BadInput as error:
        raise BadInput(f"wanted a pattern or a folder with {RECIPE}, got neither: {error}") from None


def _read(file: Path) -> Mapping[str, Any]:
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(f"{file}: wanted a recipe in JSON, but: {error}") from None
    if not isinstance(document, Mapping):
        raise BadInput(f"{file}: wanted a recipe in JSON, got {type(document).__name__}")
    return document


def _of_document(document: Mapping[str, Any], where: str) -> Recipe:
    rows = document.get("layers", [])
    named = {_module(str(row["layer"])): row for row in rows if isinstance(row, Mapping) and "layer" in row}
    patterns = {name: str(row["pattern"]) for name, row in named.items() if row.get("pattern")}
    pattern = document.get("pattern") or next(iter(patterns.values()), None)
    if not isinstance(pattern, str):
        raise BadInput(f"{where}: wanted a pattern, got none")
    for each in {pattern, *patterns.values()}:
        parse_pattern(each)
    said = {name: _zeros(row) for name, row in named.items() if _zeros(row) is not None}
    for name, sparsity in said.items():
        if not isinstance(sparsity, (int, float)) or not 0.0 <= sparsity < 1.0:
            raise BadInput(f"{where}: wanted a sparsity in [0, 1) of {name!r}, got {sparsity!r:.40}")
    return Recipe(pattern, patterns, {name: float(sparsity) for name, sparsity in said.items()})


def _zeros(row: Mapping[str, Any]) -> Any:
    """Share of zeros: what was removed, where that is told beside the sparsity that the pattern was told."""
    return row.get("removed") or row.get("sparsity")


def _tiles(document: Mapping[str, Any], file: Path) -> dict[str, TileMap]:
    if not document.get("tiles"):
        return {}
    return {_module(layer): tiles for layer, tiles in read_tile_maps(file).items()}


def _module(layer: str) -> str:
    """A recipe names tensors, `sparsify` modules."""
    return layer.removesuffix(".weight")
