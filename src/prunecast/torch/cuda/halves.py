"""A plan of the 2:4 kernel on one device, C as the epilogue lays it; gated units are no epilogue of it."""

from typing import Any

import numpy as np
import torch

from prunecast.kernels import KernelPlan
from prunecast.kernels.device.launch import PreparedLaunch
from prunecast.kernels.tile.cuda.work_image import work_image
from prunecast.kernels.two_of_four.cuda.images import (
    COUNTERS_PER_GROUP,
    SPARSE_ARGS,
    build_sparse_kernel,
    sparse_defines,
)
from prunecast.torch.cuda.device import DeviceArray, load_function, stream_of
from prunecast.torch.cuda.tiles import columns_by_thread
from prunecast.torch.epilogue import Epilogue, changes_of
from prunecast.torch.images import HALVES, Layout, slabs_of

_FIELDS: Any = SPARSE_ARGS.fields
_WORDS = {name: _FIELDS[name][1] // 8 for name in ("weights", "b", "c", "bias", "b_row_bytes", "c_row_bytes")}
_TOKENS, _C_TOKENS = (_FIELDS[name][1] // 4 for name in ("tokens", "c_tokens"))
_ELEMENT_BYTES, _GROUP = 2, 8


class HalvesLaunch:
    """See `prunecast.torch.cuda.launches.Launch`. Owns a workspace: it must not run on two streams at
    once.
    """

    takes_one = False

    def __init__(
        self, plan: KernelPlan, epilogue: Epilogue, *, bias: bool, adds: bool, device: torch.device
    ) -> None:
        changes = changes_of(epilogue, adds=adds)
        defines = sparse_defines(plan, activation=epilogue.activation, bias=bias, changes=changes)
        cubin = build_sparse_kernel(plan, defines).cubin
        resources, work = plan.resources, work_image(plan)
        slabs = slabs_of(plan.tiles, Layout(HALVES, plan.shape.block_m))
        room = work.workspace(plan.shape, COUNTERS_PER_GROUP)
        self._arrays = {
            "columns": DeviceArray(columns_by_thread(slabs.columns)),
            "items": DeviceArray(work.items),
            "splits": DeviceArray(work.splits),
            "rows": DeviceArray(slabs.rows),
            **{name: DeviceArray(np.zeros(count, dtype)) for name, (count, dtype) in room.items()},
        }
        self._args = np.zeros(1, SPARSE_ARGS)
        for name, array in self._arrays.items():
            self._args[name] = array.pointer
        self._args["null_stage"] = len(slabs.columns)
        work.into(self._args)
        self._rows, self._device, self._turned = plan.m, device.index, epilogue.features_first
        self._words, self._numbers = self._args.view(np.uint64).data, self._args.view(np.int32).data
        self._launch = PreparedLaunch(
            load_function(cubin, "sparse_sm90", resources.shared_bytes, device.index),
            [self._args.ctypes.data],
            blocks=plan.blocks,
            threads=resources.threads,
            shared_bytes=resources.shared_bytes,
            overlap=True,
        )

    def __call__(
        self, x_t: torch.Tensor, image: torch.Tensor, bias: torch.Tensor | None, y: torch.Tensor
    ) -> None:
        """Enqueue it."""
        if x_t.shape[1] % _GROUP:  # a single token
            x_t = torch.nn.functional.pad(x_t, (0, -x_t.shape[1] % _GROUP))
            if self._turned:
                wide = y.new_empty((self._rows, x_t.shape[1]))
                self(x_t, image, bias, wide)
                y.copy_(wide[:, : y.shape[1]])
                return
        x_t = x_t.contiguous()
        biased = 0 if bias is None else bias.data_ptr()
        given = (x_t.data_ptr(), x_t.shape[1], image.data_ptr(), biased, y.data_ptr(), y.shape[0])
        self.at(*given, stream_of(self._device))

    def at(self, x_t: int, columns: int, image: int, bias: int, y: int, tokens: int, stream: int) -> None:
        """The same by addresses; columns are whole groups of 8."""
        words, numbers = self._words, self._numbers
        words[_WORDS["weights"]], words[_WORDS["b"]], words[_WORDS["bias"]] = image, x_t, bias
        words[_WORDS["c"]] = y
        words[_WORDS["c_row_bytes"]] = (columns if self._turned else self._rows) * _ELEMENT_BYTES
        words[_WORDS["b_row_bytes"]] = columns * _ELEMENT_BYTES
        numbers[_TOKENS], numbers[_C_TOKENS] = columns, tokens
        self._launch(stream)
