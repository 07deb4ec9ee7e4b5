"""`KernelOperator`: the kernel of a plan on one device, launched on device addresses. Each kernel has a
subclass.

A subclass describes its kernel: the compiler's inputs, the layout of the packed weights, the records of a
plan, and the fields of the argument that contain addresses. torch layers and `kernels.compile` use it to
launch.
"""

from collections.abc import Callable
from threading import Lock
from typing import Any, ClassVar, NamedTuple, Unpack

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.kernels.device.compile_inputs import CompileInputs, CompileOptions, FillRows, build_fill
from prunecast.kernels.device.launch import (
    DeviceArray,
    Place,
    PreparedLaunch,
    arch_of,
    capability_of,
    load_function,
)
from prunecast.kernels.device.packing import Slab, packed_weights, to_bits
from prunecast.kernels.device.tile_stages import Packed, TileStages, tile_stages
from prunecast.plan.kernel_plan import KernelPlan

Floats = npt.NDArray[np.floating[Any]]
WORD_BYTES = 8
"""Bytes of an address or a stride. Kind: definition, 64-bit CUDA."""


class Call(NamedTuple):
    """Addresses and sizes of a launch that rarely differ from those of the preceding launch."""

    weights: int
    """Address of the packed weights."""
    bias: int
    """Address of the fp32 bias; 0 for none."""
    b_row_bytes: int
    c_row_bytes: int
    tokens: int
    """Tokens of a row of B, and of C unless C is token-major; a row has whole groups of `align_bytes`."""
    c_tokens: int = 0
    """Rows of a token-major C."""
    row_scales: int = 0
    """Address of fp32 scales (M,) of fp8 weights."""


