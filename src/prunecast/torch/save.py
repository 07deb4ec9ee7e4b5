"""Save a pruned model: its state with zeros, its recipe, and its tile maps."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from prunecast.choice import PrunedMap
from prunecast.codesign.provenance import WeightsDigest
from prunecast.codesign.recipe import PrunedLayer, Recipe
from prunecast.codesign.tile_maps import TILES, tiles_of
from prunecast.codesign.write_pruned import write_folder
from prunecast.errors import BadInput
from prunecast.patterns import Pattern
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.sources import Checkpoint
from prunecast.patterns.tile_map import MaskArray
from prunecast.torch.importance import as_array


def save(
    out: str | Path,
    model: nn.Module,
    pattern: Pattern,
    masks: Mapping[str, MaskArray],
    first: Mapping[str, ImportanceArray],
    facts: Mapping[str, Any],
) -> Path:
    """Write weights, recipe and tile maps to the folder `out`.

    Parameters
    ----------
    masks : layer -> bool mask (M, K)
    first : layer -> importance (M, K) before anything was pruned
    facts : further entries of the recipe

    Raises
    ------
    BadInput : the folder cannot be written
    """
    arrays = {name: as_array(tensor) for name, tensor in model.state_dict().items()}
    for name, mask in masks.items():
        # Multiplying by a mask leaves -0; write +0.
        arrays[name] = np.where(mask.reshape(arrays[name].shape), arrays[name], arrays[name].dtype.type(0))
    maps = _maps(pattern, masks)
    tiles = tiles_of(maps)
    digest = WeightsDigest()  # of the pruned layers as they are written
    for name in masks:
        digest.add(name, arrays[name])
    recipe = Recipe(
        pattern=pattern.canonical,
        layers=tuple(PrunedLayer.of(name, first[name], mask) for name, mask in masks.items()),
        weights_hash=digest.hexdigest(),
    )
    document = {
        **recipe.document(),
        **facts,
        "not_in_pattern": [name for name in masks if name not in maps],
        "tiles": TILES if tiles else None,
    }
    return write_folder(out, document, Checkpoint(arrays=arrays, metadata={}), tiles)


def _maps(pattern: Pattern, masks: Mapping[str, MaskArray]) -> dict[str, PrunedMap]:
    """Return layer -> map, for those layers whose masks follow the pattern.

    The masks of an unfinished schedule may not follow it yet.
    """
    maps = {}
    for name, mask in masks.items():
        try:
            maps[name] = pattern.map(mask)
        except BadInput:
            continue
    return maps
