"""Classify a tensor by its name, shape and neighbours: embedding, expert, packed weights, Conv1D.

Names are those of Hugging Face checkpoints and of GGUF. A tensor that a user names as a target is classified
by its shape only.
"""

import math
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.patterns.sources.stored_tensor import (
    LARGEST_MATRIX,
    StoredTensor,
    failures_named,
    is_scale,
    shape_text,
    wider,
)

LOOKUP = re.compile(
    r"(^|[._/])(embed_tokens|tok_embeddings|token_embd|wte|wpe|shared|positions?|pos_embed|relative_attention_bias"
    r"|embed_in|embed_positions|(word|position|token_type|token|positional|absolute_position)?_?embeddings?"
    r"|embedding_table|(?<!_)((tok|token|pos)_?)?emb(ed)?)(\.weight)?$"
)
"""Names of embeddings: tables from which a model reads rows, without a matrix product."""
EXPERT = re.compile(r"(^|[._/])(experts?|moe)[._/](\d+)[._/]")
EXPERTS = re.compile(r"expert|_exps\b|moe", re.IGNORECASE)
"""Names of tensors (experts, M, K)."""
MOST_EXPERTS = 1024
SIDECAR = re.compile(r"^(.*[._])(weight_scale|weight_scale_inv|input_scale|scales?|zeros|absmax|s|g_idx)$")
"""Names of tensors, such as scales, that are needed to unpack quantized weights."""
FLOATS = ("float16", "bfloat16", "float32", "float64")
CONV1D = re.compile(r"(^|\.)(c_attn|q_attn|c_fc|c_proj)\.weight$")
"""Names of GPT-2's `Conv1D`, whose weights are (in, out)."""
KERNEL = re.compile(r"(^|[./])kernel$")
"""Names of weights of Flax and Keras, which are (in, out)."""
FUSED_QKV = re.compile(
    r"(^|[._])(c_attn|qkv|qkv_proj|query_key_value|Wqkv|in_proj|attn_qkv)([._]weight)?$", re.IGNORECASE
)
"""Names of fused projections: GPT-2, ViT, Phi, Falcon, MPT, torch's MultiheadAttention, GGUF."""
BY_HEAD = "query_key_value"
"""Name of fused projections whose rows are the query, key and value of one head, then of the next (GPT-NeoX,
BLOOM, Falcon), so that no part is consecutive. The width of a head is not in the file."""
ADAPTER = re.compile(r"(^|\.)lora_(A|B|embedding_A|embedding_B)(\.|$)")
"""Names of the low-rank factors of an adapter (PEFT)."""
PARTS = (".compressed", ".bitmask", ".shape")
"""Suffixes of the tensors of a matrix packed by compressed-tensors (`sparse-24-bitmask`, `sparse-bitmask`):
the kept values, row by row; one bit per element, lowest first; the shape.
"""

Tensors = Mapping[str, StoredTensor]


def fused_parts(name: str, shape: tuple[int, ...]) -> int:
    """Return how many matrices of equal size are stacked in a matrix of this name and shape: 3 or 1.

    They are 3 for a fused projection whose rows are all queries, then all keys, then all values.
    """
    in_thirds = FUSED_QKV.search(name) and BY_HEAD not in name
    return 3 if in_thirds and len(shape) == 2 and shape[0] == 3 * shape[1] else 1


def fused_note(name: str, shape: tuple[int, ...]) -> str | None:
    """Return a note on a matrix of stacked queries, keys and values; None for any other tensor."""
    if not FUSED_QKV.search(name) or len(shape) != 2:
        return None
    equal = f", {shape[0] // 3} rows each" if fused_parts(name, shape) > 1 else ""
    return f"queries, keys and values in one product{equal}"


def is_lookup(name: str) -> bool:
    """Return True if a tensor is an embedding."""
    return LOOKUP.search(name) is not None


def is_sidecar(name: str, tensors: Tensors) -> bool:
    """Return True if a tensor of floats belongs to packed integer weights or holds scales of fp8 weights."""
    match = SIDECAR.match(name)
    if match is None:
        return is_scale(name, tensors)
    siblings = (tensor for other, tensor in tensors.items() if other.startswith(match[1]) and other != name)
    return is_scale(name, tensors) or any(
        tensor.dtype not in FLOATS and len(tensor.shape) > 1 for tensor in siblings
    )


def expert_counts(names: list[str]) -> dict[str, int]:
    """Return name -> number of experts in the same layer, for each matrix of one of several experts."""
    alike: defaultdict[str, list[str]] = defaultdict(list)
    for name in names:
        if EXPERT.search(name):
            alike[EXPERT.sub(r"\1\2.*.", name, count=1)].append(name)
    return {name: len(group) for group in alike.values() for name in group if len(group) > 1}


def expert_names(name: str, tensor: StoredTensor) -> list[str]:
    """Return names of the matrices in a tensor (experts, M, K), like `experts.0.down` for `experts.down`.

    The list is empty for any other tensor.
    """
    is_stack = len(tensor.shape) == 3 and tensor.dtype in FLOATS and EXPERTS.search(name)
    if not is_stack or not 1 < tensor.shape[0] <= MOST_EXPERTS:
        return []
    module, found, rest = name.partition("experts.")
    return [
        f"{module}experts.{expert}.{rest}" if found else f"{name}.experts.{expert}.weight"
        for expert in range(tensor.shape[0])
    ]


