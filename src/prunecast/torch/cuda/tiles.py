"""A plan of the wgmma tile kernel on one device, C as the epilogue lays it."""

from typing import Any

import numpy as np
import torch

from prunecast.kernels import KernelPlan
from prunecast.kernels.device.launch import Place, PreparedLaunch
from prunecast.kernels.tile.cuda.forms import box_of, build_tile_kernel, tile_defines, token_box_of
from prunecast.kernels.tile.cuda.images import GATHER_ROWS, STAGE_COLUMNS
from prunecast.kernels.tile.cuda.tensor_maps import BoxMaps
from prunecast.kernels.tile.cuda.work_image import TILE_ARGS, work_image
from prunecast.patterns.tile_map import IntArray
from prunecast.torch.cuda.device import DeviceArray, load_function, stream_of
from prunecast.torch.epilogue import Epilogue, changes_of
from prunecast.torch.images import STAGES, Layout, slabs_of

_COUNTERS_PER_GROUP = 16
_FIELDS: Any = TILE_ARGS.fields
_WORDS = {name: _FIELDS[name][1] // 8 for name in ("weights", "b", "c", "bias", "b_row_bytes", "c_row_bytes")}
_HALVES = {name: _FIELDS[name][1] // 4 for name in ("tokens", "c_tokens")}
_ELEMENT_BYTES, _GROUP = 2, 8


class TileLaunch:
    """See `prunecast.torch.cuda.launches.Launch`. Owns a workspace: it must not run on two streams at
    once.
    """

    takes_one = False

    def __init__(
        self, plan: KernelPlan, epilogue: Epilogue, *, bias: bool, adds: bool, device: torch.device
    ) -> None:
        changes = changes_of(epilogue, adds=adds)
        defines = tile_defines(plan, activation=epilogue.activation, bias=bias, changes=changes)
        cubin = build_tile_kernel(plan, defines).cubin
        resources, work = plan.resources, work_image(plan)
        slabs = slabs_of(plan.tiles, Layout(STAGES, plan.shape.block_m))
        sums = plan.shape.block_m * plan.shape.block_n
        self._arrays = {
            "columns": DeviceArray(columns_by_thread(slabs.columns)),
            "items": DeviceArray(work.items),
            "splits": DeviceArray(work.splits),
            "rows": DeviceArray(slabs.rows),
            "partials": DeviceArray(np.zeros(max(work.slots, 1) * sums, np.float32)),
            "counters": DeviceArray(np.zeros(max(work.groups, 1) * _COUNTERS_PER_GROUP, np.uint32)),
        }
        self._args = np.zeros(1, TILE_ARGS)
        for name, array in self._arrays.items():
            self._args[name] = array.pointer
        self._args["null_stage"] = len(slabs.columns)
        work.into(self._args)
        self._adds = plan.dtype if adds else None
        self._rows, self._device = plan.m // 2 if epilogue.glu else plan.m, device.index
        self._turned = epilogue.features_first
        self._box = box_of(plan, gated=epilogue.glu) if self._turned else token_box_of(plan)
        self._words, self._halves = self._args.view(np.uint64).data, self._args.view(np.int32).data
        self._maps: dict[int, BoxMaps] = {}
        self._launch = PreparedLaunch(
            load_function(cubin, "tile_sm90", resources.shared_bytes, device.index),
            [self._args.ctypes.data, 0],
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
        if x_t.stride(0) != x_t.shape[1]:
            x_t = x_t.contiguous()
        biased = 0 if bias is None else bias.data_ptr()
        given = (x_t.data_ptr(), x_t.shape[1], image.data_ptr(), biased, y.data_ptr(), y.shape[0])
        self.at(*given, stream_of(self._device))

    def at(self, x_t: int, columns: int, image: int, bias: int, y: int, tokens: int, stream: int) -> None:
        """The same by addresses; columns are whole groups of 8."""
        words, halves = self._words, self._halves
        row_bytes = (columns if self._turned else self._rows) * _ELEMENT_BYTES
        words[_WORDS["weights"]], words[_WORDS["b"]], words[_WORDS["bias"]] = image, x_t, bias
        words[_WORDS["c"]], words[_WORDS["c_row_bytes"]] = y, row_bytes
        words[_WORDS["b_row_bytes"]] = columns * _ELEMENT_BYTES
        halves[_HALVES["tokens"]], halves[_HALVES["c_tokens"]] = columns, tokens
        self._launch.point(1, self._maps_of(columns if self._turned else tokens).address(Place(y, row_bytes)))
        self._launch(stream)

    def _maps_of(self, tokens: int) -> BoxMaps:
        """Tensor maps of C with so many tokens."""
        found = self._maps.get(tokens)
        if found is None:
            rows, width = (self._rows, tokens) if self._turned else (tokens, self._rows)
            found = self._maps[tokens] = BoxMaps(rows=rows, tokens=width, box=self._box, adds=self._adds)
        return found


def columns_by_thread(columns: IntArray) -> IntArray:
    """(stages + 1, 16, 4) of (stages, 64): as threads of the producer fetch rows of B, with a null stage."""
    whole = np.concatenate((columns, np.full((1, STAGE_COLUMNS), -1, np.int32)))
    rounds = whole.reshape(-1, STAGE_COLUMNS // GATHER_ROWS, GATHER_ROWS)
    return np.ascontiguousarray(rounds.transpose(0, 2, 1))
