"""A plan of the kernel of few tokens, C token-major, on one device."""

import numpy as np
import torch

from prunecast.kernels import KernelPlan
from prunecast.kernels.device.launch import PreparedLaunch
from prunecast.kernels.small_n.cuda.forms import build_small, small_defines
from prunecast.kernels.small_n.cuda.pack import NO_COLUMN, PackedSmall
from prunecast.kernels.small_n.cuda.records import place_b, small_records
from prunecast.torch.cuda.device import DeviceArray, arch_of, load_function, stream_of
from prunecast.torch.images import FRAGMENTS, Layout, slabs_of

__all__ = ["SmallLaunch", "lists_of"]

_ELEMENT_BYTES = 2


class SmallLaunch:
    """See `prunecast.torch.cuda.launches.Launch`."""

    def __init__(self, plan: KernelPlan, activation: str, *, bias: bool, device: torch.device) -> None:
        defines = small_defines(plan, activation=activation, bias=bias, changes={"TOKEN_MAJOR": 1})
        cubin = build_small(plan, arch_of(device), defines).cubin
        lists = lists_of(plan)
        records, resources = small_records(plan, lists), plan.resources
        self._arrays = {
            "columns": DeviceArray(lists.columns),
            "ranges": DeviceArray(records.ranges),
            "places": DeviceArray(records.places),
            "rows": DeviceArray(records.rows),
        }
        self._args = records.arguments(plan)
        for name, array in self._arrays.items():
            self._args[name] = array.pointer
        self._plan, self._device = plan, device.index
        self._launch = PreparedLaunch(
            load_function(cubin, "small_n", resources.shared_bytes, device.index),
            [self._args.ctypes.data],
            blocks=records.blocks,
            threads=resources.threads,
            shared_bytes=resources.shared_bytes,
            overlap=torch.cuda.get_device_capability(device)[0] >= 9,
        )

    def __call__(
        self, x_t: torch.Tensor, image: torch.Tensor, bias: torch.Tensor | None, y: torch.Tensor
    ) -> None:
        """Enqueue it."""
        args = self._args
        args["weights"] = image.data_ptr()
        args["bias"] = 0 if bias is None else bias.data_ptr()
        place_b(args, self._plan, x_t.data_ptr(), x_t.stride(0) * _ELEMENT_BYTES)
        args["c"], args["c_row_bytes"] = y.data_ptr(), self._plan.m * _ELEMENT_BYTES
        args["c_tokens"] = y.shape[0]
        self._launch(stream_of(self._device))


def lists_of(plan: KernelPlan) -> PackedSmall:
    """What the kernel reads of a layer besides its weights, which are none here."""
    slabs = slabs_of(plan.tiles, Layout(FRAGMENTS, plan.shape.block_m))
    columns = np.where(slabs.columns < 0, NO_COLUMN, slabs.columns).astype(np.uint16)
    return PackedSmall(np.zeros(0, np.uint16), columns, slabs.rows, slabs.start)
