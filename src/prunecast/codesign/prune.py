"""`prune`: write a checkpoint with zeros where the pattern removes weights, and the recipe beside it."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.arguments import checked
from prunecast.choice import fastest_plan
from prunecast.codesign.provenance import SCHEMA_VERSION, WeightsDigest
from prunecast.codesign.write_pruned import WEIGHTS, check_folders, pruned_checkpoint, write_folder
from prunecast.hardware import GpuSpec, load_gpu
from prunecast.patterns import TileMap, density, parse_pattern, retained_importance
from prunecast.patterns.calibration import read_calibration
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.sources import Layer
from prunecast.patterns.tile_map import MaskArray
from prunecast.version import tool_version
from prunecast.workload.candidates import tile_kernels
from prunecast.workload.engines import Engine
from prunecast.workload.graph.model_graph import check_tokens
from prunecast.workload.layer_launches import kernel_dtype
from prunecast.workload.layers import Skipped, Source, load_layers
from prunecast.workload.pruned_maps import importance_of, sparsity_for

EXPERTS_PER_TOKEN = 2
"""Experts of a mixture per token, as `predict` takes them where it is not told."""


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
        return asdict(self)


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
    criterion : `magnitude`, or `inputs` where it was multiplied by what inputs are like
    """

    folder: Path
    pattern: str
    sparsity: float | None
    scope: str
    weights_hash: str
    guided_by: dict[str, Any] | None
    layers: tuple[PrunedLayer, ...]
    skipped: tuple[Skipped, ...]
    criterion: str = "magnitude"

    def document(self) -> dict[str, Any]:
        """The JSON object of `recipe.json`."""
        return {
            "schema_version": SCHEMA_VERSION,
            "version": tool_version(),
            "pattern": self.pattern,
            "sparsity": self.sparsity,
            "scope": self.scope,
            "criterion": self.criterion,
            "seed": parse_pattern(self.pattern).seed,
            "weights_hash": self.weights_hash,
            **({} if self.guided_by is None else {"guided_by": self.guided_by}),
            "weights": WEIGHTS,
            "layers": [layer.row() for layer in self.layers],
            "skipped": [skipped.row() for skipped in self.skipped],
        }


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
    gpu, tokens : whose predicted times guide patterns that ask for times
    calibrate : file of mean squares of each layer's inputs, by whose roots magnitudes are multiplied; or of
        second moments, by which kept weights are updated too

    Raises
    ------
    BadInput : input that cannot be used, or a folder that cannot be written; then nothing is written
    """
    rule = parse_pattern(pattern)
    spec, tokens = load_gpu(gpu) if isinstance(gpu, str) else gpu, check_tokens(tokens)
    told = sparsity_for(rule, sparsity, natural=False)
    rule.sparsity_to_prune(told)
    folder = Path(out)
    check_folders([folder], weights, reads=[calibrate, gpu if isinstance(gpu, str) else None])
    loaded = load_layers(weights, target=target, ignore=ignore)
    known = None if calibrate is None else read_calibration(calibrate)
    guide = _Guide(loaded.layers, Engine(name="model", gpu=spec), tokens) if rule.needs_times else None
    timed = rule if guide is None else rule.timed_by(guide.seconds)
    masks, digest, rows = PackedMasks(), WeightsDigest(), []
    for names in [[name] for name in loaded.layers] if scope == "layer" else [list(loaded.layers)]:
        importances = {name: importance_of(loaded.layers[name], rule) for name in names}
        if known is not None:
            importances = {name: known.weigh(name, scores) for name, scores in importances.items()}
        for name, mask in timed.prune(importances, told, scope).items():
            masks.put(name, mask)
            digest.add(name, loaded.layers[name].weights)
            rows.append(_row(name, importances[name], mask))
    recipe = Recipe(
        folder=folder,
        pattern=rule.canonical,
        sparsity=told,
        scope=scope,
        weights_hash=digest.hexdigest(),
        guided_by=None if guide is None else guide.document(),
        layers=tuple(rows),
        skipped=loaded.skipped,
        criterion="magnitude" if calibrate is None else "inputs",
    )
    write_folder(folder, recipe.document(), pruned_checkpoint(weights, masks, known))
    return recipe


def _row(name: str, importance: ImportanceArray, mask: MaskArray) -> PrunedLayer:
    return PrunedLayer(
        layer=name,
        m=mask.shape[0],
        k=mask.shape[1],
        sparsity=1.0 - density(mask),
        retained_importance=retained_importance(importance, mask),
    )


class PackedMasks(Mapping[str, MaskArray]):
    """Masks by layer, one bit for each weight."""

    def __init__(self) -> None:
        self._packed: dict[str, tuple[tuple[int, ...], npt.NDArray[np.uint8]]] = {}

    def put(self, name: str, mask: MaskArray) -> None:
        """Keep a mask (M, K)."""
        self._packed[name] = (mask.shape, np.packbits(mask))

    def __getitem__(self, name: str) -> MaskArray:
        shape, packed = self._packed[name]
        return np.unpackbits(packed, count=math.prod(shape)).reshape(shape).view(np.bool_)

    def __iter__(self) -> Iterator[str]:
        return iter(self._packed)

    def __len__(self) -> int:
        return len(self._packed)


class _Guide(NamedTuple):
    """Times of the fastest tile kernel by the closed-form model."""

    layers: Mapping[str, Layer]
    engine: Engine
    tokens: int

    def seconds(self, name: str, tiles: TileMap) -> float:
        """Time of a layer that keeps these tiles."""
        layer, gpu = self.layers[name], self.engine.gpu
        n, dtype = layer.share_of(self.tokens, EXPERTS_PER_TOKEN), kernel_dtype(layer, None)
        plans = [fastest_plan(kernel, tiles, n, dtype, gpu) for kernel in tile_kernels(n)]
        return min(self.engine.estimate(plan).seconds for plan in plans)

    def document(self) -> dict[str, Any]:
        """What a recipe says of it."""
        gpu = self.engine.gpu
        return {"gpu": gpu.name, "spec_hash": gpu.fingerprint, "tokens": self.tokens}
