"""A plan of the kernel of few tokens on one device."""

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
from prunecast.torch.cuda.device import arch_of
from prunecast.torch.cuda.layer_launch import ELEMENT_BYTES, Call, Kernel, LayerLaunch
from prunecast.torch.images import FRAGMENTS, Layout, slabs_of

_READ_BYTES = 4
"""x_t is read in words of so many. Kind: CUDA source, `small_args.cuh`."""


class SmallLaunch(LayerLaunch):
    """The kernel of few tokens: x_t may begin in the middle of a word."""

    takes_one = True
    _shift = 0
    """Elements before x_t in its first word."""

    def kernel_of(self, plan: KernelPlan, device: torch.device, options: dict[str, Any]) -> Kernel:
        """Lists of columns and rows, and records of blocks."""
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
        """And where B ends."""
        super().write(call)
        self._args["b_shift"] = self._shift
        self._args["b_end"] = self._shift + (self._plan.k - 1) * call.columns + self._plan.n

    def at(self, call: Call, x_t: int, y: int, stream: int) -> None:
        """With x_t from its first whole word on."""
        shift = x_t % _READ_BYTES // ELEMENT_BYTES
        if shift != self._shift:
            self._shift, self._call = shift, None
        super().at(call, x_t - shift * ELEMENT_BYTES, y, stream)


def lists_of(plan: KernelPlan) -> PackedSmall:
    """What the kernel reads of a layer besides its weights, which are none here."""
    slabs = slabs_of(plan.tiles, Layout(FRAGMENTS, plan.shape.block_m))
    columns = np.where(slabs.columns < 0, NO_COLUMN, slabs.columns).astype(np.uint16)
    return PackedSmall(np.zeros(0, np.uint16), columns, slabs.rows, slabs.start)
