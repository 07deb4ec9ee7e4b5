"""fp8 weights as numbers of wider formats: alone as fp16, which holds them all; with scales beside as bf16.

Scales (compressed-tensors, DeepSeek) are one number, one for each row, or one for each square block.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.patterns.sources.stored_tensor import StoredTensor, failures_named, shape_text

FORMATS = ("float8_e4m3fn", "float8_e5m2")
SCALES = ("_scale_inv", "_scale")
"""What follows the name of a matrix in that of its scales; both multiply."""
BLOCKS = tuple(2**power for power in range(4, 12))
"""Sides of square blocks that share a scale."""
NOTE = "fp8 weights run in a wider format: no kernel here multiplies fp8"

Shape = tuple[int, ...]


def is_scale(name: str, tensors: Mapping[str, StoredTensor]) -> bool:
    """Whether a tensor scales fp8 weights that `wider` has made numbers of."""
    wholes = (tensors.get(name.removesuffix(end)) for end in SCALES if name.endswith(end))
    return any(whole is not None and whole.note == NOTE for whole in wholes)


def wider(path: Path, tensors: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
    """The tensors, matrices of fp8 as fp16 or, scaled, as bf16.

    Raises
    ------
    BadInput : scales whose shape does not fit the matrix
    """
    found = dict(tensors)
    for name, tensor in tensors.items():
        if tensor.dtype not in FORMATS or len(tensor.shape) not in (2, 3, 4):
            continue
        scales = next((tensors[name + end] for end in SCALES if name + end in tensors), None)
        dtype, load = "float16", partial(_as_fp16, tensor)
        if scales is not None:
            if _sides(tensor.shape, _as_long(tensor.shape, scales.shape)) is None:
                raise BadInput(
                    f"{path}: scales of shape {shape_text(scales.shape):.80} do not fit "
                    f"{shape_text(tensor.shape):.80}: {name!r}"
                )
            dtype, load = "bfloat16", partial(_scaled, path, name, tensor, scales)
        found[name] = replace(tensor, dtype=dtype, load=load, as_stored=tensor.load, note=NOTE)
    return found


def _as_fp16(tensor: StoredTensor) -> npt.NDArray[Any]:
    return tensor.load().astype(np.float16)


def _as_long(shape: Shape, scales: Shape) -> Shape:
    """The shape of scales with as many dimensions as the weights; a vector is of the rows."""
    if scales == (shape[0],) and shape[0] > 1:
        return (shape[0], *(1,) * (len(shape) - 1))
    return (*(1,) * (len(shape) - len(scales)), *scales)


def _sides(shape: Shape, scales: Shape) -> tuple[int, ...] | None:
    """How many weights in a row share a scale, dimension by dimension, 1 where scales are as many or one."""
    if len(scales) != len(shape) or min(shape) < 1:
        return None
    for side in (1, *BLOCKS):
        blocks = tuple(-(-size // side) for size in shape[-2:])
        if scales[-2:] == blocks and scales[:-2] == shape[:-2]:
            return (*(1,) * (len(shape) - 2), side, side)
    broadcasts = all(own in (1, size) for own, size in zip(scales, shape, strict=True))
    return (1,) * len(shape) if broadcasts else None


def _scaled(path: Path, name: str, tensor: StoredTensor, scales: StoredTensor) -> npt.NDArray[Any]:
    import ml_dtypes

    with failures_named(path, name):
        long = _as_long(tensor.shape, scales.shape)
        factors = scales.load().astype(np.float32).reshape(long)
        for axis, side in enumerate(_sides(tensor.shape, long) or ()):
            if side > 1:
                factors = factors.repeat(side, axis=axis).take(range(tensor.shape[axis]), axis=axis)
        return (tensor.load().astype(np.float32) * factors).astype(ml_dtypes.bfloat16)
