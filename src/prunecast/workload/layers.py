"""Layers from a file, one matrix, or named matrices."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput, short_text
from prunecast.patterns.calibration import Calibration, read_calibration
from prunecast.patterns.sources import Layer, WeightSet
from prunecast.patterns.sources.read import layers_among
from prunecast.patterns.sources.readers import files_read, open_tensors
from prunecast.patterns.sources.roles import seen_as_products, transposed
from prunecast.patterns.sources.stored_tensor import StoredTensor
from prunecast.patterns.sources.torch_file import array_of
from prunecast.patterns.sources.weight_set import select_names
from prunecast.workload.graph import WORKLOADS
from prunecast.workload.graph.config import (
    CONFIG,
    check_readable,
    check_sizes,
    checkpoint_shape,
    config_of,
    node_of,
)
from prunecast.workload.graph.names import is_hub_name, known_name, near_names, nearest_or_some, why_uncounted
from prunecast.workload.graph.removal import Removal, counts_of, parse_removals, without
from prunecast.workload.graph.shapes import Transformer, transformers
from prunecast.workload.removed_parts import RemovedParts, choose_parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A note on a part that is not predicted: a tensor that is no layer, or a kernel that cannot run a layer.

    Parameters
    ----------
    layer : name of the tensor, or of another part of the model
    reason : why it was skipped, in one line
    kernel : name of the kernel that cannot run the layer; None if the whole tensor was skipped
    weights : number of elements of a tensor that may be the weight of a product but is not predicted; else 0
    """

    layer: str
    reason: str
    kernel: str | None = None
    weights: int = 0

    def row(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return {"layer": self.layer, "kernel": self.kernel, "reason": self.reason}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Transposed:
    """Weights of which some matrices are stored as (K, M).

    This class is needed if neither the name nor the bias of such a matrix reveals its layout.

    Parameters
    ----------
    weights : any `Source`
    names : selectors of the transposed matrices: exact names, or `re:` followed by a regular expression
    """

    weights: "Source"
    names: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Removed:
    """A model without some of its layers, heads, feed-forward widths or experts.

    Parameters
    ----------
    weights : name or `config.json` of a standard model, or a Hugging Face folder
    parts : parts to remove and their shares, such as `heads:0.25`, see `graph.removal`
    calibrate : calibration file that weights the saliency of the parts of a folder

    Raises
    ------
    BadInput : an entry of `parts` is malformed, or a part is listed twice
    """

    weights: str | Path
    parts: Sequence[str]
    calibrate: str | Path | None = None
    _chosen: dict[str, RemovedParts] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        parse_removals(self.parts)

    @property
    def removals(self) -> tuple[Removal, ...]:
        """The parts to remove from the model, parsed from `parts`."""
        return parse_removals(self.parts)

    def whole(self) -> Transformer:
        """Return the sizes of the model before removal.

        Raises
        ------
        BadInput : `weights` is not a transformer of known sizes
        """
        path, known = Path(self.weights), known_name(str(self.weights))
        shape = checkpoint_shape(path) if path.exists() else transformers().get(known or "")
        if shape is None:
            if known is None:
                _check_is_no_model_name(str(path))
            raise BadInput(
                f"{path}: remove is of a transformer: a standard model, or a folder of known model_type"
            )
        return shape

    def sizes(self) -> Transformer:
        """Return the sizes of the smaller model. Raise BadInput for parts that cannot be removed."""
        found, config = without(str(self.weights), self.whole(), self.removals), Path(self.weights) / CONFIG
        uneven = next((each.text for each in self.removals if each.is_uneven), None)
        if uneven is not None and not config.is_file():
            raise BadInput(f"{self.weights}: {uneven} is of a Hugging Face folder, whose weights are read")
        if config.is_file():
            has_fewer_widths = any(each.part == "widths" for each in self.removals)
            check_sizes(config, found, has_fewer_widths=has_fewer_widths)
        return found

    def chosen(self) -> RemovedParts:
        """Return the parts of a Hugging Face folder that are kept. Only the first call reads the weights.

        Raises
        ------
        BadInput : `weights` is not a Hugging Face folder of a known model, or the parts cannot be removed
        """
        if "chosen" not in self._chosen:
            path, shape = Path(self.weights), self.whole()
            if not (path / CONFIG).is_file():
                raise BadInput(f"{path}: wanted a Hugging Face folder, whose weights are read")
            self.sizes()
            check_readable(path)
            known = None if self.calibrate is None else read_calibration(self.calibrate)
            self._chosen["chosen"] = choose_parts(path, open_tensors(path), shape, self.removals, known)
        return self._chosen["chosen"]

    def rows(self) -> list[dict[str, Any]]:
        """Return the entries of a recipe, see `RemovedParts.rows`.

        For random weights, the entries contain the numbers of parts but not which parts are kept.
        """
        if (Path(self.weights) / CONFIG).is_file():
            return self.chosen().rows()
        before, after = counts_of(self.whole()), counts_of(self.sizes())
        return [
            {**each._asdict(), "criterion": "none", "before": before[each.part], "after": after[each.part]}
            for each in self.removals
        ]

    def tensors(self) -> dict[str, StoredTensor]:
        """Return the tensors of the smaller model by their names in it."""
        return self.chosen().tensors(open_tensors(Path(self.weights)))


@runtime_checkable
class Module(Protocol):
    """A torch module, or another object that returns its tensors by name."""

    def state_dict(self) -> Mapping[str, Any]:
        """Return the tensors by name."""


Source = str | Path | Mapping[str, npt.NDArray[Any]] | npt.NDArray[Any] | Transposed | Removed | Module
"""Path of a weight file, a mapping of names to matrices (M, K) or filters (out, in, kh, kw) such as the state
dictionary of a torch module, the module, or one matrix, which gets the name `weights`. Masked arrays are
refused with a TypeError, because a masked weight may be pruned or unknown: `array.filled(0)` if pruned."""

ONLY_LAYER = "weights"
KEPT_DENSE = ("stem", "classifier", "head", "fc8", "project_in", "project_out")
"""First and last layers of the standard models, which are customarily not pruned."""
ENDS_DENSE = (".router", ".key_b")
"""Endings of products that are not pruned either: routers choose the experts of a token, and the product that
expands latent keys (MLA) is absorbed into queries and outputs when tokens are generated."""
NAME_IT = "customarily not pruned: name it with target"


class LoadedLayers(NamedTuple):
    """Layers of a source by name, the tensors that were skipped, and all stored tensors by name."""

    layers: dict[str, Layer]
    skipped: tuple[Skipped, ...]
    stored: Mapping[str, StoredTensor]


def is_standard(source: Source) -> bool:
    """Return True if a source is the name of a standard model or the path of a `config.json`."""
    source = source.weights if isinstance(source, Removed) else source
    if isinstance(source, str | Path) and Path(source).name == CONFIG and Path(source).exists():
        return True
    return isinstance(source, str) and not Path(source).exists() and known_name(source) is not None


def has_model(source: Source) -> bool:
    """Return True if the architecture of a source is known, by a standard name or by a known model type."""
    return is_standard(source) or shape_of(source) is not None


def is_onnx(source: Source) -> bool:
    """Return True if a source is an ONNX file.

    Raise BadInput for a `Transposed` one, since the graph in the file defines the layout of its weights.
    """
    path = path_of(source)
    if path is None or path.suffix.lower() != ".onnx":
        return False
    if isinstance(source, Transposed):
        raise BadInput(f"{path}: an .onnx file says which weights are (K, M): leave out --transpose")
    return True


def load_layers(weights: Source, *, target: Sequence[str] = (), ignore: Sequence[str] = ()) -> LoadedLayers:
    """Read the layers that `target` and `ignore` select.

    Without `target`, layers of a model that are customarily not pruned are skipped, unless no others would be
    left.

    Raises
    ------
    BadInput : an unreadable file, a selector without a match, or an array that is not a finite matrix of
        floats
    """
    path = path_of(weights)
    named = weights.weights if isinstance(weights, Removed | Transposed) else weights
    if isinstance(named, str | Path):
        if not str(named):
            raise BadInput("wanted a file of weights or the name of a standard model, got an empty name")
        _check_is_no_model_name(str(named))
        if (Path(named) / CONFIG).is_file():
            check_readable(Path(named))
    has_model = not target and config_of(path or weights) is not None
    stored = stored_arrays(weights)
    loaded = _loaded(layers_among(path or Path("weights"), stored, target, ignore), stored)
    if not has_model:
        return loaded
    pruned = {name: layer for name, layer in loaded.layers.items() if is_pruned(node_of(name) or name)}
    if not pruned:
        return loaded
    left = (Skipped(layer=name, reason=NAME_IT) for name in loaded.layers if name not in pruned)
    return LoadedLayers(pruned, (*loaded.skipped, *left), loaded.stored)


def is_pruned(name: str) -> bool:
    """Return True if the product `name` of a standard model is customarily pruned."""
    return name not in KEPT_DENSE and not name.endswith(ENDS_DENSE)


def path_of(weights: Source) -> Path | None:
    """Return the path of a source (or a model name as a path); None for arrays and modules."""
    while isinstance(weights, Transposed | Removed):
        weights = weights.weights
    return Path(weights) if isinstance(weights, str | Path) else None


def name_of(weights: Source) -> str:
    """Return the name of a standard model, of a file or of a folder; empty for arrays and modules."""
    path = path_of(weights)
    name = "" if path is None else path.name or path.resolve().name
    return f"{name} without {', '.join(weights.parts)}" if isinstance(weights, Removed) else name


def files_of(weights: Source) -> Iterator[Path]:
    """Yield the files and folders that loading the weights reads, so that no output overwrites them.

    Nothing is yielded for arrays and modules.

    Raises
    ------
    BadInput : an index file or a model cannot be read
    """
    path = path_of(weights)
    if path is None or not path.exists():
        return
    if str(path) in WORKLOADS:
        # For `prune` such a text is the standard model, for `predict` it is the folder
        yield from path.glob("*.safetensors")
        return
    for file in files_read(path):
        yield file
        if file.is_dir():
            yield file / CONFIG


def shape_of(weights: Source) -> Transformer | None:
    """Return the architecture, after removals, of a folder or module with a known configuration, or None."""
    return weights.chosen().after if isinstance(weights, Removed) else checkpoint_shape(weights)


def calibration_of(weights: Source, path: str | Path) -> Calibration:
    """Read the input statistics of each layer from a calibration file.

    For a `Removed` source, the result is for the layers of the smaller model. Raise BadInput for a file that
    cannot be read.
    """
    known = read_calibration(path)
    if not isinstance(weights, Removed):
        return known
    return weights.chosen().calibration(known, open_tensors(Path(weights.weights)))


def stored_arrays(weights: Source) -> dict[str, StoredTensor]:
    """Return the tensors of any `Source` by name.

    Raises
    ------
    TypeError : a name that is not a string, a masked array, or an object that is not a `Source`
    BadInput : an unreadable file, or an array that does not hold numbers
    """
    if isinstance(weights, Transposed):
        return _transposed(weights)
    if isinstance(weights, Removed):
        return weights.tensors()
    if isinstance(weights, str | Path):
        return open_tensors(Path(weights))
    if isinstance(weights, Module):
        weights = weights.state_dict()
    named = weights if isinstance(weights, Mapping) else {ONLY_LAYER: weights}
    for name in named:
        if not isinstance(name, str):
            raise TypeError(f"weights must have texts as names, got {name!r:.80} ({type(name).__name__})")
    stored = {str(name): _stored(name, array) for name, array in named.items()}
    return seen_as_products(Path("weights"), stored)


def _transposed(weights: Transposed) -> dict[str, StoredTensor]:
    stored = stored_arrays(weights.weights)
    try:
        chosen = select_names(stored, weights.names)
    except BadInput as error:
        raise BadInput(f"transpose: {error}") from error
    for name in chosen:
        if len(stored[name].shape) != 2:
            raise BadInput(f"transpose: wanted a matrix, got {len(stored[name].shape)} dimensions: {name!r}")
        stored[name] = transposed(stored[name])
    return stored


def _stored(name: str, given: Any) -> StoredTensor:
    if isinstance(given, np.ma.MaskedArray):
        raise TypeError(
            f"weights must be plain arrays, {name!r} is a masked one: array.filled(0) prunes what is masked"
        )
    if not any(hasattr(given, known) for known in ("detach", "__array__")) and not isinstance(
        given, list | tuple
    ):
        raise TypeError(f"weights must be a path or arrays of numbers, {name!r} is {short_text(given)}")
    try:
        array = array_of(given) if hasattr(given, "detach") else np.asarray(given)
    except ValueError as error:  # rows of different lengths
        raise BadInput(f"weights: {name!r} is no array: {error}") from None
    if array.dtype.hasobject:
        raise BadInput(f"{name!r} must be an array of numbers, got {array.dtype.name}")
    return StoredTensor(shape=array.shape, dtype=array.dtype.name, load=lambda: array)


def _loaded(found: WeightSet, stored: Mapping[str, StoredTensor]) -> LoadedLayers:
    skipped = [
        Skipped(layer=name, reason=reason, weights=found.skipped_weights[name])
        for name, reason in found.skipped.items()
    ]
    lookups = [
        Skipped(layer=name, reason="embedding: rows are looked up, nothing is multiplied")
        for name in found.lookups
    ]
    return LoadedLayers(dict(found.layers), (*skipped, *lookups), stored)


def check_exists(source: Source) -> None:
    """Raise BadInput if a path does not exist; the message says if it resembles a standard model's name."""
    path = path_of(source)
    if path is not None and not path.exists():
        _check_is_no_model_name(str(path))
        raise BadInput(f"{path}: no such file")


def _check_is_no_model_name(weights: str) -> None:
    """Raise BadInput for a `config.json`, and for a text that may be meant as the name of a standard model.

    Such models have no weight file.
    """
    if Path(weights).name == CONFIG:
        raise BadInput(
            f"wanted a file of weights, got {weights}, a model with random weights: `predict`, `compare` and "
            "`prune --latency` accept it"
        )
    if Path(weights).exists():
        return
    is_name, reason = known_name(weights) is not None, why_uncounted(weights)
    # Without folder and suffix, a text may be meant as the name of a model
    is_word = Path(weights).name == weights and not Path(weights).suffix
    if not (is_name or near_names(weights) or reason or is_word or is_hub_name(weights)):
        return
    if is_name:
        raise BadInput(
            f"wanted a file of weights, got the standard model {weights}: `prunecast predict {weights}`, "
            f"`prune {weights} --latency 75%` and `sweep --workload {weights}` take its name"
        )
    if reason:
        raise BadInput(f"{weights}: no such file, and as a standard model not known: {reason}")
    raise BadInput(f"{weights}: no such file; {nearest_or_some(weights)}")
