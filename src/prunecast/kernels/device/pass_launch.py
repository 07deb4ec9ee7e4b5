"""`PassLaunch`: launch, on device addresses, of a kernel that computes no matrix product, such as a
transpose.

Products of plans are launched by `operator.py`. All other kernels of the package read one argument record.
"""

from collections.abc import Sequence
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.kernels.device.build import CompiledKernel, compile_own
from prunecast.kernels.device.launch import PreparedLaunch, arch_of, capability_of, load_function


class PassLaunch(NamedTuple):
    """Launch of a kernel with one argument record and a one-dimensional grid."""

    source: str
    """File of the kernel, relative to `kernels/device`."""
    entry: str
    """Name of the `__global__` function."""
    args: npt.NDArray[np.void]
    """(1,) argument record. It is read at every launch, so it may change between launches."""
    blocks: int
    threads: int
    shared_bytes: int = 0
    """Dynamic shared memory of a block."""
    defines: tuple[tuple[str, int], ...] = ()
    """Preprocessor macros with which the source is compiled."""
    any_arch: bool = False
    """True if the code is the same for `sm_90` and `sm_90a`."""

    def build(self, arch: str) -> CompiledKernel:
        """Compile the kernel for an architecture such as `sm_90`."""
        return compile_own(self.source, arch.rstrip("a") if self.any_arch else arch, self.defines)

    def on(self, device: int) -> PreparedLaunch:
        """Return the launch, prepared for the current device; keep this record alive until it is enqueued.

        From Hopper on, its blocks may start before the preceding kernel of the stream has finished.
        """
        cubin = self.build(arch_of(device)).cubin
        return PreparedLaunch(
            load_function(cubin, self.entry, self.shared_bytes, device),
            [self.args.ctypes.data],
            blocks=self.blocks,
            threads=self.threads,
            shared_bytes=self.shared_bytes,
            overlap=capability_of(device) >= 90,
        )

    def enqueue(self, device: int, stream: int) -> None:
        """Enqueue the launch on the stream of the current device that has the handle `stream`."""
        self.on(device)(stream)


class BoundLaunch:
    """A launch that is prepared for a device, with addresses that are written into its record at each call.

    Parameters
    ----------
    launch : the launch; its record has whole 8-byte words
    device : number of the current device
    addresses : two or more fields of the record that begin with an address, in the order of a call
    """

    def __init__(self, launch: PassLaunch, device: int, addresses: Sequence[str]) -> None:
        self._launch, self._lock = launch.on(device), Lock()
        self._words: Any = launch.args.view(
            "u8"
        ).data  # setting a field of the record needs six times as long
        fields: Any = launch.args.dtype.fields
        self._first, self._second, *self._others = (fields[name][1] // 8 for name in addresses)

    def __call__(self, stream: int, first: int, second: int, *others: int) -> None:
        """Enqueue the launch with these addresses on the stream that has the handle `stream`."""
        words = self._words
        with self._lock:  # other threads must not change the record before the driver has copied it
            words[self._first], words[self._second] = first, second  # a loop over two needs 1 us more
            for place, address in zip(self._others, others, strict=True) if others else ():
                words[place] = address
            self._launch(stream)


def record(layout: np.dtype[np.void], **values: Any) -> npt.NDArray[np.void]:
    """Return an argument record (1,) with these values in its fields, and zeros in the others."""
    args = np.zeros(1, layout)
    args[0] = tuple({**dict.fromkeys(layout.names or (), 0), **values}.values())  # faster than field by field
    return args
