"""`read_weights`: read the prunable matrices of a file of any known format."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np

from prunecast.arguments import checked
from prunecast.errors import BadInput
from prunecast.patterns.sources.readers import open_tensors
from prunecast.patterns.sources.roles import (
    ExpertLoader,
    expert_counts,
    expert_names,
    fused_note,
    fused_parts,
    is_lookup,
    is_sidecar,
)
from prunecast.patterns.sources.stored_tensor import LARGEST_MATRIX, StoredTensor, failures_named, shape_text
from prunecast.patterns.sources.weight_set import (
    FilterShape,
    Layer,
    OneAtATime,
    WeightSet,
    check_ignored,
    listed,
    select_names,
)
from prunecast.patterns.tile_map import WeightArray

LARGEST_COUNT = 2**63
"""Largest number of elements that messages print."""
DTYPE_NAMES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp32"}
MOST_HELD = 2**30
"""Number of elements of all matrices above which each matrix is loaded again at each use."""


@checked
def read_weights(
    path: str | Path, target: str | Sequence[str] = (), ignore: str | Sequence[str] = ()
) -> WeightSet:
    """Return the weight matrices of a file.

    Convolutions (out, in, kh, kw) become matrices (out, in * kh * kw), and experts (E, M, K) become E
    matrices. Vectors are omitted and counted; other tensors are omitted with a reason. Embeddings are omitted
    too, because no matrix product uses them, unless a target names them.

    Parameters
    ----------
    path : a folder of `.safetensors` or its index, `.safetensors`, `.npz`, `.npy`, `.mtx`, `.smtx`, `.onnx`,
        or a state dictionary of torch (`.pt`, `.pth`, `.bin`, `.ckpt`)
    target : selectors of the tensors to read, by default all; see `select_names`
    ignore : selectors of tensors to omit

    Raises
    ------
    BadInput : an unreadable or unsafe file, no matrix left, a target that is not a matrix of floats, or NaN
        or Inf among the weights
    """
    file = Path(path)
    return layers_among(file, open_tensors(file), target, ignore)


def layers_among(
    file: Path, stored: Mapping[str, StoredTensor], target: str | Sequence[str], ignore: str | Sequence[str]
) -> WeightSet:
    """Return the weight matrices among the tensors of a file.

    Raises BadInput in the same cases as `read_weights`.

    Parameters
    ----------
    file : path for messages
    stored : name -> tensor
    target, ignore : as in `read_weights`
    """
    tensors, target, ignore = _expert_by_expert(stored), listed(target), listed(ignore)
    layers: dict[str, Layer] = {}
    skipped: dict[str, str] = {}
    lookups: list[str] = []
    vectors = 0
    experts = expert_counts(list(tensors))
    selected = select_names(tensors, target, ignore)
    check_ignored(tensors, ignore)
    if tensors and not selected:
        raise BadInput(
            f"{file}: wanted at least one matrix of floats, ignore leaves out all {len(tensors)} tensors"
        )
    elements = sum(tensors[name].elements for name in selected if _unusable(tensors[name]) is None)
    held = OneAtATime() if elements > MOST_HELD else None
    for name in selected:
        tensor = tensors[name]
        reason = _unusable(tensor)
        if reason is None and not target and len(tensors) > 1:
            if is_lookup(name) and len(tensor.shape) == 2:
                lookups.append(name)
                continue
            reason = "belongs to packed weights" if is_sidecar(name, tensors) else None
        if reason is None:
            layers[name] = replace(_layer(file, name, tensor, held), experts=experts.get(name))
        elif name in target or len(tensors) == 1:
            raise BadInput(f"{file}: {reason}: {name!r}")
        elif len(tensor.shape) < 2:
            vectors += 1
        else:
            skipped[name] = reason
    if not layers:
        raise BadInput(
            f"{file}: wanted at least one matrix of floats, got {_nothing(skipped, vectors, lookups)}"
        )
    return WeightSet(
        path=file,
        layers=layers,
        skipped=skipped,
        lookups=tuple(lookups),
        skipped_weights={name: tensors[name].elements for name in skipped},
        vectors=vectors,
    )


def matrix_sizes(stored: Mapping[str, StoredTensor]) -> dict[str, tuple[int, int]]:
    """Return name -> (M, K) of the tensors that `layers_among` returns as layers, from the headers only."""
    tensors = _expert_by_expert(stored)
    return {
        name: (tensor.shape[0], tensor.elements // tensor.shape[0])
        for name, tensor in tensors.items()
        if _unusable(tensor) is None
        and not is_sidecar(name, tensors)
        and not (is_lookup(name) and len(tensor.shape) == 2)
    }


def _expert_by_expert(tensors: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
    """Return the tensors with each tensor (experts, M, K) replaced by one matrix per expert."""
    found: dict[str, StoredTensor] = {}
    for name, tensor in tensors.items():
        names = expert_names(name, tensor)
        if not names:
            found[name] = tensor
            continue
        loader = ExpertLoader(tensor)
        for expert, own in enumerate(names):
            found[own] = replace(tensor, shape=tensor.shape[1:], load=partial(loader.take, expert))
    return found


def _unusable(tensor: StoredTensor) -> str | None:
    """Return the reason why a tensor is not a weight matrix, or None for a weight matrix."""
    shape = shape_text(tensor.shape)
    if len(tensor.shape) not in (2, 4):
        return f"tensor that is not 2-D (shape {shape:.80})"
    if not 0 < tensor.elements <= LARGEST_MATRIX:
        # Python refuses to print integers of thousands of digits, which a header may contain
        count = "far too many" if tensor.elements > LARGEST_COUNT else tensor.elements
        return f"tensor of {count} elements, wanted 1 to {LARGEST_MATRIX}"
    if tensor.dtype not in DTYPE_NAMES:
        hint = f": {tensor.note}" if tensor.note else ""
        return f"tensor of dtype {tensor.dtype}, wanted fp16, bf16 or fp32{hint}"
    return None


def _layer(path: Path, name: str, tensor: StoredTensor, held: OneAtATime | None) -> Layer:
    """Return a layer whose weights are loaded now or, if `held` is given, on each use through this cache."""
    notes = [note for note in (tensor.note, fused_note(name, tensor.shape)) if note]
    shape = tensor.shape[0], tensor.elements // tensor.shape[0]
    if len(tensor.shape) == 4:
        notes.append(f"conv {shape_text(tensor.shape)} reshaped to {shape_text(shape)}")
    if tensor.dtype == "float64":
        notes.append("fp64 rounded to fp32")
    load: Callable[[], WeightArray] = partial(_matrix, path, name, tensor)
    if held is None:
        load = cache(load)
        load()  # report errors in the weights now, not at their first use
    return Layer(
        name=name,
        shape=shape,
        load=load if held is None else partial(held.read, name, load),
        dtype=DTYPE_NAMES[tensor.dtype],
        note="; ".join(notes) or None,
        stored=tensor.stored,
        parts=fused_parts(name, tensor.shape),
        filters=FilterShape(*tensor.shape[1:]) if len(tensor.shape) == 4 else None,
    )


def _matrix(path: Path, name: str, tensor: StoredTensor) -> WeightArray:
    """Return the finite values (M, K) of a tensor, row-major and in this machine's byte order."""
    with failures_named(path, name), np.errstate(over="ignore", invalid="ignore"):
        stored = tensor.load().reshape(tensor.shape[0], -1)
        dtype = np.dtype(np.float32) if stored.dtype.itemsize == 8 else stored.dtype.newbyteorder("=")
        weights = np.ascontiguousarray(stored, dtype=dtype)
        # Inside `errstate`: the conversion of a signalling NaN would warn before it is counted
        bad = weights.size - np.count_nonzero(np.isfinite(weights))
        are_large = bad and np.isfinite(stored).all()
    if bad:
        what = f"weights above {np.finfo(dtype).max:.2g}" if are_large else "NaN or Inf"
        raise BadInput(f"{path}: tensor {name!r} holds {bad} {what} among {weights.size} weights")
    return weights


def _nothing(skipped: dict[str, str], vectors: int, lookups: list[str]) -> str:
    reasons = [f"{name!r}: {reason}" for name, reason in list(skipped.items())[:3]]
    if lookups:
        reasons.append(
            f"{len(lookups)} embeddings, which multiply nothing (name them with target): {lookups[0]}"
        )
    return "; ".join([f"{vectors} vectors and {len(skipped)} other tensors", *reasons])
