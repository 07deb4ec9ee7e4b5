"""`compile(plan, weights)`: compile any plan that has a CUDA kernel into a callable on the GPU."""

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from prunecast.arguments import checked
from prunecast.errors import BadInput, check_choice
from prunecast.kernels.device.compile_inputs import ACTIVATIONS
from prunecast.kernels.device.compiled import compile_plan
from prunecast.kernels.device.conv_input import ConvOperator, grid_of
from prunecast.kernels.device.tile_stages import uncovered_rows
from prunecast.kernels.table import KERNELS
from prunecast.plan.kernel_plan import KernelPlan


class Operator(Protocol):
    """A pruned layer on one device, called with B to compute C. It must not run on two streams at once."""

    plan: KernelPlan
    clock: Any
    """Device array of four uint64 that every launch overwrites: SM cycles and nanoseconds at its start, then
    SM cycles and nanoseconds at its end, all read on one SM."""

    def __call__(self, b: Any, out: Any = None) -> Any:
        """Return C (M, N) for B (K, N), both row-major: CuPy arrays, or torch tensors, which are used without
        conversion.

        The launch is enqueued on the current stream of the framework of `b`. If `out` is given, C is written
        to it and `out` is returned. After a first call, further calls can be captured in a CUDA graph.

        Raises
        ------
        BadInput : a dtype, shape, device or layout differs from the plan's; nothing was launched
        """

    def enqueue(self, b: Any, c: Any, stream: int) -> None:
        """Enqueue only the launches: nothing is checked, copied or allocated.

        Parameters
        ----------
        b, c : address and row stride (`prunecast.kernels.device.launch.Place`) of B and C on the operator's
            device, which must be the current device. Elements have the plan's dtype. Rows must be aligned,
            and rows of B padded to whole 16-byte groups, if the kernel needs it; `__call__` copies other rows
        stream : CUDA stream handle
        """

    def copy(self) -> "Operator":
        """Return a copy with its own device memory, to be used on another stream."""


@checked
def compile(
    plan: KernelPlan,
    weights: npt.NDArray[np.floating[Any]],
    *,
    bias: npt.NDArray[np.floating[Any]] | None = None,
    activation: str = "none",
) -> Operator:
    """Compile the kernel of `plan`, pack `weights` and copy them to the current device.

    Parameters
    ----------
    plan : plan of a kernel with CUDA sources, thus not of a library kernel such as `dense` or `csr`. If
        `source` of a tile kernel's plan is a `ConvGrid`, a `ConvOperator` is returned
    weights : (M, K), rounded to the plan's dtype; weights that the plan does not keep are not read
    bias : (M,), added to every column of C, in fp32
    activation : `none`, `relu` or `gelu`, applied after the bias

    Raises
    ------
    BadInput : no kernel runs this plan, a shape or dtype is wrong, CuPy is missing, or there is no GPU that
        can run the kernel
    prunecast.kernels.device.build.KernelBuildError : the kernel cannot be built
    """
    check_choice("activation", activation, ACTIVATIONS)
    grid = grid_of(plan)
    if grid is not None:
        if plan.inner is not None or plan.tensor not in ("wgmma", "mma"):
            raise BadInput(f"{plan.kernel}: the tile kernels alone read the input of a convolution")
        if uncovered_rows(plan.tiles).size:
            raise BadInput(f"{plan.kernel}: wanted every filter of a convolution in a tile")
    entry = KERNELS[plan.kernel].compilers.get(plan.tensor)
    if entry is None:
        raise BadInput(f"no kernel runs plans of {plan.kernel} on {plan.tensor}; those are predicted only")
    operator = compile_plan(entry.load(), plan, weights, bias, activation=activation)
    return operator if grid is None else ConvOperator(operator, grid)
