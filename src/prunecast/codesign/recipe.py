"""`Recipe`: the patterns and sparsities to which a model was pruned, stored in `recipe.json`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from prunecast.codesign.tile_maps import TILES, WEIGHTS, read_tile_maps
from prunecast.errors import BadInput
from prunecast.patterns import TileMap, density, parse_pattern, retained_importance
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.sources.readers import RECIPE
from prunecast.patterns.tile_map import MaskArray
from prunecast.version import headed
from prunecast.workload.layers import Skipped


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunedLayer:
    """The entry of one layer in a recipe.

    Parameters
    ----------
    layer : name of the weight tensor
    m, k : rows and columns; 0 if they are unknown
    sparsity : share of the weights that was removed; None if it is unknown
    retained_importance : share of the summed importance that is kept
    pattern : pattern string; None if the layer has the pattern of the recipe
    """

    layer: str
    m: int = 0
    k: int = 0
    sparsity: float | None
    retained_importance: float = 0.0
    pattern: str | None = None

    @classmethod
    def of(cls, name: str, importance: ImportanceArray, mask: MaskArray) -> Self:
        """Return the entry of a layer with this mask (M, K) and importance of the weights (M, K)."""
        return cls(
            layer=name,
            m=mask.shape[0],
            k=mask.shape[1],
            sparsity=1.0 - float(density(mask)),
            retained_importance=retained_importance(importance, mask),
        )

    @property
    def module(self) -> str:
        """Name of the module that contains the matrix: `sparsify` names modules, recipes name tensors."""
        return self.layer.removesuffix(".weight")

    def row(self) -> dict[str, Any]:
        """Return the fields for JSON; `prune` gives all layers one pattern, which is in the recipe."""
        names = ("layer", "m", "k", "sparsity", "retained_importance")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Description of how a model was pruned: patterns, layers and settings, and the folder of the result.

    Parameters
    ----------
    pattern : canonical pattern string of the layers that do not have their own
    layers : the pruned layers; empty if only a pattern is known
    folder : folder with `weights.safetensors` and `recipe.json`; None for a recipe without a folder
    sparsity : the requested sparsity; None for patterns with a fixed sparsity
    scope : `layer`, or `global` if weights were ranked over all layers
    weights_hash : fingerprint of the layers before pruning
    guided_by : GPU and number of tokens of the predicted times that guided the pattern, or None
    skipped : tensors that were copied unchanged, with reasons
    criterion : `magnitude`, or `inputs` if magnitudes were weighted by input statistics
    tiles : module -> tile map, for modules whose tile map is stored. Tile maps cannot be derived from zeros,
        since kept weights may be zero too
    removed : parts of the model that were removed, one entry for each kind, see `RemovedParts.rows`
    gpu : name of the GPU for which a search predicted times; empty for other recipes
    """

    pattern: str
    layers: tuple[PrunedLayer, ...] = ()
    folder: Path | None = None
    sparsity: float | None = None
    scope: str = "layer"
    weights_hash: str = ""
    guided_by: dict[str, Any] | None = None
    skipped: tuple[Skipped, ...] = ()
    criterion: str = "magnitude"
    tiles: Mapping[str, TileMap] = field(default_factory=dict)
    removed: tuple[Mapping[str, Any], ...] = ()
    gpu: str = ""

    @property
    def patterns(self) -> dict[str, str]:
        """Module -> pattern, for layers that have their own pattern."""
        return {layer.module: layer.pattern for layer in self.layers if layer.pattern}

    @property
    def sparsities(self) -> dict[str, float]:
        """Module -> share of its weights that was removed, where it is known."""
        return {layer.module: layer.sparsity for layer in self.layers if layer.sparsity is not None}

    def pattern_of(self, module: str) -> str:
        """Return the pattern of a module: its own, or that of the recipe."""
        return self.patterns.get(module, self.pattern)

    def document(self) -> dict[str, Any]:
        """Return the JSON object of `recipe.json`: `PruneJson` of `docs/reference/json_schema.json`.

        `write_pruned.fill_folder` replaces `weights` by the shard or index of a Hugging Face folder.
        """
        content = {
            **{name: getattr(self, name) for name in ("pattern", "sparsity", "scope", "criterion")},
            "seed": parse_pattern(self.pattern).seed,
            "weights_hash": self.weights_hash,
            **({} if self.guided_by is None else {"guided_by": self.guided_by}),
            "weights": WEIGHTS,
            "tiles": TILES if self.tiles else None,
            **({"removed": list(self.removed)} if self.removed else {}),
            "layers": [layer.row() for layer in self.layers],
            "skipped": [skipped.row() for skipped in self.skipped],
        }
        return headed(content)


def read_recipe(recipe: "str | Path | Mapping[str, Any] | Recipe") -> Recipe:
    """Return the recipe from a pattern string, a recipe file, a folder with one, or a parsed JSON object.

    Raises
    ------
    BadInput : the pattern is unknown, or the file cannot be read or contains no pattern
    """
    if isinstance(recipe, Recipe):
        return recipe
    if isinstance(recipe, Mapping):
        return _of_document(recipe, "the recipe")
    path = Path(recipe)
    if isinstance(recipe, Path) or path.exists():
        file = path / RECIPE if path.is_dir() else path
        document = _read(file)
        found = _of_document(document, str(file))
        if not document.get("tiles"):
            return found
        tiles = read_tile_maps(file.parent / TILES)
        return replace(found, tiles={name.removesuffix(".weight"): kept for name, kept in tiles.items()})
    if path.name != recipe or path.suffix == ".json":
        raise BadInput(f"{recipe}: wanted a pattern or a folder with {RECIPE}, there is no such folder")
    try:
        return Recipe(pattern=parse_pattern(recipe).canonical)
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
    """Return the recipe of a JSON object that any command or `torch.Pruner` wrote."""
    rows = [row for row in document.get("layers", []) if isinstance(row, Mapping) and "layer" in row]
    layers = tuple(_layer(row, where) for row in rows)
    pattern = document.get("pattern") or next((layer.pattern for layer in layers if layer.pattern), None)
    if not isinstance(pattern, str):
        raise BadInput(f"{where}: wanted a pattern, got none")
    for each in {pattern, *(layer.pattern for layer in layers if layer.pattern)}:
        parse_pattern(each)
    removed = tuple(row for row in document.get("removed") or () if isinstance(row, Mapping))
    gpu = document.get("gpu")
    return Recipe(pattern=pattern, layers=layers, removed=removed, gpu=gpu if isinstance(gpu, str) else "")


def _layer(row: Mapping[str, Any], where: str) -> PrunedLayer:
    """Return the entry of a layer; `where` is the file, with which messages begin."""
    # In recipes of a search, `removed` is the achieved sparsity and `sparsity` the argument of the pattern
    sparsity = row.get("removed") or row.get("sparsity")
    name = str(row["layer"])
    if sparsity is not None and not (isinstance(sparsity, (int, float)) and 0.0 <= sparsity < 1.0):
        raise BadInput(
            f"{where}: wanted a sparsity in [0, 1) of {name.removesuffix('.weight')!r}, got {sparsity!r:.40}"
        )
    return PrunedLayer(
        layer=name,
        sparsity=None if sparsity is None else float(sparsity),
        pattern=str(row["pattern"]) if row.get("pattern") else None,
    )
