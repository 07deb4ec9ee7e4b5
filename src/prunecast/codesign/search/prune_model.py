"""`prune_model`: from a file or the name of a standard model to pruned weights that meet targets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from prunecast.codesign.contestants import check_has_form
from prunecast.codesign.engines import Engine, Progress, silent
from prunecast.codesign.files import SCHEMA_VERSION
from prunecast.codesign.graph import RUNTIMES, WORKLOADS, Pass, load_pass, parse_workload
from prunecast.codesign.graph.config import checkpoint_shape
from prunecast.codesign.graph.passes import SEQUENCE
from prunecast.codesign.html_table import cells_html, cells_text
from prunecast.codesign.layers import Source, path_of
from prunecast.codesign.search.layer_sets import (
    LayerSet,
    layers_of_checkpoint,
    layers_of_file,
    layers_of_onnx,
    layers_of_workload,
)
from prunecast.codesign.search.model_search import FAMILIES, MOST_SPARSITY, ModelSearch
from prunecast.codesign.search.solutions import different_solutions
from prunecast.codesign.search.target import TargetResult
from prunecast.codesign.search.targets import Targets
from prunecast.codesign.write_pruned import WEIGHTS, checked_folder, write_folder
from prunecast.errors import BadInput, check_choice
from prunecast.hardware import GpuSpec, load_gpu
from prunecast.patterns.calibration import read_calibration
from prunecast.patterns.tile_map import MaskArray
from prunecast.version import tool_version

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TOKENS = 4096
TILE_FAMILIES = ("atp", "guided", "shuffled")
"""Patterns that `prunecast.torch.sparsify` takes."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PrunedModel:
    """What came of it, and where it lies.

    Parameters
    ----------
    result : layers, times and front
    gpu, spec_hash, engine, dtype : of the predictions
    source : path or name that was pruned
    targets : what was asked for
    workload : what the times are of, where it was said
    runtime : what runs the model
    offered : what layers could get
    others : other solutions, where several were asked for
    criterion : `magnitude`, or `inputs` where it was multiplied by what inputs are like
    folder : holds `recipe.json`, and `weights.safetensors` if real weights were pruned
    """

    result: TargetResult
    gpu: str
    spec_hash: str
    engine: str
    dtype: str
    source: str
    targets: Targets
    folder: Path | None
    has_weights: bool
    workload: str | None = None
    offered: str = "everything"
    others: tuple["PrunedModel", ...] = ()
    runtime: str = "engine"
    criterion: str = "magnitude"

    @classmethod
    def of(
        cls,
        result: TargetResult,
        targets: Targets,
        *,
        weights: Source,
        engine: Engine,
        dtype: str,
        folder: Path | None,
        workload: str | None = None,
        runtime: str = "engine",
        criterion: str = "magnitude",
    ) -> Self:
        """A result with what it was found for: `weights`, a file, matrices or a standard model, on a GPU."""
        return cls(
            result=result,
            gpu=engine.gpu.name,
            spec_hash=engine.gpu.fingerprint,
            engine=engine.name,
            dtype=dtype,
            source=str(path_of(weights) or "arrays"),
            targets=targets,
            folder=folder,
            workload=workload,
            runtime=runtime,
            criterion=criterion,
            has_weights=not (isinstance(weights, str) and weights in WORKLOADS),
        )

    def plot(self) -> "Figure":
        """Importance kept at other times, and here, as a new Matplotlib figure."""
        from prunecast.codesign.pictures import draw_front

        result = self.result
        return draw_front(
            [point.seconds / result.dense_seconds for point in result.front],
            [point.retained_importance for point in result.front],
            (result.seconds / result.dense_seconds, result.retained_importance),
        )

    def cells(self) -> list[list[str]]:
        """The layers as texts, a heading first."""
        head = ["layer", "M", "K", "pattern", "kernel", "removed", "kept", "us", "over dense"]
        return [
            head,
            *(
                [
                    *(layer.layer, f"{layer.m}", f"{layer.k}", layer.pattern, layer.kernel),
                    *(f"{layer.removed:.3f}", f"{layer.retained_importance:.3f}"),
                    *(f"{1e6 * layer.seconds:.2f}", f"{layer.speedup:.2f}x"),
                ]
                for layer in self.result.layers
            ),
        ]

    def _repr_html_(self) -> str:
        return cells_html(self.cells())

    def __str__(self) -> str:
        return cells_text(self.cells(), words=("layer", "pattern", "kernel"))

    def document(self) -> dict[str, Any]:
        """The JSON object of `recipe.json`."""
        result = self.result
        return {
            "schema_version": SCHEMA_VERSION,
            "version": tool_version(),
            "source": self.source,
            "weights": WEIGHTS if self.has_weights else None,
            "gpu": self.gpu,
            "spec_hash": self.spec_hash,
            "engine": self.engine,
            "dtype": self.dtype,
            "criterion": self.criterion,
            "offered": self.offered,
            "workload": self.workload,
            "runtime": self.runtime,
            "targets": {name: getattr(self.targets, name) for name in Targets.__slots__},
            "seconds": result.seconds,
            "dense_seconds": result.dense_seconds,
            "retained_importance": result.retained_importance,
            "sparsity": result.sparsity,
            "layers": [layer.row() for layer in result.layers],
            "front": [point._asdict() for point in result.front],
        }


