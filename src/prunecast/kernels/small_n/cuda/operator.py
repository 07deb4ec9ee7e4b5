"""`compile_small(plan, weights)`: a small-n plan as a callable on the GPU."""

from collections.abc import Mapping
from typing import Any

import cupy as cp
import numpy as np
import numpy.typing as npt

from prunecast.kernels.device.array_operator import ArrayOperator, arch_of_device, bias_array
from prunecast.kernels.device.arrays import check_device, check_weights
from prunecast.kernels.device.layer_operator import load_kernel
from prunecast.kernels.device.places import Place
from prunecast.kernels.device.weights import to_bits
from prunecast.kernels.small_n.configs import row_unit
from prunecast.kernels.small_n.cuda.forms import build_small, small_defines
from prunecast.kernels.small_n.cuda.pack import pack_small
from prunecast.kernels.small_n.cuda.records import SmallRecords, place_b, small_records
from prunecast.plan.kernel_plan import KernelPlan

__all__ = ["SmallOperator", "compile_small", "small_operator"]


def compile_small(
    plan: KernelPlan,
    weights: npt.NDArray[np.floating[Any]],
    *,
    bias: npt.NDArray[np.floating[Any]] | None = None,
    activation: str = "none",
    overlap: bool = True,
    changes: Mapping[str, int] | None = None,
) -> "SmallOperator":
    """Compile the kernel of `plan`, pack `weights` (M, K) and bring both to the current device.

    Parameters
    ----------
    weights : rounded to the plan's dtype; what the plan does not keep is not read
    bias : (M,), added to every column of C, in fp32
    activation : `none`, `relu` or `gelu`
    overlap : let a launch start while the kernel before it in the stream drains (compute capability 9.0)
    changes : preprocessor names that differ from the plan's form, for experiments

    Raises
    ------
    BadInput : the plan is for another kernel, a shape is wrong, or the device cannot run it
    KernelBuildError : the kernel cannot be built
    """
    check_device("the small-n kernel", lambda capability: capability >= 80, "compute capability 8.0")
    check_weights(plan, weights, bias)
    defines = small_defines(plan, activation=activation, bias=bias is not None, changes=changes)
    built = build_small(plan, arch_of_device(), defines)
    kernel = load_kernel(built.cubin, "small_n", plan.resources.shared_bytes)
    packed = pack_small(plan.tiles, to_bits(weights, plan.dtype), plan.shape.block_m)
    records = small_records(plan, packed)
    arrays = {
        "weights": cp.asarray(packed.weights),
        "columns": cp.asarray(packed.columns),
        "ranges": cp.asarray(records.ranges),
        "places": cp.asarray(records.places),
        "rows": cp.asarray(records.rows),
        "bias": bias_array(bias),
    }
    overlap = overlap and int(cp.cuda.Device().compute_capability) >= 90
    return small_operator(plan, records, arrays, kernel, overlap=overlap)


def small_operator(
    plan: KernelPlan, records: SmallRecords, arrays: Mapping[str, Any], kernel: Any, *, overlap: bool
) -> "SmallOperator":
    """Operator of weights that were packed, and maybe loaded, before."""
    args, unit = records.arguments(plan), row_unit(plan.n)
    return SmallOperator(plan, arrays, args, kernel, blocks=records.blocks, overlap=overlap, align_bytes=unit)


class SmallOperator(ArrayOperator):
    """One pruned layer on one device: `c = op(b)` with B (K, N) and C (M, N), both row-major, N any number.

    Contiguous arrays of any N are read and written in place.
    """

    def _place(self, b: Place, c: Place) -> None:
        place_b(self._args, self.plan, b.pointer, b.row_bytes)
        self._args["c"], self._args["c_row_bytes"] = c
