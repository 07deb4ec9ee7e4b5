"""`CompiledPlan`: a plan with its weights as a callable, `c = op(b)`, on arrays of CuPy and torch."""

from threading import Lock
from typing import Any

import numpy as np

from prunecast.errors import BadInput
from prunecast.kernels.device.arrays import OperandSpec, StagingBuffers, check_weights, multiply
from prunecast.kernels.device.launch import DeviceArray, Place
from prunecast.kernels.device.operator import Call, Floats, KernelOperator
from prunecast.kernels.device.tile_stages import Packed
from prunecast.plan.kernel_plan import KernelPlan

_ASKING = Lock()
"""Lock for the query for GPUs: during the first query of a process, CuPy reports to other threads that there
is no GPU."""


class CompiledPlan:
    """One pruned layer on one device: `c = op(b)` with B (K, N) and C (M, N), both row-major.

    All checks are done before the launch. The operator uses the current stream of the caller's framework and
    may be captured in a CUDA graph after its first call. It owns its device arrays, including a workspace,
    so it must not run on two streams at once.

    Parameters
    ----------
    kind : operator class of the plan's kernel
    plan : the plan to launch
    packed : result of `kind.pack`
    bias : (M,) fp32 or None
    options : `CompileOptions` except `bias`

    Attributes
    ----------
    plan : the plan that is launched
    clock : four uint64 on the device, written by every launch: cycles and nanoseconds at its start and end on
        one SM
    """

    def __init__(
        self,
        kind: type[KernelOperator],
        plan: KernelPlan,
        packed: Packed,
        bias: Floats | None,
        **options: Any,
    ) -> None:
        import cupy as cp

        self.plan, self._made = plan, (kind, plan, packed, bias, options)
        self.device, self.clock = int(cp.cuda.Device().id), cp.zeros(4, cp.uint64)
        # Finish the zeros: the first launch may be on a stream that does not wait for this one
        cp.cuda.get_current_stream().synchronize()
        self.operator = kind(
            plan, packed, device=self.device, clock=self.clock.data.ptr, bias=bias is not None, **options
        )
        self._bias = None if bias is None else DeviceArray(np.asarray(bias, np.float32))
        align = kind.align_bytes(plan)
        self._wanted = OperandSpec(plan.m, plan.k, plan.n, plan.dtype, self.device, align)
        self._buffers = StagingBuffers()
        weights = self.operator.arrays.get("weights")
        self._call = Call(
            weights.pointer if weights else 0,
            self._bias.pointer if self._bias else 0,
            b_row_bytes=0,
            c_row_bytes=0,
            tokens=self._wanted.padded_n,
        )

    def copy(self) -> "CompiledPlan":
        """Return an operator with the same plan and weights but its own device arrays, for another stream."""
        kind, plan, packed, bias, options = self._made
        return CompiledPlan(kind, plan, packed, bias, **options)

    def __call__(self, b: Any, out: Any = None) -> Any:
        """Return C (M, N) for B (K, N), enqueued on the current stream of the framework of `b`.

        Both are CuPy arrays, or both are torch tensors, on the operator's device and in the plan's dtype.
        Rows that are less aligned than the kernel requires are first copied to padded rows. B with aligned,
        padded rows, such as C of another operator, is not copied.

        Raises
        ------
        BadInput : a dtype, shape, device or layout differs from the plan's; nothing was launched
        """
        return multiply(self._wanted, self._buffers, b, out, self.enqueue)

    def enqueue(self, b: Place, c: Place, stream: int, *, second: int = 0) -> None:
        """Enqueue only the launches: nothing is checked, copied or allocated.

        Parameters
        ----------
        b, c : aligned and padded B and C, see `prunecast.kernels.compile.Operator.enqueue`
        stream : handle of a CUDA stream of the current device
        second : address of a convolution's second input, or of fp32 scales (tokens,) of fp8 B; 0 for none
        """
        call = self._call
        if (call.b_row_bytes, call.c_row_bytes) != (b.row_bytes, c.row_bytes):
            self._call = call = call._replace(b_row_bytes=b.row_bytes, c_row_bytes=c.row_bytes)
        self.operator.at(call, b.pointer, c.pointer, stream, second)


def compile_plan(
    kind: type[KernelOperator], plan: KernelPlan, weights: Floats, bias: Floats | None, **options: Any
) -> CompiledPlan:
    """Compile the kernel of `plan`, pack `weights` (M, K) and copy them to the current device.

    Raises
    ------
    BadInput : the plan is for another kernel, a shape is wrong, CuPy is missing, or no GPU can run the plan
    KernelBuildError : the kernel cannot be built
    """
    try:
        import cupy as cp
    except ImportError as missing:
        raise BadInput(f"{kind.name} needs CuPy: install the extra cuda13 or cuda12") from missing
    with _ASKING:
        is_available = cp.cuda.is_available()
    if not is_available:
        raise BadInput(f"{kind.name} needs an NVIDIA GPU, none is available")
    check_weights(plan, weights, bias)
    kind.compile_inputs(
        plan, bias=bias is not None, **options
    )  # raises BadInput for other plans before weights are packed
    return CompiledPlan(kind, plan, kind.pack(plan, weights), bias, **options)
