"""`prune`: prune a checkpoint to a pattern; write the weights, with zeros, and the recipe."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.arguments import checked
from prunecast.choice import fastest_plan
from prunecast.codesign.provenance import WeightsDigest
from prunecast.codesign.recipe import PrunedLayer, Recipe
from prunecast.codesign.tile_maps import check_layer_names, tiles_of
from prunecast.codesign.write_pruned import check_folders, pruned_checkpoint, write_folder
from prunecast.hardware import GpuSpec, load_gpu, spec_files
from prunecast.kernels import KernelPlan
from prunecast.patterns import TileMap, parse_pattern
from prunecast.patterns.sources import Layer
from prunecast.patterns.tile_map import MaskArray
from prunecast.workload.candidates import tile_kernels
from prunecast.workload.engines import Engine
from prunecast.workload.graph.shapes import checked_tokens
from prunecast.workload.layer_launches import kernel_dtype
from prunecast.workload.layers import Removed, Source, calibration_of, load_layers
from prunecast.workload.load import EXPERTS_PER_TOKEN
from prunecast.workload.pruned_maps import importance_of, sparsity_for


@checked
def prune(
    weights: Source,
    *,
    pattern: str,
    out: str | Path,
    sparsity: float | None = None,
    scope: str = "layer",
    gpu: str | GpuSpec = "h200-sxm",
    tokens: int = 4096,
    calibrate: str | Path | None = None,
    target: str | Sequence[str] = (),
    ignore: str | Sequence[str] = (),
) -> Recipe:
    """Prune layers by magnitude and write `out/weights.safetensors` and `out/recipe.json`.

    Tensors keep their shape and format. Pruned weights are zero. All others are unchanged, unless `calibrate`
    updates them.

    If the written folder is passed to `predict` without a pattern, `predict` uses the recipe. With the
    pattern `zeros` or `zero-tiles:HEIGHT`, it derives the mask from the zeros. With the pattern and sparsity
    of this call, it prunes again and gets the same mask.

    Parameters
    ----------
    weights, target, ignore : as in `predict`; `layers.Removed` writes a smaller model
    pattern : pattern string
    out : folder to write, created if it does not exist; its parent must exist
    sparsity : share of weights to remove; None for 0.75 or the fixed sparsity of the pattern
    scope : `layer` for this sparsity in every layer, `global` to rank the weights of all layers together
    gpu, tokens : GPU and N for which times are predicted, for patterns that are guided by time
    calibrate : file with the mean squares of each layer's inputs, whose roots weight the magnitudes; or with
        second moments, with which kept weights are updated too

    Raises
    ------
    BadInput : an argument cannot be used, or the folder cannot be written; then nothing is written
    """
    rule = parse_pattern(pattern)
    spec, tokens = load_gpu(gpu) if isinstance(gpu, str) else gpu, checked_tokens(tokens)
    target_sparsity = sparsity_for(rule, sparsity, natural=False)
    rule.sparsity_to_prune(target_sparsity)
    folder = Path(out)
    check_folders([folder], weights, reads=[calibrate, *spec_files(gpu)])
    loaded = load_layers(weights, target=target, ignore=ignore)
    if rule.keeps == "tiles":  # before the work: `tiles.npz` cannot hold every name
        check_layer_names(loaded.layers)
    known = None if calibrate is None else calibration_of(weights, calibrate)
    guide = (
        _FastestKernelGuide(loaded.layers, Engine(name="model", gpu=spec), tokens)
        if rule.needs_times
        else None
    )
    timed = rule if guide is None else rule.timed_by(guide.seconds, guide.confirm)
    masks, digest, rows = PackedMasks(), WeightsDigest(), []
    tiles: dict[str, TileMap] = {}
    # Zeros do not give the tiles back, so that their maps are stored; tiles of `dense` have all columns
    keeps_tiles = rule.keeps == "tiles" and rule.family != "dense"
    # Each list has the layers whose weights are ranked together
    for names in [[name] for name in loaded.layers] if scope == "layer" else [list(loaded.layers)]:
        importances = {name: importance_of(loaded.layers[name], rule) for name in names}
        if known is not None:
            importances = {name: known.weigh(name, scores) for name, scores in importances.items()}
        for name, mask in timed.prune(importances, target_sparsity, scope).items():
            masks.put(name, mask)
            if keeps_tiles:
                tiles |= tiles_of({name: rule.map(mask)})
            digest.add(name, loaded.layers[name].weights)
            rows.append(PrunedLayer.of(name, importances[name], mask))
    recipe = Recipe(
        folder=folder,
        pattern=rule.canonical,
        sparsity=target_sparsity,
        scope=scope,
        weights_hash=digest.hexdigest(),
        guided_by=None if guide is None else guide.document(),
        layers=tuple(rows),
        skipped=loaded.skipped,
        criterion="magnitude" if calibrate is None else "inputs",
        tiles={name.removesuffix(".weight"): kept for name, kept in tiles.items()},
        removed=tuple(weights.chosen().rows()) if isinstance(weights, Removed) else (),
    )
    write_folder(folder, recipe.document(), pruned_checkpoint(weights, masks, known), tiles, weights)
    return recipe


class PackedMasks(Mapping[str, MaskArray]):
    """Mapping of layer -> mask (M, K), which stores one bit per weight."""

    def __init__(self) -> None:
        self._packed: dict[str, tuple[tuple[int, ...], npt.NDArray[np.uint8]]] = {}

    def put(self, name: str, mask: MaskArray) -> None:
        """Store a mask (M, K)."""
        self._packed[name] = (mask.shape, np.packbits(mask))

    def __getitem__(self, name: str) -> MaskArray:
        shape, packed = self._packed[name]
        return np.unpackbits(packed, count=math.prod(shape)).reshape(shape).view(np.bool_)

    def __iter__(self) -> Iterator[str]:
        return iter(self._packed)

    def __len__(self) -> int:
        return len(self._packed)


class _FastestKernelGuide(NamedTuple):
    """Predicted times of the fastest tile kernel, which guide a pattern."""

    layers: Mapping[str, Layer]
    engine: Engine
    tokens: int

    def seconds(self, name: str, tiles: TileMap) -> float:
        """Return the least closed-form time in seconds of the layer `name` with this tile map."""
        return self.engine.estimate(self._plan(name, tiles)).seconds

    def confirm(self, name: str, tiles: TileMap) -> float:
        """Return the simulated time in seconds of the layer `name` with this tile map.

        The simulated plan is the one with the least closed-form time, as in `seconds`.
        """
        return self.engine.simulated_seconds((self._plan(name, tiles),))

    def _plan(self, name: str, tiles: TileMap) -> KernelPlan:
        """Return the plan with the least closed-form time, of all kernels that run tiles for these tokens."""
        layer, gpu = self.layers[name], self.engine.gpu
        n, dtype = layer.share_of(self.tokens, EXPERTS_PER_TOKEN), kernel_dtype(layer, None)
        plans = [fastest_plan(kernel, tiles, n, dtype, gpu) for kernel in tile_kernels(n)]
        return min(plans, key=lambda plan: self.engine.estimate(plan).seconds)

    def document(self) -> dict[str, Any]:
        """Return the entry `guided_by` of the recipe."""
        gpu = self.engine.gpu
        return {"gpu": gpu.name, "spec_hash": gpu.fingerprint, "tokens": self.tokens}