def prune_model(
    weights: Source,
    targets: Targets,
    *,
    gpu: str | GpuSpec,
    tokens: int | None = None,
    out: str | Path | None = None,
    engine: str = "simulator",
    state: str = "burst",
    launch: str = "graph",
    dtype: str = "fp16",
    families: Sequence[str] = FAMILIES,
    caps: Mapping[str, float] | None = None,
    most_sparsity: float = MOST_SPARSITY,
    batch: int = 8,
    workload: str | None = None,
    runtime: str = "engine",
    solutions: int = 1,
    calibrate: str | Path | None = None,
    target: Sequence[str] = (),
    ignore: Sequence[str] = (),
    progress: Progress = silent,
) -> PrunedModel:
    """Give every layer the pattern, density and kernel with which the model meets its targets.

    Retained importance (the kept sum of magnitudes over all layers) is maximised. A layer that no sparse
    kernel makes faster stays dense.

    Parameters
    ----------
    weights : a file, matrices by name, or one of `graph.WORKLOADS`, with heavy-tailed random weights. For
        these and for `.onnx` the whole graph is counted
    targets : what the model must meet
    tokens : N of every layer, None for 4096; for a standard transformer tokens per sequence and for `.onnx`
        the free sizes of inputs but the first, None for 512
    out : a folder, made if there is none; None writes nothing
    engine : predicts the layers in the end; the search itself uses the closed-form model
    families : what layers are offered beside dense: `atp`, `guided`, `shuffled`,
        `dense-block`, `2:4`, `tvw`
    caps, most_sparsity : most sparsity by layer, and of layers that `caps` does not name
    batch : images or sequences of a standard model; the free first size of inputs of `.onnx`
    workload : in place of tokens and batch, as `prefill:2048` or `decode:16@4096`, or a mix of them, whose
        mean time counts; see `graph.parse_workload`
    runtime : what runs a standard model: `engine`, or `torch`, whose layers have patterns of tiles alone
    solutions : how many that differ are looked for; the second is written to `out`-2, and so on
    calibrate : file of mean squares of each layer's inputs, by whose roots magnitudes are multiplied
    target, ignore : layers to take and to leave out

    Raises
    ------
    BadInput : input that cannot be used, a target below the floor, or a folder that cannot be written; then
        nothing is written
    """
    if solutions < 1:
        raise BadInput(f"solutions must be at least 1, got {solutions}")
    folder = None if out is None else checked_folder(Path(out), weights)
    spec = load_gpu(gpu) if isinstance(gpu, str) else gpu
    layers = layers_to_prune(weights, tokens, batch, target, ignore, workload, runtime)
    if calibrate is not None:
        layers = _calibrated(layers, weights, calibrate)
    search = ModelSearch(
        layers=layers,
        engine=Engine(name=engine, gpu=spec, state=state, launch=launch, progress=progress),
        quick=Engine(name="model", gpu=spec, state=state, launch=launch),
        dtype=dtype,
        families=families_of(runtime, families),
        caps=caps or {},
        most_sparsity=most_sparsity,
        progress=progress,
    )
    search.prepare()
    found = [
        replace(
            PrunedModel.of(
                solution.result,
                targets,
                weights=weights,
                engine=search.engine,
                dtype=dtype,
                folder=None if folder is None else _numbered(folder, number),
                workload=workload,
                runtime=runtime,
                criterion="magnitude" if calibrate is None else "inputs",
            ),
            offered=solution.offered,
        )
        for number, solution in enumerate(different_solutions(search, targets, solutions), 1)
    ]
    for pruned in reversed(found):
        if pruned.folder is not None:
            masks = masks_of(search, pruned.result) if pruned.has_weights else None
            write_folder(checked_folder(pruned.folder, weights), weights, masks, pruned.document())
    return replace(found[0], others=tuple(found[1:]))


