"""`prune_model`: prune the weights in a file, or those of a standard model, so that targets are met."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from prunecast.arguments import checked
from prunecast.codesign.result import Result
from prunecast.codesign.search.even_shares import evenly_if_close, prune_evenly
from prunecast.codesign.search.model_search import FAMILIES, MOST_SPARSITY, ModelSearch, Origin
from prunecast.codesign.search.padded_search import PaddedSearch
from prunecast.codesign.search.removals import SmallerModel, best_smaller_model
from prunecast.codesign.search.solutions import different_solutions, numbered_folders, remarks_on
from prunecast.codesign.search.target import prune_to_targets
from prunecast.codesign.search.targets import TargetResult, Targets
from prunecast.codesign.search.yardsticks import UniformPoint, uniform_points, unpruned_seconds
from prunecast.codesign.tile_maps import TILES, WEIGHTS, check_layer_names, tiles_of
from prunecast.codesign.write_pruned import check_folders, fill_folder, pruned_checkpoint, result_aside
from prunecast.errors import BadInput, check_choice
from prunecast.hardware import GpuSpec, load_gpu, spec_files
from prunecast.launch import Conditions
from prunecast.patterns import parse_pattern
from prunecast.patterns.tile_map import MaskArray
from prunecast.text import Cells, table_text
from prunecast.version import headed
from prunecast.workload.engines import Engine, Progress, cache_state, check_dtype_of_plans, silent
from prunecast.workload.graph import RUNTIMES
from prunecast.workload.layers import (
    Removed,
    Source,
    calibration_of,
    has_model,
    is_standard,
    path_of,
)
from prunecast.workload.load import load_workload
from prunecast.workload.timed_passes import check_batch, timed_passes
from prunecast.workload.workload import calibrated

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TORCH_FAMILIES = ("atp", "guided", "2:4", "tvw")
"""Families that are fast in `prunecast.torch`. C is token-major there, so that shuffled rows (`shuffled`) are
stored one element at a time: a product of such tiles needs 7 times as long (MiniLM, H200, 2026-11-23)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PrunedModel(Result):
    """The result of a search for a pruned model, and the folder to which it was written.

    Parameters
    ----------
    result : the chosen layers, their times, and the Pareto front
    gpu, spec_hash, engine, conditions, dtype : settings of the predictions: name and fingerprint of the GPU
        spec, engine, conditions of the launches and number format
    source : path or name of the model that was pruned
    targets : the requested targets
    folder : contains `recipe.json`, and the weights and `tiles.npz` if real weights were pruned; None if
        nothing was written
    has_weights : True if the weights were read, False if they were drawn at random
    workload : workload for which times were predicted; None if there is none
    others : other solutions, if several were requested
    runtime : runtime of the model, `engine` or `torch`
    criterion : `magnitude`, or `inputs` if magnitudes were weighted by input statistics
    removed : parts that were removed, one entry for each kind, see `RemovedParts.rows`
    uniform : models with one sparsity in all layers, for comparison; empty if parts were removed
    unpruned_seconds : seconds with the chosen kernels and no weight removed; None if parts were removed
    remarks : reason why fewer solutions were found than requested, and folders of earlier ones
    """

    result: TargetResult
    gpu: str
    spec_hash: str
    engine: str
    conditions: Conditions
    dtype: str
    source: str
    targets: Targets
    folder: Path | None
    has_weights: bool
    workload: str | None = None
    others: tuple["PrunedModel", ...] = ()
    runtime: str = "engine"
    criterion: str = "magnitude"
    removed: tuple[Mapping[str, Any], ...] = ()
    uniform: tuple[UniformPoint, ...] = ()
    unpruned_seconds: float | None = None
    remarks: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        search: ModelSearch,
        result: TargetResult,
        targets: Targets,
        folder: Path | None,
        removed: tuple[Mapping[str, Any], ...] = (),
    ) -> Self:
        """Build a `PrunedModel` from the result of a search.

        Parameters
        ----------
        search : search that found the result
        targets : the requested targets
        folder : folder to which the model will be written, or None
        removed : parts that were removed from the model
        """
        return cls(
            result=result,
            gpu=search.engine.gpu.name,
            spec_hash=search.engine.gpu.fingerprint,
            engine=search.engine.name,
            conditions=search.engine.conditions,
            dtype=search.dtype,
            targets=targets,
            folder=folder,
            removed=removed,
            **search.origin._asdict(),
        )

    def fill(self, unfinished: Path, search: ModelSearch, weights: Source, document: dict[str, Any]) -> None:
        """Write `document` as `recipe.json`, and the pruned weights unless they are random, to a folder.

        Parameters
        ----------
        unfinished : temporary folder that `result_aside` created
        search : the search that found this result
        weights : source of the weights
        """
        if not self.has_weights:
            fill_folder(unfinished, document)
            return
        masks = masks_of(search, self.result)
        tiles = tiles_of(
            {name: parse_pattern(self._patterns[name]).map(mask) for name, mask in masks.items()}
        )
        known = search.workload.calibration
        fill_folder(unfinished, document, pruned_checkpoint(weights, masks, known), tiles, weights)

    @property
    def offered(self) -> str:
        """Name of the rule for the patterns and sparsities that layers may have, see `TargetResult`."""
        return self.result.offered

    @property
    def _patterns(self) -> dict[str, str]:
        return {name: layer.pattern for layer in self.result.layers for name in layer.names}

    def plot(self) -> "Figure":
        """Draw the Pareto front of retained importance and time, and this solution, as a new figure."""
        from prunecast.codesign.pictures.comparisons import draw_front

        result = self.result
        return draw_front(
            [point.seconds / result.dense_seconds for point in result.front],
            [point.retained_importance for point in result.front],
            (result.seconds / result.dense_seconds, result.retained_importance),
        )

    def cells(self) -> list[Cells]:
        """Return a table with one row per layer, as texts."""
        return [
            {
                **{"layer": layer.layer, "M": f"{layer.m}", "K": f"{layer.k}"},
                **{"pattern": layer.pattern, "kernel": layer.kernel, "removed": f"{layer.removed:.3f}"},
                **{"kept": f"{layer.retained_importance:.3f}", "us": f"{1e6 * layer.seconds:.2f}"},
                "over dense": f"{layer.speedup:.2f}x",
            }
            for layer in self.result.layers
        ]

    def frame_rows(self) -> list[dict[str, Any]]:
        """Return one dictionary for each matrix of the model."""
        return [row for layer in self.result.layers for row in layer.rows()]

    @property
    def notes(self) -> tuple[str, ...]:
        """Warnings that retained importance is not accuracy, and that weights are random, if they are.

        Remarks on the solutions follow.
        """
        random = () if self.has_weights else ("weights are random with heavy tails",)
        return (*random, "importance is not accuracy: evaluate the pruned model", *self.remarks)

    def __str__(self) -> str:
        return table_text(self.cells(), words=("layer", "pattern", "kernel"))

    def document(self) -> dict[str, Any]:
        """Return the JSON object of `recipe.json`."""
        pruned = set(self._patterns.values()) - {"dense"}
        keeps_tiles = any(parse_pattern(each).keeps != "elements" for each in pruned)
        names = ("gpu", "spec_hash", "engine", "dtype", "criterion", "offered", "workload", "runtime")
        content = {
            "source": self.source,
            "weights": WEIGHTS if self.has_weights else None,
            "tiles": TILES if self.has_weights and keeps_tiles else None,
            **{name: getattr(self, name) for name in names},
            **self.conditions.document(),
            "targets": asdict(self.targets),
            "uniform": [point._asdict() for point in self.uniform],
            "unpruned_seconds": self.unpruned_seconds,
            **({"removed": list(self.removed)} if self.removed else {}),
            **self.result.document(),
        }
        return headed(content)


