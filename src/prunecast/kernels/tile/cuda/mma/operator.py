"""`compile_mma(plan, weights)`: a plan of tiles or 2:4 for GPUs without wgmma as a callable on the GPU."""

from collections.abc import Mapping
from typing import Any

import cupy as cp
import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.kernels.device.array_operator import ArrayOperator, arch_of_device, bias_array
from prunecast.kernels.device.arrays import check_device, check_weights
from prunecast.kernels.device.layer_operator import load_kernel
from prunecast.kernels.device.weights import to_bits
from prunecast.kernels.tile.cuda.mma.forms import build_mma, has_async_copies, mma_defines
from prunecast.kernels.tile.cuda.mma.pack import PackedMma
from prunecast.kernels.tile.cuda.mma.plan_pack import pack_plan
from prunecast.kernels.tile.cuda.mma.records import WARPS, MmaRecords, mma_records
from prunecast.plan.kernel_plan import KernelPlan

__all__ = ["MmaOperator", "compile_mma", "mma_operator"]


def compile_mma(
    plan: KernelPlan,
    weights: npt.NDArray[np.floating[Any]],
    *,
    bias: npt.NDArray[np.floating[Any]] | None = None,
    activation: str = "none",
    overlap: bool = True,
    changes: Mapping[str, int] | None = None,
) -> "MmaOperator":
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
    defines = mma_defines(plan, activation=activation, bias=bias is not None, changes=changes)
    least = 80 if has_async_copies(plan) else 75
    check_device(
        "the mma tile kernel", lambda capability: capability >= least, f"compute capability {least / 10}"
    )
    check_weights(plan, weights, bias)
    packed = pack_plan(plan, to_bits(weights, plan.dtype))
    return mma_operator(plan, packed, defines, bias=bias, overlap=overlap)


def mma_operator(
    plan: KernelPlan,
    packed: PackedMma,
    defines: Mapping[str, int],
    *,
    bias: npt.NDArray[np.floating[Any]] | None = None,
    overlap: bool = True,
) -> "MmaOperator":
    """An operator of packed weights and of `mma_defines`, neither of which is checked."""
    built = build_mma(plan, arch_of_device(), defines)
    kernel = load_kernel(built.cubin, "tile_mma", plan.resources.shared_bytes)
    records = mma_records(plan, packed)
    _check_resident(plan, records, kernel)
    arrays = {
        "weights": cp.asarray(packed.weights),
        "columns": cp.asarray(packed.columns),
        "steps": cp.asarray(records.steps),
        "splits": cp.asarray(records.splits),
        "start": cp.asarray(records.start),
        "rows": cp.asarray(records.rows),
        "bias": bias_array(bias),
        "partials": cp.empty(max(records.slots * plan.shape.block_m * plan.shape.block_n, 4), cp.float32),
        "counters": cp.zeros(max(records.groups, 1) * WARPS, cp.uint32),
    }
    overlap = overlap and int(cp.cuda.Device().compute_capability) >= 90
    args = records.arguments(plan)
    return MmaOperator(plan, arrays, args, kernel, blocks=records.blocks, overlap=overlap)


def _check_resident(plan: KernelPlan, records: MmaRecords, kernel: Any) -> None:
    """Blocks that wait for one another must all be there."""
    if not records.groups:
        return
    resources = plan.resources
    per_sm = cp.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(
        kernel.kernel.ptr, resources.threads, resources.shared_bytes
    )
    fit = per_sm * cp.cuda.Device().attributes["MultiProcessorCount"]
    if fit < plan.blocks:
        raise BadInput(f"{plan.kernel}: {plan.blocks} blocks wait for one another, this GPU holds {fit}")


class MmaOperator(ArrayOperator):
    """One pruned layer on one device: `c = op(b)` with B (K, N) and C (M, N), both row-major.

    B must be finite at every column that its tile keeps: zeros fill tiles, and groups of 2:4 weights.
    The operator owns a workspace: it must not run on two streams at once.
    """
