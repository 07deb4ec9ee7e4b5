"""A plan of the kernel of few tokens on one device, C as the epilogue lays it."""

from typing import Any

import numpy as np
import torch

from prunecast.kernels import KernelPlan
from prunecast.kernels.device.launch import PreparedLaunch
from prunecast.kernels.small_n.cuda.records import (
    NO_COLUMN,
    SMALL_ARGS,
    PackedSmall,
    build_small,
    small_defines,
    small_records,
)
from prunecast.torch.cuda.device import DeviceArray, arch_of, load_function, stream_of
from prunecast.torch.epilogue import Epilogue, changes_of
from prunecast.torch.images import FRAGMENTS, Layout, slabs_of

_ELEMENT_BYTES, _WORD_BYTES = 2, 4
_FIELDS: Any = SMALL_ARGS.fields
_POINTERS = ("weights", "b", "c", "bias", "b_row_bytes", "c_row_bytes", "b_end")
_WORDS = {name: _FIELDS[name][1] // 8 for name in _POINTERS}
_HALVES = {name: _FIELDS[name][1] // 4 for name in ("b_shift", "c_tokens")}


class SmallLaunch:
    """See `prunecast.torch.cuda.launches.Launch`."""

    takes_one = True

    def __init__(
        self, plan: KernelPlan, epilogue: Epilogue, *, bias: bool, adds: bool, device: torch.device
    ) -> None:
        changes = changes_of(epilogue, adds=adds)
        defines = small_defines(plan, activation=epilogue.activation, bias=bias, changes=changes)
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
        self._plan, self._device, self._turned = plan, device.index, epilogue.features_first
        self._words, self._halves = self._args.view(np.uint64).data, self._args.view(np.int32).data
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
        if x_t.shape[1] > 1 and x_t.stride(0) != x_t.shape[1]:
            x_t = x_t.contiguous()
        biased = 0 if bias is None else bias.data_ptr()
        given = (x_t.data_ptr(), x_t.shape[1], image.data_ptr(), biased, y.data_ptr(), y.shape[0])
        self.at(*given, stream_of(self._device))

    def at(self, x_t: int, columns: int, image: int, bias: int, y: int, tokens: int, stream: int) -> None:
        """The same by addresses."""
        words, halves, shift = self._words, self._halves, x_t % _WORD_BYTES // _ELEMENT_BYTES
        words[_WORDS["weights"]], words[_WORDS["bias"]], words[_WORDS["c"]] = image, bias, y
        words[_WORDS["b"]], words[_WORDS["b_row_bytes"]] = (
            x_t - shift * _ELEMENT_BYTES,
            columns * _ELEMENT_BYTES,
        )
        words[_WORDS["b_end"]] = shift + (self._plan.k - 1) * columns + self._plan.n
        words[_WORDS["c_row_bytes"]] = (columns if self._turned else self._plan.m) * _ELEMENT_BYTES
        halves[_HALVES["b_shift"]], halves[_HALVES["c_tokens"]] = shift, tokens
        self._launch(stream)


def lists_of(plan: KernelPlan) -> PackedSmall:
    """What the kernel reads of a layer besides its weights, which are none here."""
    slabs = slabs_of(plan.tiles, Layout(FRAGMENTS, plan.shape.block_m))
    columns = np.where(slabs.columns < 0, NO_COLUMN, slabs.columns).astype(np.uint16)
    return PackedSmall(np.zeros(0, np.uint16), columns, slabs.rows, slabs.start)