@checked
def prune_model(
    weights: Source,
    targets: Targets,
    *,
    gpu: str | GpuSpec,
    out: str | Path | None = None,
    solutions: int = 1,
    even: bool | None = None,
    remove: Sequence[str] = (),
    **options: Any,
) -> PrunedModel:
    """Select the pattern, density and kernel of every layer so that the model meets its targets.

    The search maximises the retained importance, the kept sum of (weighted) magnitudes over all layers. A
    layer that no sparse kernel makes faster stays dense.

    Parameters
    ----------
    targets : limits that the pruned model must keep
    out : folder to write, created if it does not exist; None writes nothing
    solutions : number of different solutions to search for; the second one is written to `out-2`, and so on.
        `PrunedModel.remarks` gives the reason if fewer are found
    even : True for one pattern family and about one sparsity in all layers, see `target.prune_evenly`; False
        for sparsities by importance. None means False if `calibrate` is given. Otherwise it means True if
        about as many weights are then removed as with False, see `target.evenly_if_close`
    remove : parts of the model that may be removed (`widths`) or must be removed (`heads:0.5`), see
        `removals.best_smaller_model`. Targets and results are relative to the whole model
    weights, gpu, options : parameters of `search_of`

    Raises
    ------
    BadInput : an argument cannot be used, a target is below the least time that pruning can reach, or a
        folder cannot be written; then nothing is written
    """
    if solutions < 1:
        raise BadInput(f"solutions must be at least 1, got {solutions}")
    if even and solutions > 1:
        raise BadInput(f"even has one solution, got solutions {solutions}")
    by_importance = even is False or (even is None and options.get("calibrate") is not None)
    prune = prune_to_targets if by_importance else prune_evenly if even else evenly_if_close
    padding = ""
    folders = [] if out is None else numbered_folders(Path(out), solutions)
    check_folders(folders, weights, reads=files_read(gpu, options))
    if remove:
        if not isinstance(weights, str | Path):
            raise BadInput("remove is of a standard model or of a folder, got matrices")
        if solutions > 1:
            raise BadInput(f"solutions and remove exclude each other, got {solutions} and {remove[0]}")
        make = partial(search_of, gpu=gpu, **options)
        solved = [best_smaller_model(weights, targets, remove, make, prune, options.get("calibrate"))]
    else:
        search = search_of(weights, gpu=gpu, **options)
        if out is not None:
            check_layer_names(search.workload.layers)
        search.prepare()

        def padded_search(workload: str) -> ModelSearch:
            asked = {**options, "tokens": None, "batch": None, "workload": workload}
            return search_of(weights, gpu=gpu, **asked)

        padded = PaddedSearch(search, targets, padded_search)
        try:
            results = different_solutions(search, targets, solutions, prune)
        except BadInput as error:
            raise BadInput("; ".join(filter(None, (str(error), padded.floor_remark())))) from error
        solved = [SmallerModel(weights, search, result) for result in results]
        padding = padded.remark(results[0], prune)
    found = []
    for place, one in enumerate(solved):
        folder = folders[place] if folders else None
        removed = tuple(one.weights.rows()) if isinstance(one.weights, Removed) and remove else ()
        pruned = PrunedModel.of(one.search, one.result, targets, folder, removed)
        if not remove:
            points = uniform_points(one.search, one.result.seconds)
            unpruned_s = unpruned_seconds(one.search, one.result)
            pruned = replace(pruned, uniform=points, unpruned_seconds=unpruned_s)
        found.append(pruned)
        if folder is not None:
            check_layer_names(one.search.workload.layers)
    with ExitStack() as folders_aside:  # write all folders, then move them into place, the first one last
        for pruned, one in zip(found, solved, strict=True):
            if pruned.folder is not None:
                unfinished = folders_aside.enter_context(result_aside(pruned.folder))
                pruned.fill(unfinished, one.search, one.weights, pruned.document())
    remarks = [*remarks_on(len(found), solutions, folders[0] if folders else None), *filter(None, [padding])]
    return replace(found[0], others=tuple(found[1:]), remarks=tuple(remarks))


