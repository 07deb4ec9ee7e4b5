"""Launches of the tile kernels, with and without 2:4 inside, and of the kernel for few tokens."""

from typing import Any

import numpy as np
import torch

from prunecast.kernels import KernelPlan
from prunecast.kernels.small_n.cuda.records import (
    NO_COLUMN,
    PackedSmall,
    SmallOperator,
    small_records,
)
from prunecast.kernels.tile.cuda.operator import BoxMaps, TileOperator, box_of, token_box_of
from prunecast.kernels.tile.cuda.work_image import (
    COUNTERS_PER_GROUP,
    GATHER_ROWS,
    STAGE_COLUMNS,
    TILE_ARGS,
    work_image,
)
from prunecast.kernels.two_of_four.cuda.operator import SPARSE_ARGS, SparseOperator
from prunecast.patterns.tile_map import IntArray
from prunecast.torch.cuda.device import arch_of
from prunecast.torch.cuda.layer_launch import ELEMENT_BYTES, Call, Kernel, LayerLaunch
from prunecast.torch.epilogue import Epilogue
from prunecast.torch.images import FRAGMENTS, HALVES, STAGES, Layout, slabs_of

_READ_BYTES = 4
"""x_t is read in words of so many. Kind: CUDA source, `small_args.cuh`."""


class StagedLaunch(LayerLaunch):
    """A kernel that reads pipeline stages of tiles, which may be split along K."""

    kind, record, form = STAGES, TILE_ARGS, staticmethod(TileOperator.form)

    def kernel_of(self, plan: KernelPlan, device: torch.device, options: dict[str, Any]) -> Kernel:
        """Return the kernel with its columns, work records and the workspace for partial sums
        of split tiles.
        """
        work, slabs = work_image(plan), slabs_of(plan.tiles, Layout(self.kind, plan.shape.block_m))
        room = work.workspace(plan.shape, COUNTERS_PER_GROUP)
        arrays = {
            "columns": columns_by_thread(slabs.columns),
            "items": work.items,
            "splits": work.splits,
            "rows": slabs.rows,
            **{name: np.zeros(count, dtype) for name, (count, dtype) in room.items()},
        }
        args = np.zeros(1, self.record)
        args["null_stage"] = len(slabs.columns)
        work.into(args)
        form = self.form(plan, **options)
        return Kernel(form.build().cubin, form.entry, args, arrays, plan.blocks)

    def write(self, call: Call) -> None:
        """Write the values of the call and the number of padded columns into the argument."""
        super().write(call)
        self._args["tokens"] = call.columns


class HalvesLaunch(StagedLaunch):
    """The 2:4 kernel, which has no gated units."""

    kind, record, form = HALVES, SPARSE_ARGS, staticmethod(SparseOperator.form)


class TileLaunch(StagedLaunch):
    """The wgmma tile kernel, which stores C by the TMA, with a tensor map for each address of C."""

    maps = 1

    def __init__(
        self, plan: KernelPlan, epilogue: Epilogue, *, bias: bool, adds: bool, device: torch.device
    ) -> None:
        super().__init__(plan, epilogue, bias=bias, adds=adds, device=device)
        self._box = box_of(plan, gated=epilogue.glu) if self._turned else token_box_of(plan)
        self._adds = plan.dtype if adds else None
        self._maps: dict[tuple[int, int], BoxMaps] = {}

    def write(self, call: Call) -> None:
        """Write the values of the call into the argument, and choose the tensor maps of C."""
        super().write(call)
        rows, width = (self._rows, call.columns) if self._turned else (call.tokens, self._rows)
        found = self._maps.get((rows, width))
        if found is None:
            found = BoxMaps(rows=rows, tokens=width, box=self._box, adds=self._adds)
            self._maps[rows, width] = found
        self._map_of, self._c_row_bytes = found.address, width * ELEMENT_BYTES

    def place(self, x_t: int, y: int) -> None:
        """Write the addresses of x_t and y into the argument, and select the tensor map of y."""
        words = self._words
        words[self._b], words[self._c] = x_t, y
        self._launch.point(1, self._map_of((y, self._c_row_bytes)))


class SmallLaunch(LayerLaunch):
    """The kernel for few tokens, in which x_t may begin in the middle of a word."""

    takes_one = True
    _shift = 0
    """Elements before x_t in its first word."""

    def kernel_of(self, plan: KernelPlan, device: torch.device, options: dict[str, Any]) -> Kernel:
        """Return the kernel with lists of columns and rows, and records of blocks."""
        lists = lists_of(plan)
        records = small_records(plan, lists)
        arrays: dict[str, Any] = {
            "columns": lists.columns,
            "ranges": records.ranges,
            "places": records.places,
            "rows": records.rows,
        }
        form = SmallOperator.form(plan, **options)
        cubin = form.build(arch_of(device)).cubin
        return Kernel(cubin, form.entry, records.arguments(plan), arrays, records.blocks)

    def write(self, call: Call) -> None:
        """Write the values of the call and the end of B into the argument."""
        super().write(call)
        self._args["b_shift"] = self._shift
        self._args["b_end"] = self._shift + (self._plan.k - 1) * call.columns + self._plan.n

    def at(self, call: Call, x_t: int, y: int, stream: int) -> None:
        """Launch with x_t rounded down to a whole word."""
        shift = x_t % _READ_BYTES // ELEMENT_BYTES
        if shift != self._shift:
            self._shift, self._call = shift, None
        super().at(call, x_t - shift * ELEMENT_BYTES, y, stream)


def columns_by_thread(columns: IntArray) -> IntArray:
    """Return (stages + 1, 16, 4) of (stages, 64): the rows of B by producer thread, with a null stage at the
    end.
    """
    whole = np.concatenate((columns, np.full((1, STAGE_COLUMNS), -1, np.int32)))
    rounds = whole.reshape(-1, STAGE_COLUMNS // GATHER_ROWS, GATHER_ROWS)
    return np.ascontiguousarray(rounds.transpose(0, 2, 1))


def lists_of(plan: KernelPlan) -> PackedSmall:
    """Return the lists that the kernel reads, without weights."""
    slabs = slabs_of(plan.tiles, Layout(FRAGMENTS, plan.shape.block_m))
    columns = np.where(slabs.columns < 0, NO_COLUMN, slabs.columns).astype(np.uint16)
    return PackedSmall(np.zeros(0, np.uint16), columns, slabs.rows, slabs.start)
