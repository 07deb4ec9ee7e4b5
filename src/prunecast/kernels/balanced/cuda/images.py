"""What the balanced kernels are given, as bytes on the host: packed weights and launch arguments.

Records follow windows of columns, not items: every group of rows walks all of them.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.kernels.balanced.cuda.forms import BalancedForm, form_of
from prunecast.kernels.balanced.cuda.pack import pack_matrix, pack_vector, rounded
from prunecast.kernels.balanced.layout import VectorLayout, balanced_layout
from prunecast.kernels.balanced.planner import WARPS
from prunecast.kernels.device.arrays import Wanted
from prunecast.kernels.device.packed import Packed
from prunecast.patterns.element_map import ElementMap
from prunecast.plan.kernel_plan import KernelPlan

__all__ = ["MATRIX_ARGS", "VECTOR_ARGS", "balanced_images"]

MATRIX_ARGS = np.dtype(
    [(name, "u8") for name in ("records", "windows", "b", "c", "bias", "clock")]
    + [(name, "i8") for name in ("b_row_bytes", "c_row_bytes")]
    + [(name, "i4") for name in ("m", "k", "tokens", "window_count", "split_windows", "slot_words")]
)
"""The bytes of `MatrixArgs` in matrix.cu."""
VECTOR_ARGS = np.dtype(
    [(name, "u8") for name in ("values", "indices", "b", "c", "bias", "clock")]
    + [(name, "i8") for name in ("b_step", "c_step")]
    + [(name, "i4") for name in ("m", "k", "chunks", "places")]
)
"""The bytes of `VectorArgs` in vector.cu."""


def balanced_images(plan: KernelPlan, weights: npt.NDArray[np.floating[Any]]) -> Packed:
    """Pack `weights` (M, K), rounded to the plan's dtype.

    Raises
    ------
    BadInput : the plan has no elements
    """
    if plan.inner is None:
        raise BadInput("the balanced kernel needs a plan with elements")
    form, values = form_of(plan), rounded(weights, plan.dtype)
    if form.vector is not None:
        return _vector_images(plan, plan.inner, form.vector, values)
    return _matrix_images(plan, plan.inner, form, values)


def _vector_images(
    plan: KernelPlan, elements: ElementMap, layout: VectorLayout, weights: npt.NDArray[np.float32]
) -> Packed:
    packed = pack_vector(elements, layout, plan.shape.block_m // WARPS, weights, plan.dtype)
    args = np.zeros(1, VECTOR_ARGS)
    args["m"], args["k"] = plan.m, plan.k
    args["chunks"], args["places"] = layout.chunks, layout.places
    return Packed({"values": packed.values, "indices": packed.indices}, args, plan.item_count)


def _matrix_images(
    plan: KernelPlan, elements: ElementMap, form: BalancedForm, weights: npt.NDArray[np.float32]
) -> Packed:
    layout = balanced_layout(elements, form.window, form.rest)
    records, windows = pack_matrix(elements, layout, weights, plan.dtype)
    args = np.zeros(1, MATRIX_ARGS)
    args["m"], args["k"] = plan.m, plan.k
    args["tokens"] = Wanted(plan.m, plan.k, plan.n, plan.dtype, 0).padded_n
    args["window_count"] = windows.shape[1]
    args["split_windows"] = -(-windows.shape[1] // form.splits)
    args["slot_words"] = int(layout.words.max())
    return Packed({"records": records, "windows": windows}, args, plan.item_count)
