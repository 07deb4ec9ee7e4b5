"""Writing pruned weights and their recipe: both files or none."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prunecast.codesign.layers import Source, path_of, stored_arrays
from prunecast.codesign.provenance import json_text
from prunecast.errors import BadInput
from prunecast.files import folder_aside
from prunecast.patterns.sources import Checkpoint, masked_checkpoint, write_weights
from prunecast.patterns.sources.checkpoint import masked_arrays
from prunecast.patterns.tile_map import MaskArray

WEIGHTS = "weights.safetensors"
RECIPE = "recipe.json"


def checked_folder(folder: Path, weights: Source) -> Path:
    """`folder`, refused before any work is done for it.

    Raises
    ------
    BadInput : it is a file, its parent does not exist, or it holds the very weights that are to be pruned
    """
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"out must be a folder, got the file {folder}")
    if not folder.absolute().parent.is_dir():
        raise BadInput(f"out must lie in a folder that exists, got {folder}")
    source = _file(weights)
    if source and folder.exists() and folder.samefile(source):
        raise BadInput(f"out would mix with the weights that it is made from: {folder}")
    target = folder / WEIGHTS
    if source and target.exists() and target.samefile(source):
        raise BadInput(f"out would overwrite the weights that it is made from: {target}")
    return folder


def _file(weights: Source) -> Path | None:
    path = path_of(weights)
    return path if path is not None and path.exists() else None


def write_folder(
    folder: Path, weights: Source, masks: Mapping[str, MaskArray] | None, recipe: dict[str, Any]
) -> None:
    """Write the recipe and, with masks, the weights with zeros where a mask removes them.

    Both are finished in a folder of their own before either takes its place.

    Raises
    ------
    BadInput : the folder cannot be written; what was there is still there
    """
    with folder_aside(folder, last=RECIPE) as aside:
        if masks is not None:
            pruned = _pruned(weights, masks)
            write_weights(aside / WEIGHTS, pruned.arrays, pruned.metadata)
        (aside / RECIPE).write_text(json_text(recipe), encoding="utf-8")


def _pruned(weights: Source, masks: Mapping[str, MaskArray]) -> Checkpoint:
    if isinstance(weights, str | Path):
        return masked_checkpoint(weights, masks)
    return Checkpoint(arrays=masked_arrays(Path("weights"), stored_arrays(weights), masks), metadata={})
