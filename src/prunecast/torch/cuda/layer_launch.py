"""Common base of the launches of layers: a kernel, its argument, and the device data of a plan.

Records of a launch hold no weights: the pointers of weights, x and y are passed at every call.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from prunecast.kernels import KernelPlan
from prunecast.kernels.device.launch import PreparedLaunch
from prunecast.torch.cuda.device import DeviceArray, load_function, stream_of
from prunecast.torch.epilogue import Epilogue, changes_of

ELEMENT_BYTES, GROUP, WORD_BYTES = 2, 8, 8


class Kernel(NamedTuple):
    """The kernel of a launch, with its argument and arrays."""

    cubin: Path
    entry: str
    args: npt.NDArray[np.void]
    """One record, complete except for the pointers and the values of a call."""
    arrays: dict[str, npt.NDArray[Any]]
    """Field of the record -> array to copy to the device."""
    blocks: int


class Call(NamedTuple):
    """Values that rarely change from one launch of a layer to the next."""

    columns: int
    """Columns of x_t."""
    image: int
    bias: int
    """`image` and `bias` are device addresses; 0 for no bias."""
    tokens: int


class LayerLaunch:
    """A kernel for one layer, epilogue and number of tokens, to be enqueued on torch's current stream.

    It owns its argument, and a workspace if tiles are split. It must not run on two streams at once.
    """

    takes_one = False
    """Whether x_t may have one column; otherwise its columns are a multiple of 8."""
    maps = 0
    """Number of tensor maps that the kernel needs in addition to its record."""

    def __init__(
        self, plan: KernelPlan, epilogue: Epilogue, *, bias: bool, adds: bool, device: torch.device
    ) -> None:
        self._plan, self._device, self._turned = plan, device.index, epilogue.features_first
        self._rows = plan.m // 2 if epilogue.glu else plan.m
        options = {
            "activation": epilogue.activation,
            "bias": bias,
            "changes": changes_of(epilogue, adds=adds),
        }
        kernel = self.kernel_of(plan, device, options)
        self._arrays = {name: DeviceArray(values) for name, values in kernel.arrays.items()}
        self._args, fields = kernel.args, kernel.args.dtype.fields
        for name, array in self._arrays.items():
            self._args[name] = array.pointer
        self._words: Any = self._args.view(np.uint64).data
        assert fields is not None
        self._b, self._c = (fields[name][1] // WORD_BYTES for name in ("b", "c"))
        self._call: Call | None = None
        resources = plan.resources
        self._launch = PreparedLaunch(
            load_function(kernel.cubin, kernel.entry, resources.shared_bytes, device.index),
            [self._args.ctypes.data, *[0] * self.maps],
            blocks=kernel.blocks,
            threads=resources.threads,
            shared_bytes=resources.shared_bytes,
            overlap=torch.cuda.get_device_capability(device)[0] >= 9,
        )

    def kernel_of(self, plan: KernelPlan, device: torch.device, options: dict[str, Any]) -> Kernel:
        """Return the kernel; `options` as `device.form.FormOptions`."""
        raise NotImplementedError

    def __call__(
        self, x_t: torch.Tensor, image: torch.Tensor, bias: torch.Tensor | None, y: torch.Tensor
    ) -> None:
        """Write y in the layout of the epilogue from x_t (K, tokens or more), or add to the values in y."""
        if x_t.shape[1] % GROUP and not self.takes_one:
            x_t = torch.nn.functional.pad(x_t, (0, -x_t.shape[1] % GROUP))
            if self._turned:
                wide = y.new_empty((self._rows, x_t.shape[1]))
                self(x_t, image, bias, wide)
                y.copy_(wide[:, : y.shape[1]])
                return
        if x_t.shape[1] > 1 and x_t.stride(0) != x_t.shape[1]:
            x_t = x_t.contiguous()
        biased = 0 if bias is None else bias.data_ptr()
        call = Call(x_t.shape[1], image.data_ptr(), biased, y.shape[0])
        self.at(call, x_t.data_ptr(), y.data_ptr(), stream_of(self._device))

    def at(self, call: Call, x_t: int, y: int, stream: int) -> None:
        """Launch with the addresses of x_t and y; y (tokens, rows) or (rows, columns) is contiguous."""
        if call is not self._call and call != self._call:
            self.write(call)
            self._call = call
        self.place(x_t, y)
        self._launch(stream)

    def place(self, x_t: int, y: int) -> None:
        """Write the addresses of x_t and y into the argument."""
        words = self._words
        words[self._b], words[self._c] = x_t, y

    def write(self, call: Call) -> None:
        """Write the values of the call into the argument."""
        args = self._args
        args["weights"], args["bias"], args["c_tokens"] = call.image, call.bias, call.tokens
        args["b_row_bytes"] = call.columns * ELEMENT_BYTES
        args["c_row_bytes"] = (call.columns if self._turned else self._rows) * ELEMENT_BYTES
