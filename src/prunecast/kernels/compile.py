"""`compile(plan, weights)`: any plan that has a kernel, as a callable on the GPU."""

from importlib import import_module
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.plan.kernel_plan import KernelPlan

__all__ = ["COMPILERS", "Operator", "compile"]


class Operator(Protocol):
    """One pruned layer on one device. One operator must not run on two streams at once."""

    plan: KernelPlan
    clock: Any
    """Device array of four uint64, written by every launch: cycles and nanoseconds at its start and end on
    one SM."""

    def __call__(self, b: Any, out: Any = None) -> Any:
        """C (M, N) of B (K, N), both row-major: CuPy arrays, or torch tensors that are not copied.

        Enqueued on the current stream of the framework of `b`; `out` is given back if there is one. May be
        captured in a CUDA graph after a first call.

        Raises
        ------
        BadInput : a dtype, shape, device or layout differs from the plan's; nothing was launched
        """

    def enqueue(self, b: Any, c: Any, stream: int) -> None:
        """The launch alone: nothing is checked, copied or made.

        Parameters
        ----------
        b, c : `prunecast.kernels.cuda.places.Place` of rows on the operator's device, which is the current
            one, in the plan's dtype; aligned, and B padded, as `__call__` makes them where they are not
        stream : handle

        """

    def copy(self) -> "Operator":
        """The same with device memory of its own, to be used on another stream."""


class Home(NamedTuple):
    """Where a compile function lies; loaded when it is used, since it needs CuPy."""

    module: str
    name: str


_TILES = Home("prunecast.kernels.cuda.operator", "compile")
_MMA = Home("prunecast.kernels.cuda.mma.operator", "compile_mma")

COMPILERS: dict[str, Home] = {
    "wgmma": _TILES,
    "sparse-wgmma": Home("prunecast.kernels.cuda.sparse.operator", "compile_sparse"),
    "small-n": Home("prunecast.kernels.cuda.small.operator", "compile_small"),
    "balanced": Home("prunecast.kernels.cuda.balanced.operator", "compile_balanced"),
    "mma": _MMA,
    "sparse-mma": _MMA,
}
"""A plan's kernel, or else its tensor instruction -> what compiles it. A new kernel is a line here."""


def compile(
    plan: KernelPlan,
    weights: npt.NDArray[np.floating[Any]],
    *,
    bias: npt.NDArray[np.floating[Any]] | None = None,
    activation: str = "none",
) -> Operator:
    """Compile the kernel of `plan`, pack `weights` and bring both to the current device.

    Parameters
    ----------
    plan : from any planner whose kernel runs: all but `dense` and `csr`, which are libraries'
    weights : (M, K), rounded to the plan's dtype; what the plan does not keep is not read
    bias : (M,), added to every column of C, in fp32
    activation : `none`, `relu` or `gelu`, after the bias

    Raises
    ------
    BadInput : no kernel runs this plan, a shape or dtype is wrong, CuPy is missing, or there is no GPU that
        the kernel runs on
    prunecast.kernels.cuda.build.KernelBuildError : the kernel cannot be built
    """
    home = COMPILERS.get(plan.kernel) or COMPILERS.get(plan.tensor)
    if home is None or plan.kernel in ("dense", "csr"):
        raise BadInput(f"no kernel runs plans of {plan.kernel} on {plan.tensor}; those are predicted only")
    if plan.source is not None:
        raise BadInput(f"{plan.kernel}: no kernel reads the input of a convolution; it is predicted only")
    try:
        found = getattr(import_module(home.module), home.name)
    except ImportError as missing:
        if missing.name not in ("cupy", "cupyx"):
            raise
        raise BadInput(f"running {plan.kernel} needs CuPy: install the extra cuda13 or cuda12") from missing
    operator: Operator = found(plan, weights, bias=bias, activation=activation)
    return operator