class KernelOperator:
    """The kernel of a plan on the current device, with the device arrays that it reads.

    Bias and B are not included, and weights only if `packed` contains them. The operator owns its argument
    record, and a workspace if tiles are split, so it must not run on two streams at once.

    Parameters
    ----------
    packed : result of `records` (without weights) or `pack` (with weights)
    device : number of the current device
    clock : address of four uint64, written by every launch: cycles and nanoseconds at its start and end on
        one SM; 0 for none
    options : `CompileOptions`

    Raises
    ------
    BadInput : the kernel cannot run the plan, or the device cannot run it
    KernelBuildError : the kernel cannot be built
    """

    name: ClassVar[str]
    """Name of the kernel in error messages."""
    compile_inputs: ClassVar[Callable[..., CompileInputs]]
    """`(plan, **CompileOptions)` -> inputs of the compiler; raises BadInput for plans of other kernels."""
    slab: ClassVar[Callable[..., Slab]]
    """Plan -> order in which a k-step of packed weights holds the elements of its tile of A."""
    records: ClassVar[Callable[..., Packed]]
    """Plan -> device arrays and launch argument, without weights, bias and B."""
    writes_tokens: ClassVar[bool] = False
    """True if the kernel has variants that write C token-major, and variants that compute gated units and
    residual sums."""
    takes_one: ClassVar[bool] = False
    """True if B may have a single token; otherwise the tokens of a row of B must fill whole groups of 16
    bytes."""
    heads: ClassVar[str] = ""
    """Name of the array of item records whose first two numbers depend only on the tile; empty for kernels
    that do not run experts."""
    maps: ClassVar[int] = 0
    """Number of tensor maps among the arguments."""

    @staticmethod
    def stages(plan: KernelPlan) -> TileStages:
        """Return the pipeline stages of the plan's tiles. Raise BadInput if a tile is taller than a block."""
        return tile_stages(plan.tiles, plan.shape.block_m, plan.shape.block_k)

    @classmethod
    def pack(cls, plan: KernelPlan, weights: Floats) -> Packed:
        """Return the records of a plan together with its packed weights, rounded to the plan's dtype.

        Parameters
        ----------
        weights : (M, K)

        Raises
        ------
        BadInput : in the same cases as `records`, the shape of `weights` differs from the plan's, or the plan
            needs 2:4 weights and `weights` are not 2:4
        """
        bits, stages = to_bits(weights, plan.dtype), cls.stages(plan)
        image = packed_weights(bits, plan.tiles, stages, cls.slab(plan), plan.inner)
        records = cls.records(plan)
        return records._replace(arrays={"weights": image, **records.arrays})

    @classmethod
    def runs_on(cls, plan: KernelPlan) -> range:
        """Return the range of compute capabilities, times ten, on which the plan runs. The default is only
        90.
        """
        return range(90, 91)

    @classmethod
    def align_bytes(cls, plan: KernelPlan) -> int:
        """Return the alignment in bytes that rows of B and C need."""
        return 16

    def __init__(
        self,
        plan: KernelPlan,
        packed: Packed,
        *,
        device: int,
        clock: int = 0,
        **options: Unpack[CompileOptions],
    ) -> None:
        capability, runs_on = capability_of(device), self.runs_on(plan)
        if capability not in runs_on:
            wanted = f"compute capability {runs_on.start / 10}"
            raise BadInput(f"{self.name} needs {wanted}, device {device} has {capability / 10}")
        inputs, resources = self.compile_inputs(plan, **options), plan.resources
        self.plan, self.device, self.changes = plan, device, dict(options.get("changes") or {})
        room = {name: np.zeros(count, dtype) for name, (count, dtype) in packed.workspace.items()}
        self.arrays = {name: DeviceArray(values) for name, values in {**packed.arrays, **room}.items()}
        self._args = packed.args.copy()
        self._names = self._args.dtype.names or ()
        for name, address in {"clock": clock, **{n: a.pointer for n, a in self.arrays.items()}}.items():
            if name in self._names:
                self._args[name] = address
        # Write addresses as words of a buffer: setting a field of a NumPy record needs six times as long
        fields: Any = self._args.dtype.fields
        self._words: Any = self._args.view(np.uint64).data
        self._b, self._c, self._second = (
            fields[name][1] // WORD_BYTES if name in fields else 0 for name in ("b", "c", "second")
        )
        self._call: Call | None = None
        self._lock = Lock()
        arguments = [self._args.ctypes.data, *[0] * self.maps]
        self._function = load_function(
            inputs.build(arch_of(device)).cubin, inputs.entry, resources.shared_bytes, device
        )
        self._launch = PreparedLaunch(
            self._function,
            arguments,
            blocks=packed.blocks,
            threads=resources.threads,
            shared_bytes=resources.shared_bytes,
            overlap=capability >= 90,
        )
        self._has_blocks = packed.blocks > 0
        self._fill = self._fill_of(packed, options) if packed.unwritten.size else None

    def _fill_of(self, packed: Packed, options: CompileOptions) -> FillRows:
        """Return the launch that writes the rows of C that are in no tile."""
        rows = self.arrays["unwritten"] = DeviceArray(packed.unwritten)
        cubin = build_fill(
            self.plan.dtype, options.get("activation", "none"), bias=options.get("bias", False)
        ).cubin
        return FillRows(
            load_function(cubin, "fill_rows", 0, self.device), rows.pointer, packed.unwritten.size
        )

    def at(self, call: Call, b: int, c: int, stream: int, second: int = 0) -> None:
        """Enqueue the launches.

        Parameters
        ----------
        call : all other addresses, and the sizes of the launch
        b, c : addresses of B and C
        stream : handle of a CUDA stream
        second : address of a convolution's second input, or of fp32 scales (tokens,) of fp8 B; 0 for none
        """
        # Other threads must not change the argument before the driver has copied it
        with self._lock:
            if call is not self._call and call != self._call:
                self.write(call)
                self._call = call
            if self._has_blocks:
                self.place(b, c)
                if second:
                    self.place_second(second, b)
                self._launch(stream)
            if self._fill is not None:
                self._fill(Place(c, call.c_row_bytes), call.bias, call.tokens, stream)

    def place(self, b: int, c: int) -> None:
        """Write the addresses of B and C into the argument record of the kernel."""
        words = self._words
        words[self._b], words[self._c] = b, c

    def place_second(self, second: int, b: int) -> None:
        """Write the address of a second input, relative to B, into the argument record of the kernel."""
        self._words[self._second] = (second - b) % (1 << 64)

    def write(self, call: Call) -> None:
        """Copy the addresses and sizes of a call into the argument record of the kernel."""
        for name, value in zip(call._fields, call, strict=True):
            if name in self._names:
                self._args[name] = value