@checked
def search_of(
    weights: Source,
    *,
    gpu: str | GpuSpec,
    tokens: int | None = None,
    engine: str = "simulator",
    state: str = "burst",
    launch: str = "graph",
    dtype: str = "fp16",
    families: Sequence[str] = FAMILIES,
    caps: Mapping[str, float] | None = None,
    most_sparsity: float = MOST_SPARSITY,
    batch: int | None = None,
    workload: str | None = None,
    runtime: str | None = None,
    calibrate: str | Path | None = None,
    target: str | Sequence[str] = (),
    ignore: str | Sequence[str] = (),
    progress: Progress = silent,
) -> ModelSearch:
    """Return the search of a model; the options of its layers are not computed until `prepare` is called.

    Parameters
    ----------
    weights : a file, a mapping of names to matrices, or the name of a standard model (`graph.WORKLOADS`),
        whose weights are random with heavy tails. Where the model graph is known, times are end to end
    gpu : name, spec file or spec of the GPU
    tokens : N of every layer, by default 4096. For a standard transformer, tokens of each sequence, and for
        `.onnx`, every free size of inputs except the first one, by default 512
    engine : predicts the chosen layers, `simulator` or `model`; the allocation mostly uses the closed form
    state, launch, dtype : settings of the prediction, see `PredictSettings`; no `fp8`, since a search counts
        no quantising of x
    families : pattern families to use in addition to dense: `atp`, `guided`, `shuffled`, `dense-block`,
        `2:4`, `tvw`
    caps : layer -> highest sparsity that it may have
    most_sparsity : highest sparsity of layers that `caps` does not name
    batch : images or sequences of a standard model; for `.onnx`, the free first size of inputs. By default 8,
        or 1 if `tokens` is given
    workload : passes to predict instead of tokens and batch, such as `prefill:2048` or `decode:16@4096`, or a
        mix, whose weighted mean time counts; see `graph.parse_workload`
    runtime : `engine`, or `torch`, which does not support shuffled rows; None selects torch if its launches
        for this model are known
    calibrate : file with the mean squares of each layer's inputs, whose roots weight the magnitudes; or with
        second moments, with which kept weights are updated too
    target, ignore : layers to include and to leave out
    progress : callback for the progress of long stages

    Raises
    ------
    BadInput : an argument cannot be used
    """
    spec = load_gpu(gpu) if isinstance(gpu, str) else gpu
    check_dtype_of_plans(dtype, "a search")
    for family in families:
        check_choice("families", family, FAMILIES)
    for name, most in {"most_sparsity": most_sparsity, **(caps or {})}.items():
        if not 0.0 <= most < 1.0:
            raise BadInput(f"{name}: caps and most_sparsity must be in [0, 1), got {most}")
    if runtime is not None:
        check_choice("runtime", runtime, RUNTIMES)
    elif not families_of("torch", families):
        runtime = "engine"
    if tokens is not None and workload is not None:
        raise BadInput(f"tokens and a workload exclude each other, got {tokens} and {workload}")
    check_batch(weights, batch, workload=workload)
    runs = timed_passes(weights, tokens=tokens, batch=batch, workload=workload)
    loaded = load_workload(
        weights,
        runs,
        stated={"tokens": tokens, "batch": batch},
        runtime=runtime,
        target=target,
        ignore=ignore,
        apart=caps or (),
    )
    if calibrate is not None:
        loaded = calibrated(loaded, calibration_of(weights, calibrate))
    if workload is None and has_model(weights):
        workload = f"batch:{runs[0].batch}" + ("" if tokens is None else f"x{tokens}")
    runtime = loaded.runtime
    in_model = runtime == "engine" and (workload is not None or bool(loaded.graphs))
    l2 = cache_state(None, loaded.model_weights, dtype, in_model=in_model)
    return ModelSearch(
        workload=loaded,
        engine=Engine(name=engine, gpu=spec, conditions=Conditions(state, launch, l2), progress=progress),
        dtype=dtype,
        families=families_of(runtime, families),
        caps=caps or {},
        most_sparsity=most_sparsity,
        progress=progress,
        origin=Origin(
            source=str(path_of(weights) or "arrays"),
            has_weights=not is_standard(weights),
            workload=workload,
            runtime=runtime,
            criterion="magnitude" if calibrate is None else "inputs",
        ),
    )


def files_read(gpu: str | GpuSpec, options: Mapping[str, Any]) -> list[str | Path | None]:
    """Return the files that a search reads in addition to the weights: GPU spec and calibration file."""
    return [*spec_files(gpu), options.get("calibrate")]


def families_of(runtime: str, families: Sequence[str]) -> Sequence[str]:
    """Return the pattern families that are fast in the runtime: all for `engine`, else `TORCH_FAMILIES`."""
    return [family for family in families if runtime == "engine" or family in TORCH_FAMILIES]


def masks_of(search: ModelSearch, result: TargetResult) -> dict[str, MaskArray]:
    """Return matrix -> mask (M, K), for the matrices of a result that do not stay dense."""
    found: dict[str, MaskArray] = {}
    for layer in result.layers:
        if layer.pattern != "dense":
            mask = search.mask(layer.layer, layer.pattern, layer.sparsity, layer.kernel)
            ends = np.cumsum([each.m for each in layer.members])[:-1]
            found |= zip(layer.names, np.split(mask, ends), strict=True)
    return found
