"""`Operator`: a compiled plan on one device, `c = op(b)`; each kernel has a subclass that packs its
weights.
"""

from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.kernels.device.arrays import Rooms, Wanted, check_weights, multiply
from prunecast.kernels.device.form import FillRows, Form, build_fill
from prunecast.kernels.device.launch import Place, Places, PreparedLaunch
from prunecast.kernels.device.tile_stages import Packed
from prunecast.plan.kernel_plan import KernelPlan

Floats = npt.NDArray[np.floating[Any]]


class Operator:
    """One pruned layer on one device: `c = op(b)` with B (K, N) and C (M, N), both row-major.

    All checks are done before the launch. The operator uses the current stream of the caller's framework and
    may be captured in a CUDA graph after its first call. It owns its arrays, including a workspace, so an
    operator must not run on two streams at once.

    Attributes
    ----------
    plan : the plan that is launched
    clock : four uint64 on the device, written by every launch: cycles and nanoseconds at its start and end on
        one SM
    overlap : a launch may start while the kernel before it in the stream drains (compute capability 9.0)
    """

    name: ClassVar[str]
    """Name of the kernel in error messages."""
    form: ClassVar[Callable[..., Form]]
    """`(plan, **FormOptions)` -> form to compile; raises BadInput for plans of other kernels."""
    pack: ClassVar[Callable[..., Packed]]
    """`(plan, weights)` -> weights (M, K), rounded to the plan's dtype, packed in the kernel's layout."""

    @classmethod
    def runs_on(cls, plan: KernelPlan) -> range:
        """Return the range of compute capabilities, times ten, on which the plan runs."""
        return range(90, 91)

    @classmethod
    def compile(
        cls,
        plan: KernelPlan,
        weights: Floats,
        *,
        bias: Floats | None = None,
        activation: str = "none",
        changes: Mapping[str, int] | None = None,
    ) -> Self:
        """Compile the kernel of `plan`, pack `weights` (M, K) and copy them to the current device.

        Parameters
        ----------
        weights : rounded to the plan's dtype; weights that the plan does not keep are not read
        bias : (M,), added to every column of C, in fp32
        activation : `none`, `relu` or `gelu`
        changes : preprocessor names that differ from the plan's form, for experiments and debugging

        Raises
        ------
        BadInput : the plan is for another kernel, a shape is wrong, or the device cannot run it
        KernelBuildError : the kernel cannot be built
        """
        capabilities = cls.runs_on(plan)
        wanted = f"compute capability {capabilities.start / 10}"
        _check_device(cls.name, lambda capability: capability in capabilities, wanted)
        check_weights(plan, weights, bias)
        form = cls.form(plan, activation=activation, bias=bias is not None, changes=changes)
        cubin = form.build(_arch_of_device()).cubin
        kernel = _load_kernel(cubin, form.entry, plan.resources.shared_bytes)
        packed = cls.pack(plan, weights)
        fill = None
        if packed.unwritten.size:
            zeros = build_fill(plan.dtype, activation, bias=bias is not None)
            fill = _load_kernel(zeros.cubin, "fill_rows", 0)
        import cupy as cp

        overlap = int(cp.cuda.Device().compute_capability) >= 90
        return cls(plan, packed, _on_device(packed, bias), kernel, fill, overlap=overlap)

    def __init__(
        self,
        plan: KernelPlan,
        packed: Packed,
        arrays: Mapping[str, Any],
        kernel: Any,
        fill: Any = None,
        *,
        overlap: bool,
    ) -> None:
        import cupy as cp

        self.plan, self.overlap = plan, overlap
        self.clock = cp.zeros(4, cp.uint64)
        # Finish the copies to the device: the first launch may be on a stream that does not wait for this one
        cp.cuda.get_current_stream().synchronize()
        self._packed, self._arrays, self._kernel, self._fill = packed, arrays, kernel, fill
        self._wanted = Wanted(plan.m, plan.k, plan.n, plan.dtype, cp.cuda.Device().id, self.align_bytes(plan))
        self._rooms, self._lock = Rooms(), Lock()
        self._args = packed.args.copy()
        for name, array in {**arrays, "clock": self.clock}.items():
            if name in (self._args.dtype.names or ()):
                self._args[name] = array.data.ptr
        self._places = self.places()
        self._launch = PreparedLaunch(
            kernel.kernel.ptr,
            self.arguments(),
            blocks=packed.blocks,
            threads=plan.resources.threads,
            shared_bytes=plan.resources.shared_bytes,
            overlap=overlap,
        )
        self._fill_rows = self._prepared_fill()

    @property
    def device(self) -> int:
        """Number of the operator's device."""
        return self._wanted.device

    def copy(self) -> Self:
        """Return an operator of the same plan and weights with its own arrays, to be used on
        another stream.
        """
        own = {name: array.copy() for name, array in self._arrays.items()}
        return type(self)(self.plan, self._packed, own, self._kernel, self._fill, overlap=self.overlap)

    def __call__(self, b: Any, out: Any = None) -> Any:
        """Return C (M, N) for B (K, N), enqueued on the current stream of the framework of `b`.

        Both are CuPy arrays or both torch tensors on the operator's device. Rows that do not have the
        alignment that the kernel needs are first copied to padded rows. B with aligned, padded rows, such as
        C of another operator, is not copied.

        Raises
        ------
        BadInput : a dtype, shape, device or layout differs from the plan's; nothing was launched
        """
        return multiply(self._wanted, self._rooms, b, out, self.enqueue)

    def enqueue(self, b: Place, c: Place, stream: int) -> None:
        """Enqueue only the launches; see `prunecast.kernels.compile.Operator`."""
        # Other threads must not change the argument record before the driver has copied it
        with self._lock:
            if self._packed.blocks:
                self.place(b, c)
                self._launch(stream)
            if self._fill_rows is not None:
                self._fill_rows(c, stream)

    @classmethod
    def align_bytes(cls, plan: KernelPlan) -> int:
        """Return the alignment in bytes that rows of B and C need."""
        return 16

    def places(self) -> Places | None:
        """Return the writer of addresses and row strides of B and C; None if `place` writes them itself."""
        return Places(self._args)

    def place(self, b: Place, c: Place) -> None:
        """Write the addresses and row strides of B and C into the arguments."""
        if self._places is not None:
            self._places.write(b, c)

    def arguments(self) -> list[int]:
        """Return the addresses of the values of the kernel's arguments."""
        return [self._args.ctypes.data]

    def _prepared_fill(self) -> FillRows | None:
        rows, bias = self._packed.unwritten, self._arrays["bias"]
        if not rows.size:
            return None
        on_device = self._arrays["unwritten"]
        return FillRows(
            self._fill.kernel.ptr,
            on_device.data.ptr,
            bias.data.ptr,
            blocks=rows.size,
            tokens=self._wanted.padded_n,
        )


