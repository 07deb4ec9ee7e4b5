"""`RemovedParts`: the layers, heads, widths and experts of a checkpoint that are kept, and their tensors.

A part is removed with all its weights: rows of the products that write it and columns of the products that
read it. Widths are the features between the products of a feed-forward part. The saliency of a part is the
summed importance of its weights (magnitude, or magnitude times the root mean square of the input from a
calibration file), so that removed parts and pruned weights are compared on one scale.

For experts, a calibration file may contain another saliency, which is then used: the mean norm of each
expert's weighted output over the tokens that are routed to it (REAP: M. Lasby et al., "REAP the Experts",
2025). `prunecast.torch.expert_saliency` gathers it.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.patterns import weigh
from prunecast.patterns.calibration import Calibration
from prunecast.patterns.sources.roles import expert_names
from prunecast.patterns.sources.stored_tensor import StoredTensor, failures_named
from prunecast.workload.graph.config import CONFIG, LAYER, node_of
from prunecast.workload.graph.removal import Removal, counts_of, kept_of_layer, key_groups, step_of, without
from prunecast.workload.graph.shapes import LayerSizes, Transformer

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Tensors = Mapping[str, StoredTensor]

_EXPERT = re.compile(r"(?P<before>\.experts\.)(?P<number>\d+)(?=\.)")
UNCUT = ".sinks"
"""Ending of the names of vectors with one number for each head (gpt-oss). They cannot be cut."""


class Cut(NamedTuple):
    """Assignment of the rows (axis 0) or columns (axis 1) of a matrix to parts, such as heads.

    The axis is divided into segments, such as the queries, keys and values of a joint product. Segment i has
    `sizes[i]` consecutive rows (or columns) for each part.
    """

    part: str
    axis: int
    sizes: tuple[int, ...]

    def places(self, kept: IntArray, count: int) -> IntArray:
        """Return the indices of the rows (axis 0) or columns that belong to kept parts.

        Parameters
        ----------
        kept : (kept parts,) numbers of the parts to keep, from 0
        count : number of parts of the layer before removal
        """
        starts = np.cumsum([0, *self.sizes[:-1]]) * count
        rows = [
            (start + kept[:, None] * size + np.arange(size)).ravel()
            for start, size in zip(starts, self.sizes, strict=True)
        ]
        return np.concatenate(rows)

    def sums(self, importance: npt.NDArray[np.floating], count: int) -> FloatArray:
        """Return the sum of the importance (M, K) over each part, shape (count,)."""
        along = importance.sum(axis=1 - self.axis, dtype=np.float64)
        ends = np.cumsum([size * count for size in self.sizes])[:-1]
        found = np.zeros(count)
        for own in np.split(along, ends):
            found += own.reshape(count, -1).sum(axis=1)
        return found


def cuts_of(shape: Transformer) -> dict[str, Cut]:
    """Return name of a matrix in a layer -> its cut, for matrices of heads, widths and experts.

    The rows of a joint product `qkv` are all queries, then all keys, then all values. If they are ordered by
    head (`Transformer.qkv_by_head`), the queries, the key and the value of a key head are one range of rows.
    """
    key = shape.width // shape.heads
    query = shape.heads // key_groups(shape) * key
    return {
        "query": Cut("heads", 0, (query,)),
        "key": Cut("heads", 0, (key,)),
        "value": Cut("heads", 0, (key,)),
        "qkv": Cut("heads", 0, (query + 2 * key,) if shape.qkv_by_head else (query, key, key)),
        "output": Cut("heads", 1, (query,)),
        "gate": Cut("widths", 0, (1,)),
        "up": Cut("widths", 0, (1,)),
        "gate_up": Cut("widths", 0, (1, 1)),
        "down": Cut("widths", 1, (1,)),
        "router": Cut("experts", 0, (1,)),
    }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RemovedParts:
    """Parts of a checkpoint that are kept when others are removed.

    Parameters
    ----------
    before, after : sizes of the model before and after removal
    removals : the removed share of each kind of part
    layers : indices of the kept layers
    kept : (layer, part) -> sorted indices of the kept parts of this layer; without an entry all are kept
    criterion : part -> `magnitude`, `inputs` (magnitude weighted by input statistics) or `reap`
    """

    before: Transformer
    after: Transformer
    removals: tuple[Removal, ...]
    layers: tuple[int, ...]
    kept: Mapping[tuple[int, str], IntArray]
    criterion: Mapping[str, str]

    def rows(self) -> list[dict[str, object]]:
        """Return the entries of a recipe, one for each kind of removed part."""
        return [
            {
                "part": removal.part,
                "share": removal.share,
                "criterion": self.criterion[removal.part],
                "before": counts_of(self.before)[removal.part],
                "after": [self.kept[layer, removal.part].size for layer in self.layers]
                if removal.is_uneven
                else counts_of(self.after)[removal.part],
                "kept": list(self.layers)
                if removal.part == "layers"
                else {str(layer): self.kept[layer, removal.part].tolist() for layer in self.layers},
            }
            for removal in self.removals
        ]

    def source_names(self, tensors: Tensors) -> dict[str, str]:
        """Return name in the smaller model -> name in the checkpoint, for all tensors that are kept.

        Raise BadInput for a tensor that cannot be cut.
        """
        found = {}
        for name, tensor in tensors.items():
            renamed = self._renamed(name)
            if renamed is not None:
                _check_known(name, tensor, self)
                found[renamed] = name
        return found

    def index_of(self, name: str, tensor: StoredTensor) -> tuple[int, IntArray] | None:
        """Return the axis along which removal cuts a tensor, and the indices that stay; None for no cut.

        Weights and biases of all experts of a layer may be stacked in one tensor, along axis 0.
        """
        layer = layer_of(name)
        if layer is None:
            return None
        is_stacked = ".experts." in name and _EXPERT.search(name) is None
        if is_stacked and tensor.shape[:1] == (self.before.experts,):
            kept = self.kept.get((layer, "experts"))
            return None if kept is None else (0, kept)
        cut = cut_of(name, self.before)
        kept = None if cut is None else self.kept.get((layer, cut.part))
        if cut is None or kept is None or cut.axis >= len(tensor.shape):
            return None
        return cut.axis, cut.places(kept, counts_of(self.before)[cut.part])

    def tensors(self, tensors: Tensors) -> dict[str, StoredTensor]:
        """Return the tensors of the smaller model by name. Their `load` reads and cuts them."""
        found = {}
        for renamed, name in self.source_names(tensors).items():
            index = self.index_of(name, tensors[name])
            found[renamed] = tensors[name] if index is None else taken(tensors[name], *index)
        return found

    def calibration(self, known: Calibration, tensors: Tensors) -> Calibration:
        """Return the input statistics of the layers of the smaller model."""
        columns = {}
        for renamed, name in self.source_names(tensors).items():
            index = self.index_of(name, tensors[name])
            columns[renamed] = (name, None if index is None or index[0] != 1 else index[1])
        return known.of_columns(columns)

    def _renamed(self, name: str) -> str | None:
        layer = layer_of(name)
        if layer is None:
            return name
        if layer not in self.layers:
            return None
        name = LAYER.sub(rf"\g<before>{self.layers.index(layer)}", name, count=1)
        expert, kept = _EXPERT.search(name), self.kept.get((layer, "experts"))
        if expert is None or kept is None:
            return name
        place = np.flatnonzero(kept == int(expert["number"]))
        return _EXPERT.sub(rf"\g<before>{place[0]}", name, count=1) if place.size else None


def layer_of(name: str) -> int | None:
    """Return the number of the layer that a tensor belongs to; None outside of layers."""
    match = LAYER.search(name)
    return None if match is None else int(match["number"])


def cut_of(name: str, shape: Transformer) -> Cut | None:
    """Return the cut of a matrix or of its bias; None for any other tensor."""
    node = node_of(f"{name.removesuffix('.bias')}.weight" if name.endswith(".bias") else name)
    part = "" if node is None else node.rpartition(".")[2]
    in_expert = node is not None and ".experts." in node
    return None if in_expert else cuts_of(shape).get(part)


def taken(tensor: StoredTensor, axis: int, index: IntArray) -> StoredTensor:
    """Return a tensor reduced to the rows (axis 0) or columns (axis 1) `index`."""
    shape = list(tensor.shape)
    shape[axis] = index.size
    return replace(
        tensor,
        shape=tuple(shape),
        load=lambda: np.take(tensor.load(), index, axis=axis),
        stored=None if tensor.stored is None else np.take(tensor.stored, index, axis=axis),
        as_stored=None if tensor.as_stored is None else taken(tensor.as_stored, axis, index),
    )


def choose_parts(
    path: Path,
    tensors: Tensors,
    shape: Transformer,
    removals: tuple[Removal, ...],
    known: Calibration | None = None,
) -> RemovedParts:
    """Choose the parts to keep: those of highest saliency.

    Parameters
    ----------
    path : path of the checkpoint, used in messages
    tensors : tensors of the checkpoint by name
    shape : sizes of the model
    removals : the share to remove of each kind of part
    known : input statistics and, optionally, saliencies of experts; None to use magnitudes

    Raises
    ------
    BadInput : parts that cannot be removed (see `removal.without`), tensors that do not fit the sizes, no
        tensor of a layer, or missing statistics
    """
    missing = set(range(shape.layers)) - {layer_of(name) for name in tensors}
    if missing:
        raise BadInput(
            f"{path}: no tensor is of layer {min(missing)}, but its {CONFIG} has {shape.layers} layers"
        )
    after, counts = without(str(path), shape, removals), counts_of(shape)
    has_reap = known is not None and any(known.expert_saliency(i) is not None for i in range(shape.layers))
    weighed = "magnitude" if known is None else "inputs"
    criterion = {each.part: weighed for each in removals}
    if has_reap and "experts" in criterion:
        criterion["experts"] = "reap"
    parts = set(criterion) - {part for part, name in criterion.items() if name == "reap"}
    sums = _saliencies(path, tensors, shape, parts, known)
    layers = list(range(shape.layers))
    if "layers" in criterion:
        layers = _best(sums["layers"][0], after.layers).tolist()
    kept: dict[tuple[int, str], IntArray] = {}
    for removal in (each for each in removals if each.part != "layers"):
        part = removal.part
        saliency = [
            sums[part][layer] if part in parts else _reap(known, layer, counts[part]) for layer in layers
        ]
        left = [kept_of_layer(str(path), shape, removal)] * len(layers)
        if removal.is_uneven:
            left = uneven_counts(np.array(saliency), sum(left), step_of(part, shape))
        for layer, own, count in zip(layers, saliency, left, strict=True):
            kept[layer, part] = _best(own, count)
    return RemovedParts(
        before=shape,
        after=with_layer_sizes(after, [each.part for each in removals if each.is_uneven], layers, kept),
        removals=removals,
        layers=tuple(layers),
        kept=kept,
        criterion=criterion,
    )


def uneven_counts(saliency: FloatArray, total: int, step: int) -> list[int]:
    """Return the number of parts to keep in each layer, at least `step`.

    The counts keep the parts of highest saliency in the whole model.

    Parameters
    ----------
    saliency : saliency of each part, shape (layers, parts)
    total : number of parts to keep, summed over all layers
    step : a layer keeps a multiple of this number of parts
    """
    blocks = -np.sort(-saliency, axis=1).reshape(len(saliency), -1, step).sum(axis=2)
    blocks[:, 0] = np.inf
    chosen = np.argsort(-blocks.ravel(), kind="stable")[: total // step]
    counts = step * np.bincount(chosen // blocks.shape[1], minlength=len(saliency))
    return [int(count) for count in counts]


def with_layer_sizes(
    shape: Transformer, parts: list[str], layers: list[int], kept: Mapping[tuple[int, str], IntArray]
) -> Transformer:
    """Return the sizes of a model whose layers keep different numbers of the kinds of part in `parts`.

    Parameters
    ----------
    shape : sizes of the model after even removals, which are returned if `parts` is empty
    parts : kinds of part that were removed unevenly, `widths` or `heads`
    layers : indices of the kept layers in the checkpoint
    kept : (layer, part) -> indices of the kept parts of this layer
    """
    sizes = []
    for place, layer in enumerate(layers if parts else []):
        own = shape.layer_shape(place).own_sizes
        if "widths" in parts:
            own = own._replace(feed_forward=kept[layer, "widths"].size)
        if "heads" in parts:
            groups = kept[layer, "heads"].size
            own = LayerSizes(own.heads // own.key_heads * groups, groups, own.feed_forward)
        sizes.append(own)
    return replace(shape, layer_sizes=tuple(sizes))


def _best(saliency: FloatArray, count: int) -> IntArray:
    """Return the sorted indices of the `count` highest values; among equal values, the first ones."""
    return np.sort(np.argsort(-saliency, kind="stable")[:count])


def _reap(known: Calibration | None, layer: int, experts: int) -> FloatArray:
    saliency = None if known is None else known.expert_saliency(layer)
    if saliency is None or saliency.shape != (experts,):
        got = "none" if saliency is None else saliency.shape
        raise BadInput(f"calibrate: wanted saliencies of the {experts} experts of layer {layer}, got {got}")
    return saliency


def _saliencies(
    path: Path, tensors: Tensors, shape: Transformer, parts: set[str], known: Calibration | None
) -> dict[str, FloatArray]:
    """Return part -> summed importance, shape (layers, parts of a layer); shape (1, layers) for `layers`."""
    counts = counts_of(shape)
    sums = {part: np.zeros((shape.layers, counts[part])) for part in parts - {"layers"}}
    sums["layers"] = np.zeros((1, shape.layers))
    for name, layer, cut, importance in _matrices(path, tensors, shape, parts, known):
        sums["layers"][0, layer] += importance.sum(dtype=np.float64)
        expert = _EXPERT.search(name)
        if expert is not None and "experts" in parts:
            sums["experts"][layer, int(expert["number"])] += importance.sum(dtype=np.float64)
        elif cut is not None and cut.part in parts:
            sums[cut.part][layer] += cut.sums(importance, counts[cut.part])
    return sums


def _matrices(
    path: Path, tensors: Tensors, shape: Transformer, parts: set[str], known: Calibration | None
) -> Iterator[tuple[str, int, Cut | None, npt.NDArray[np.floating]]]:
    """Yield name, layer, cut and importance (M, K) of each matrix that belongs to one of `parts`.

    A tensor of all experts of a layer is yielded expert by expert.
    """
    for name, tensor in tensors.items():
        layer, cut = layer_of(name), cut_of(name, shape)
        owns = expert_names(name, tensor)
        is_expert = bool(owns) or _EXPERT.search(name) is not None
        part = "experts" if is_expert else "" if cut is None else cut.part
        is_matrix = bool(owns) or (len(tensor.shape) == 2 and node_of(name) is not None)
        if layer is None or not is_matrix or not ("layers" in parts or part in parts):
            continue
        with failures_named(path, name):
            array = tensor.load()
        for own, matrix in zip(owns, array, strict=True) if owns else [(name, array)]:
            importance = weigh(own, matrix)
            yield own, layer, cut, importance if known is None else known.weigh(own, importance)


def _check_known(name: str, tensor: StoredTensor, removed: RemovedParts) -> None:
    """Raise BadInput for a tensor that cannot be cut, or whose size contradicts the configuration."""
    if name.endswith(UNCUT) and any(part == "heads" for _, part in removed.kept):
        raise BadInput(f"{name!r} belongs to heads, which are not removed from such a model")
    cut, counts = cut_of(name, removed.before), counts_of(removed.before)
    if cut is None or len(tensor.shape) > 2 or cut.axis >= len(tensor.shape):
        return
    wanted = sum(cut.sizes) * counts[cut.part]
    if counts[cut.part] and tensor.shape[cut.axis] != wanted:
        what = "columns" if cut.axis else "rows"
        raise BadInput(f"{name!r} must have {wanted} {what} by its config.json, got {tensor.shape[cut.axis]}")