def _numbered(folder: Path, number: int) -> Path:
    """Where a solution is written."""
    return folder if number == 1 else folder.with_name(f"{folder.name}-{number}")


def layers_to_prune(
    weights: Source,
    tokens: int | None,
    batch: int,
    target: Sequence[str],
    ignore: Sequence[str],
    workload: str | None = None,
    runtime: str = "engine",
) -> LayerSet:
    """The layers of a file, of matrices by name, of an ONNX file or of a standard model. Raises BadInput."""
    check_choice("runtime", runtime, RUNTIMES)
    if tokens is not None and (tokens < 1 or workload is not None):
        raise BadInput(f"tokens must be at least 1, and left out with a workload, got {tokens}")
    passes = None if workload is None else parse_workload(workload)
    if isinstance(weights, str) and weights in WORKLOADS:
        runs = passes or (Pass(batch, SEQUENCE if tokens is None else tokens),)
        graphs = [load_pass(weights, run, runtime) for run in runs]
        shares = [run.share for run in runs]
        return layers_of_workload(*graphs, shares=shares, target=target, ignore=ignore)
    if isinstance(weights, str | Path) and Path(weights).suffix.lower() == ".onnx":
        check_has_form(runtime, weights)
        if passes is not None:
            raise BadInput(
                f"{weights}: an .onnx file says its sizes: wanted --tokens or --batch, got {workload}"
            )
        return layers_of_onnx(weights, batch=batch, tokens=tokens, target=target, ignore=ignore)
    passes = passes or (Pass(1, TOKENS if tokens is None else tokens),)
    shape = checkpoint_shape(weights)
    if isinstance(weights, str | Path) and shape is not None:
        found = layers_of_checkpoint(
            Path(weights), shape, passes, target=target, ignore=ignore, runtime=runtime
        )
        if found is not None:
            return found
    check_has_form(runtime, weights)
    return layers_of_file(weights, passes, target=target, ignore=ignore)


def _calibrated(layers: LayerSet, weights: Source, path: str | Path) -> LayerSet:
    if isinstance(weights, str) and weights in WORKLOADS:
        raise BadInput(f"calibrate is of trained weights, {weights} has random ones")
    known, magnitudes = read_calibration(path), layers.importance
    for name, (_, k) in layers.shapes.items():
        known.weigh(name, np.zeros((1, k), np.float32))  # says what is missing before the search
    return layers._replace(importance=lambda name: known.weigh(name, magnitudes(name)))


def families_of(runtime: str, families: Sequence[str]) -> Sequence[str]:
    """The families of patterns whose layers the runtime can run."""
    return [family for family in families if runtime == "engine" or family in TILE_FAMILIES]


def masks_of(search: ModelSearch, result: TargetResult) -> dict[str, MaskArray]:
    """What the layers of a result keep, those that stay dense left out."""
    return {
        layer.layer: search.mask(layer.layer, layer.pattern, layer.sparsity, layer.kernel)
        for layer in result.layers
        if layer.pattern != "dense"
    }
