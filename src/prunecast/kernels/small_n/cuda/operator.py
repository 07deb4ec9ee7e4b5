"""`SmallOperator.compile(plan, weights)`: a small-n plan as a callable on the GPU."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from prunecast.kernels.device.build import CompiledKernel
from prunecast.kernels.device.launch import Place
from prunecast.kernels.device.operator import Operator
from prunecast.kernels.device.packed import Packed
from prunecast.kernels.small_n.configs import row_unit
from prunecast.kernels.small_n.cuda.records import build_small, pack_plan, place_b, small_defines
from prunecast.plan.kernel_plan import KernelPlan


class SmallOperator(Operator):
    """A plan of the small-n kernel on one device; B and C of any N are read and written in place."""

    name, entry = "the small-n kernel", "small_n"

    @classmethod
    def runs_on(cls, plan: KernelPlan) -> range:
        """From cp.async on."""
        return range(80, 1000)

    @classmethod
    def build(
        cls, plan: KernelPlan, arch: str, *, activation: str, bias: bool, changes: Mapping[str, int] | None
    ) -> CompiledKernel:
        """For any architecture that it runs on."""
        return build_small(plan, arch, small_defines(plan, activation=activation, bias=bias, changes=changes))

    @classmethod
    def pack(cls, plan: KernelPlan, weights: npt.NDArray[np.floating[Any]]) -> Packed:
        """Fragments, and a range of k16s for each block."""
        return pack_plan(plan, weights)

    @classmethod
    def align_bytes(cls, plan: KernelPlan) -> int:
        """Whole words, whatever these are."""
        return row_unit(plan.n)

    def place(self, b: Place, c: Place) -> None:
        """B by whole words of 4 bytes, of which it may begin inside one."""
        place_b(self._args, self.plan, b.pointer, b.row_bytes)
        self._args["c"], self._args["c_row_bytes"] = c
