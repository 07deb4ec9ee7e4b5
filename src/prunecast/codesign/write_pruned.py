"""Writer of the folder of a pruned model: weights with zeros, their recipe, and tile maps if any."""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from itertools import chain
from pathlib import Path
from typing import Any

from prunecast.codesign.model_folder import copied_names, model_folder, write_model, written_names
from prunecast.codesign.provenance import json_text, read_document
from prunecast.codesign.tile_maps import TILES, WEIGHTS, holds_tile_maps, write_tile_maps
from prunecast.errors import BadInput
from prunecast.files import Output, OutputFolder, check_outputs, folder_aside
from prunecast.patterns import TileMap
from prunecast.patterns.calibration import Calibration
from prunecast.patterns.sources import Checkpoint, masked_checkpoint, write_weights
from prunecast.patterns.sources.checkpoint import MaskedTensors
from prunecast.patterns.sources.readers import RECIPE
from prunecast.patterns.tile_map import MaskArray
from prunecast.workload.graph.config import CONFIG
from prunecast.workload.layers import Source, files_of, is_standard, stored_arrays


def pruned_folder(folder: str | Path, what: str = "out", weights: Source = "") -> OutputFolder:
    """Return the folder of a pruned model and its file names, for the check of outputs (`check_outputs`).

    Parameters
    ----------
    folder : folder that will be written
    what : first word of error messages
    weights : source of the weights; for a Hugging Face folder, the names of its files are used

    Raises
    ------
    BadInput : the folder of `weights` cannot be read, or `folder` contains weights under other file names
    """
    source, path = model_folder(weights), Path(folder)
    names = (WEIGHTS, RECIPE, TILES) if source is None else written_names(source)
    is_model = path.is_dir() and (source is not None or (path / CONFIG).is_file())
    # A reader of a model folder loads all weight files in it: files of another model must not remain there
    present = sorted(path.glob("*.safetensors")) if is_model else []
    other = next((file.name for file in present if file.name not in names), None)
    if other is not None and not (source is not None and path.samefile(source)):
        raise BadInput(f"{what} holds other weights, {other}: wanted another folder, got {folder}")
    return OutputFolder(what=what, path=path, names=names)


def check_folders(
    folders: Iterable[Path],
    weights: Source,
    *,
    reads: Iterable[str | Path | None] = (),
    others: Iterable[Output] = (),
) -> None:
    """Raise BadInput for output folders that cannot be used, before any work is done.

    Parameters
    ----------
    folders : folders of pruned models that will be written
    weights : source of the weights
    reads : files that are read in addition to the weights: a calibration file, the spec of a GPU
    others : further outputs of the same call

    Raises
    ------
    BadInput : a folder cannot be written, it would replace files that are read, or it contains weights
        although `weights` is a standard model, for which none are written
    """
    folders = list(folders)
    known = (path for path in reads if path is not None)
    written = [pruned_folder(folder, weights=weights) for folder in folders]
    check_outputs([*written, *others], chain(files_of(weights), known))
    for folder in folders:
        if is_standard(weights) and (folder / WEIGHTS).exists():
            raise BadInput(f"out holds weights, but {weights} has none: wanted another folder, got {folder}")


def write_folder(
    folder: str | Path,
    recipe: Mapping[str, Any],
    pruned: Checkpoint | None = None,
    tiles: Mapping[str, TileMap] | None = None,
    weights: Source = "",
) -> Path:
    """Write `recipe.json` and, if they are given, the weights and `tiles.npz`; return the folder.

    All files are written to a temporary folder first, and then moved to `folder`, see `result_aside`.

    Parameters
    ----------
    folder : created if it does not exist; its parent must exist
    recipe : content of `recipe.json`
    pruned : all tensors, with zeros in place of pruned weights
    tiles : layer -> its tile map
    weights : source of the tensors; from a Hugging Face folder, a complete Hugging Face folder is written

    Raises
    ------
    BadInput : the folder cannot be written; its earlier files then remain
    """
    with result_aside(Path(folder)) as unfinished:
        fill_folder(unfinished, recipe, pruned, tiles, weights)
    return Path(folder)


def result_aside(folder: Path) -> AbstractContextManager[Path]:
    """Return the context manager `files.folder_aside` for the folder of a pruned model.

    Tile maps and small files (such as a tokenizer) of an earlier result are removed if the new one has none,
    since they would be taken for its own. Small files are those that the earlier recipe lists under `copied`.
    Files that this project did not write remain, as does a file called like tile maps with other content.
    """
    tiles = [TILES] if holds_tile_maps(folder / TILES) else []
    return folder_aside(folder, last=RECIPE, earlier=[*tiles, *_copied_before(folder)])


def _copied_before(folder: Path) -> list[str]:
    """Return the small files that an earlier result copied to a folder; empty if its recipe is unreadable."""
    try:
        copied = read_document(folder / RECIPE, key="copied")["copied"]
    except BadInput:
        return []
    names = [Path(name) for name in copied if isinstance(name, str)] if isinstance(copied, list) else []
    own = folder.resolve()
    inside = [name for name in names if (own / name).parent.resolve().is_relative_to(own)]
    return [str(name) for name in inside if (own / name).is_file()]


def fill_folder(
    unfinished: Path,
    recipe: Mapping[str, Any],
    pruned: Checkpoint | None = None,
    tiles: Mapping[str, TileMap] | None = None,
    weights: Source = "",
) -> None:
    """Write the files that `write_folder` describes into the temporary folder `unfinished`."""
    source, recipe = model_folder(weights), {**recipe}
    if pruned is not None and source is not None and isinstance(pruned.arrays, MaskedTensors):
        recipe["weights"] = write_model(unfinished, weights, pruned.arrays, recipe)
        recipe["copied"] = copied_names(source)
    elif pruned is not None:
        write_weights(unfinished / WEIGHTS, pruned.arrays, pruned.metadata)
    if tiles:
        write_tile_maps(unfinished / TILES, tiles)
    (unfinished / RECIPE).write_text(json_text(recipe), encoding="utf-8")


def pruned_checkpoint(
    weights: Source, masks: Mapping[str, MaskArray], known: Calibration | None = None
) -> Checkpoint:
    """Return all tensors of `weights`, with zeros in place of pruned weights.

    Parameters
    ----------
    masks : layer -> mask (M, K), True for kept weights
    known : statistics of the layers' inputs, with which kept weights are updated; None leaves them unchanged
    """
    update = None if known is None else known.update
    if isinstance(weights, str | Path):
        return masked_checkpoint(weights, masks, update)
    arrays = MaskedTensors(Path("weights"), stored_arrays(weights), masks, update)
    return Checkpoint(arrays=arrays, metadata={})
