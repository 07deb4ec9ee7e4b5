"""`prune`: write a checkpoint with zeros where the pattern removes weights, and the recipe beside it."""

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prunecast.codesign.files import SCHEMA_VERSION, json_text
from prunecast.codesign.layers import ONLY_LAYER, LoadedLayers, Source, load_layers
from prunecast.codesign.provenance import WeightsDigest
from prunecast.codesign.pruned_maps import importance_of, sparsity_for
from prunecast.codesign.skipped import Skipped
from prunecast.errors import BadInput
from prunecast.patterns import density, parse_pattern, retained_importance
from prunecast.patterns.sources import Checkpoint, masked_checkpoint, write_weights
from prunecast.patterns.tile_map import MaskArray
from prunecast.version import tool_version

__all__ = ["PrunedLayer", "Recipe", "prune"]

WEIGHTS = "weights.safetensors"
RECIPE = "recipe.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunedLayer:
    """What pruning did to one layer.

    Parameters
    ----------
    layer : its name
    m, k : rows and columns
    sparsity : share of its weights that was removed
    retained_importance : kept share of the summed magnitude
    """

    layer: str
    m: int
    k: int
    sparsity: float
    retained_importance: float

    def row(self) -> dict[str, Any]:
        """The fields as JSON holds them."""
        return {
            "layer": self.layer,
            "m": self.m,
            "k": self.k,
            "sparsity": self.sparsity,
            "retained_importance": self.retained_importance,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a checkpoint was pruned, and where it lies.

    Parameters
    ----------
    folder : holds `weights.safetensors` and `recipe.json`
    pattern : canonical pattern string
    sparsity : asked for; None for patterns that have their own
    scope : `layer` or `global`
    weights_hash : fingerprint of the layers before pruning
    layers : what was pruned
    skipped : tensors that went through unchanged for a reason worth a line
    """

    folder: Path
    pattern: str
    sparsity: float | None
    scope: str
    weights_hash: str
    layers: tuple[PrunedLayer, ...]
    skipped: tuple[Skipped, ...]

    def document(self) -> dict[str, Any]:
        """The JSON object of `recipe.json`."""
        return {
            "schema_version": SCHEMA_VERSION,
            "version": tool_version(),
            "pattern": self.pattern,
            "sparsity": self.sparsity,
            "scope": self.scope,
            "criterion": "magnitude",
            "seed": None,
            "weights_hash": self.weights_hash,
            "weights": WEIGHTS,
            "layers": [layer.row() for layer in self.layers],
            "skipped": [skipped.row() for skipped in self.skipped],
        }


def prune(
    weights: Source,
    *,
    pattern: str,
    out: str | Path,
    sparsity: float | None = None,
    scope: str = "layer",
    target: Sequence[str] = (),
    ignore: Sequence[str] = (),
) -> Recipe:
    """Prune layers by magnitude and write `out/weights.safetensors` and `out/recipe.json`.

    Tensors keep their shape and format; what is pruned is zero, everything else goes through unchanged.
    `predict` reads the outcome with the pattern `zeros` or `zero-tiles:HEIGHT`, or with the same pattern and
    sparsity, which finds the same mask.

    Parameters
    ----------
    weights, target, ignore : as in `predict`
    pattern : pattern string
    out : a folder, made if there is none; its parent must exist
    sparsity : share of weights to remove; None for 0.75 or the pattern's own
    scope : `layer` or `global`

    Raises
    ------
    BadInput : input that cannot be used, or a folder that cannot be written; then nothing is written
    """
    rule = parse_pattern(pattern)
    told = sparsity_for(rule, sparsity, natural=False)
    rule.sparsity_to_prune(told)
    folder = _checked_folder(Path(out), weights)
    loaded = load_layers(weights, target=target, ignore=ignore)
    importances = {name: importance_of(layer, rule) for name, layer in loaded.layers.items()}
    masks = rule.prune(importances, told, scope)
    recipe = Recipe(
        folder=folder,
        pattern=rule.canonical,
        sparsity=told,
        scope=scope,
        weights_hash=_digest(loaded),
        layers=tuple(
            PrunedLayer(
                layer=name,
                m=mask.shape[0],
                k=mask.shape[1],
                sparsity=1.0 - density(mask),
                retained_importance=retained_importance(importances[name], mask),
            )
            for name, mask in masks.items()
        ),
        skipped=loaded.skipped,
    )
    _write(recipe, _pruned(weights, masks))
    return recipe


def _checked_folder(folder: Path, weights: Source) -> Path:
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"out must be a folder, got the file {folder}")
    if not folder.absolute().parent.is_dir():
        raise BadInput(f"out must lie in a folder that exists, got {folder}")
    target = folder / WEIGHTS
    if isinstance(weights, str | Path) and target.exists() and target.samefile(weights):
        raise BadInput(f"out would overwrite the weights that it is made from: {target}")
    return folder


def _digest(loaded: LoadedLayers) -> str:
    digest = WeightsDigest()
    for layer in loaded.layers.values():
        digest.add(layer.name, layer.weights)
    return digest.hexdigest()


def _pruned(weights: Source, masks: Mapping[str, MaskArray]) -> Checkpoint:
    if isinstance(weights, str | Path):
        return masked_checkpoint(weights, masks)
    named = weights if isinstance(weights, Mapping) else {ONLY_LAYER: weights}
    arrays = {name: _masked(np.asarray(array), masks.get(name)) for name, array in named.items()}
    return Checkpoint(arrays=arrays, metadata={})


def _masked(array: npt.NDArray[Any], mask: MaskArray | None) -> npt.NDArray[Any]:
    return array if mask is None else np.where(mask, array, array.dtype.type(0))


def _write(recipe: Recipe, pruned: Checkpoint) -> None:
    """Both files are finished in a folder of their own before either takes its place."""
    folder = recipe.folder
    aside = folder.absolute().with_name(f".{folder.name}.{os.getpid()}")
    try:
        aside.mkdir()
        write_weights(aside / WEIGHTS, pruned.arrays, pruned.metadata)
        (aside / RECIPE).write_text(json_text(recipe.document()), encoding="utf-8")
        folder.mkdir(exist_ok=True)
        for name in (WEIGHTS, RECIPE):
            os.replace(aside / name, folder / name)
    except OSError as error:
        raise BadInput(f"cannot write {folder}: {error.strerror}") from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)