class ExpertLoader:
    """Loader of a tensor (experts, M, K), which is read once for all experts and freed after the last one."""

    def __init__(self, tensor: StoredTensor) -> None:
        self._tensor = tensor
        self._whole: npt.NDArray[Any] | None = None
        self._left = 0

    def take(self, expert: int) -> npt.NDArray[Any]:
        """Return a copy of one expert's matrix."""
        if self._whole is None:
            self._whole, self._left = self._tensor.load(), self._tensor.shape[0]
        matrix = np.array(self._whole[expert])
        self._left -= 1
        if not self._left:
            self._whole = None
        return matrix


def transposed_names(tensors: Tensors) -> set[str]:
    """Return the names of weights that are stored (K, M): kernels of Flax and Keras, and GPT-2's Conv1D.

    Conv1D is recognised by a bias whose length equals the second dimension of the weight.
    """
    matrices = [name for name, tensor in tensors.items() if len(tensor.shape) == 2]
    kernels = {name for name in matrices if KERNEL.search(name)}
    named = {name: tensors[name].shape for name in matrices if CONV1D.search(name)}
    for name, (rows, columns) in named.items():
        bias = tensors.get(name.removesuffix("weight") + "bias")
        if bias is not None and rows != columns and bias.shape == (columns,):
            return kernels | set(named)
    return kernels


def seen_as_products(path: Path, tensors: Tensors) -> dict[str, StoredTensor]:
    """Return the tensors with packed matrices unpacked, fp8 weights widened, and weights (K, M) transposed.

    Raises
    ------
    BadInput : a packed matrix whose parts do not fit each other, a name that is no text, or a LoRA adapter
    """
    if (adapter := next(filter(ADAPTER.search, tensors), None)) is not None:
        raise BadInput(
            f"{path}: has a LoRA adapter, {adapter!r:.80}: wanted the merged weights: "
            "model.merge_and_unload()"
        )
    for name in tensors:
        try:
            # A file name may contain bytes that are no UTF-8, and a tensor may be named after its file
            name.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise BadInput(f"{path}: the name {name!r:.80} of a tensor has half a character") from None
    found: dict[str, StoredTensor] = {}
    stored_transposed = transposed_names(tensors)
    for name, tensor in wider(path, tensors).items():
        whole = name.removesuffix(PARTS[0])
        if all(whole + part in tensors for part in PARTS):
            if name.endswith(PARTS[0]):
                found[f"{whole}.weight"] = _unpacked(path, whole, tensors)
        elif name in stored_transposed:
            found[name] = transposed(tensor)
        elif not any(name == w + part for part in PARTS[1:] for w in _packed(name, tensors)):
            found[name] = tensor
    return found


def _packed(name: str, tensors: Tensors) -> list[str]:
    """Return a list with the name of the packed matrix to which a tensor belongs, or an empty list."""
    wholes = [name.removesuffix(part) for part in (*PARTS, ".row_offsets") if name.endswith(part)]
    return [whole for whole in wholes if all(whole + part in tensors for part in PARTS)]


def transposed(tensor: StoredTensor) -> StoredTensor:
    """Return the transpose of a matrix of the file; a second transpose is the matrix as it is stored."""
    return replace(
        tensor,
        shape=tensor.shape[::-1],
        load=lambda: tensor.load().T,
        as_stored=None if tensor.as_stored is None else transposed(tensor.as_stored),
        stored=None if tensor.stored is None else tensor.stored.T,
        note=None if tensor.is_transposed else "stored as (K, M)",
        is_transposed=not tensor.is_transposed,
    )


def _unpacked(path: Path, whole: str, tensors: Tensors) -> StoredTensor:
    values, mask, sizes = (tensors[whole + part] for part in PARTS)
    where = f"{path}: {whole!r}"
    with failures_named(path, whole):
        shape = tuple(int(size) for size in sizes.load().ravel()[:3]) if math.prod(sizes.shape) < 8 else ()
    if len(shape) != 2 or not 0 < shape[0] * shape[1] <= LARGEST_MATRIX or min(shape) < 1:
        raise BadInput(f"{where}: packed weights must say a shape of two sizes, got {shape}")
    bytes_per_row = -(-shape[1] // 8)
    if mask.shape != (shape[0], bytes_per_row) or mask.dtype != "uint8":
        raise BadInput(
            f"{where}: the bitmask must be uint8 of {shape[0]}x{bytes_per_row}, "
            f"got {mask.dtype} of {shape_text(mask.shape)}"
        )
    load = partial(_load_packed, where, values, mask, shape)
    return StoredTensor(shape=shape, dtype=values.dtype, load=load, note="unpacked from values and bitmask")


def _load_packed(
    where: str, values: StoredTensor, mask: StoredTensor, shape: tuple[int, int]
) -> npt.NDArray[Any]:
    kept = np.unpackbits(mask.load(), axis=1, count=shape[1], bitorder="little").astype(np.bool_)
    stored = values.load().ravel()
    if int(kept.sum()) != stored.size:
        raise BadInput(f"{where}: the bitmask keeps {int(kept.sum())} weights, the file holds {stored.size}")
    weights = np.zeros(shape, stored.dtype)
    weights[kept] = stored
    return weights