def _check_device(kernel: str, runs_on: Callable[[int], bool], wanted: str) -> int:
    """Return the number of the current device; raise BadInput if `kernel` does not run on it.

    Parameters
    ----------
    runs_on : predicate on the compute capability times ten, such as 90
    wanted : the requirement in words, for the message

    Raises
    ------
    BadInput : CuPy is missing, there is no GPU, or the GPU does not run the kernel
    """
    try:
        import cupy as cp
    except ImportError as missing:
        raise BadInput(f"{kernel} needs CuPy: install the extra cuda13 or cuda12") from missing
    if not cp.cuda.is_available():
        raise BadInput(f"{kernel} needs an NVIDIA GPU, none is available")
    device = cp.cuda.Device()
    capability = int(device.compute_capability)
    if not runs_on(capability):
        raise BadInput(f"{kernel} needs {wanted}, device {device.id} has {capability / 10}")
    return int(device.id)


def _load_kernel(cubin: Any, entry: str, shared_bytes: int) -> Any:
    """Load a compiled kernel on the current device and allow `shared_bytes` of dynamic shared memory."""
    import cupy as cp

    kernel = cp.RawModule(path=str(cubin)).get_function(entry)
    kernel.max_dynamic_shared_size_bytes = shared_bytes
    return kernel


def _arch_of_device() -> str:
    """Return the architecture to compile for; `sm_90a` has instructions that `sm_90` lacks."""
    import cupy as cp

    capability = cp.cuda.Device().compute_capability
    return "sm_90a" if capability == "90" else f"sm_{capability}"


def _on_device(packed: Packed, bias: Floats | None) -> dict[str, Any]:
    """Copy all arrays to the current device; without a bias, a single zero replaces it."""
    import cupy as cp

    found = {name: cp.asarray(array) for name, array in packed.arrays.items()}
    found |= {name: cp.zeros(count, dtype) for name, (count, dtype) in packed.workspace.items()}
    if packed.unwritten.size:
        found["unwritten"] = cp.asarray(packed.unwritten)
    return {**found, "bias": cp.zeros(1, cp.float32) if bias is None else cp.asarray(bias, cp.float32)}
