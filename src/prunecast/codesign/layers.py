"""Layers from whatever a caller has: a file, one matrix, or named matrices."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.codesign.graph import WORKLOADS
from prunecast.codesign.skipped import Skipped
from prunecast.errors import BadInput
from prunecast.patterns.sources import FilterShape, Layer, read_weights
from prunecast.patterns.sources.selection import select_names
from prunecast.patterns.sources.stored_tensor import shape_text

__all__ = ["ONLY_LAYER", "LoadedLayers", "Source", "load_layers"]

Source = str | Path | Mapping[str, npt.NDArray[Any]] | npt.NDArray[Any]
"""Path of a weight file, a mapping of names to matrices (M, K) or filters (out, in, kh, kw), or one of these,
which is named `weights`."""

ONLY_LAYER = "weights"

_DTYPES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp32"}


class LoadedLayers(NamedTuple):
    """Layers by name, in order, and what was left out."""

    layers: dict[str, Layer]
    skipped: tuple[Skipped, ...]


def load_layers(weights: Source, *, target: Sequence[str] = (), ignore: Sequence[str] = ()) -> LoadedLayers:
    """Read the layers that `target` and `ignore` select.

    Raises
    ------
    BadInput : unreadable file, a selector without a match, or an array that is no finite matrix of floats
    """
    if isinstance(weights, str | Path):
        _check_is_no_model_name(str(weights))
        found = read_weights(weights, target, ignore)
        skipped = [Skipped(layer=name, kernel=None, reason=reason) for name, reason in found.skipped.items()]
        return LoadedLayers(dict(found.layers), tuple(skipped))
    named = weights if isinstance(weights, Mapping) else {ONLY_LAYER: weights}
    chosen = select_names(named, target, ignore)
    if not chosen:
        raise BadInput(f"wanted at least one matrix, got none of {len(named)} after target and ignore")
    return LoadedLayers({name: _layer(name, np.asarray(named[name])) for name in chosen}, ())


def _check_is_no_model_name(weights: str) -> None:
    """Standard models have no file; say what takes them, and what a misspelt one may mean."""
    beginning = [name for name in WORKLOADS if name.startswith(weights) and len(weights) > 2]
    near = beginning or get_close_matches(weights, WORKLOADS, n=1, cutoff=0.8)
    if not near or Path(weights).exists():
        return
    if weights in WORKLOADS:
        raise BadInput(
            f"wanted a file of weights, got the standard model {weights}: `prunecast prune {weights} "
            f"--latency 75%` and `prunecast sweep --workload {weights}` take its name"
        )
    raise BadInput(f"{weights}: no such file; nearest standard model: {', '.join(near)}")


def _layer(name: str, array: npt.NDArray[Any]) -> Layer:
    if array.dtype.name not in _DTYPES:
        raise BadInput(f"{name!r} must be one of {', '.join(_DTYPES)}, got {array.dtype.name}")
    if array.ndim not in (2, 4) or array.size == 0:
        raise BadInput(
            f"{name!r} must be a matrix (M, K) or filters (out, in, kh, kw), got shape {array.shape}"
        )
    filters, note = None, None
    if array.ndim == 4:
        filters = FilterShape(*array.shape[1:])
        matrix = array.reshape(array.shape[0], -1)
        note = f"conv {shape_text(array.shape)} reshaped to {shape_text(matrix.shape)}"
        array = matrix
    stored = np.ascontiguousarray(array, np.float32 if array.dtype == np.float64 else array.dtype)
    if not np.isfinite(stored).all():
        raise BadInput(f"{name!r} must be finite, got NaN or Inf among its {array.size} weights")
    return Layer(name=name, weights=stored, dtype=_DTYPES[array.dtype.name], note=note, filters=filters)
