"""`BalancedOperator.compile(plan, weights)`: a balanced plan as a callable on the GPU."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.kernels.balanced.cuda.images import balanced_images, build_balanced, form_of
from prunecast.kernels.device.build import CompiledKernel
from prunecast.kernels.device.launch import Place, Places
from prunecast.kernels.device.operator import Operator
from prunecast.kernels.device.packed import Packed
from prunecast.plan.kernel_plan import KernelPlan


class BalancedOperator(Operator):
    """A plan of a balanced kernel on one device; B and C of one token may begin anywhere."""

    name = "the balanced kernel"

    @classmethod
    def runs_on(cls, plan: KernelPlan) -> range:
        """CUDA cores alone."""
        return range(75, 1000)

    @classmethod
    def entry_of(cls, plan: KernelPlan) -> str:
        """By the number of tokens."""
        return form_of(plan).entry

    @classmethod
    def build(
        cls, plan: KernelPlan, arch: str, *, activation: str, bias: bool, changes: Mapping[str, int] | None
    ) -> CompiledKernel:
        """For any architecture, without instructions that only some have."""
        if plan.kernel != "balanced":
            raise BadInput(f"the balanced kernel runs balanced plans, got {plan.kernel}")
        return build_balanced(plan, arch.rstrip("a"), activation=activation, bias=bias, changes=changes)

    @classmethod
    def pack(cls, plan: KernelPlan, weights: npt.NDArray[np.floating[Any]]) -> Packed:
        """Records of windows, or chunks of lanes."""
        return balanced_images(plan, weights)

    @classmethod
    def align_bytes(cls, plan: KernelPlan) -> int:
        """None for one token."""
        return 1 if plan.n == 1 else 16

    def places(self) -> Places | None:
        """None for one token, whose steps count elements."""
        return None if self.plan.n == 1 else super().places()

    def place(self, b: Place, c: Place) -> None:
        """B and C, by elements from one to the next where there is one token."""
        super().place(b, c)
        if self.plan.n == 1:
            args, item_bytes = self._args, self._wanted.item_bytes
            args["b"], args["c"] = b.pointer, c.pointer
            args["b_step"], args["c_step"] = b.row_bytes // item_bytes, c.row_bytes // item_bytes
