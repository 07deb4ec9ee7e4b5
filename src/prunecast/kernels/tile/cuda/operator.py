"""`TileOperator.compile(plan, weights)`: a plan of tiles as a callable on the GPU, `c = op(b)`."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from prunecast.kernels.device.build import CompiledKernel
from prunecast.kernels.device.launch import Place
from prunecast.kernels.device.operator import Operator
from prunecast.kernels.device.packed import Packed
from prunecast.kernels.tile.cuda.forms import box_of, build_tile_kernel, tile_defines
from prunecast.kernels.tile.cuda.images import pack_plan
from prunecast.kernels.tile.cuda.tensor_maps import BoxMaps
from prunecast.plan.kernel_plan import KernelPlan


class TileOperator(Operator):
    """A plan of the wgmma tile kernel on one device."""

    name, entry = "the wgmma tile kernel", "tile_sm90"

    def __init__(self, plan: KernelPlan, *rest: Any, **options: Any) -> None:
        super().__init__(plan, *rest, **options)
        self._maps = BoxMaps(rows=plan.m, tokens=self._wanted.padded_n, box=box_of(plan))

    @classmethod
    def build(
        cls, plan: KernelPlan, arch: str, *, activation: str, bias: bool, changes: Mapping[str, int] | None
    ) -> CompiledKernel:
        """For sm_90a."""
        return build_tile_kernel(plan, tile_defines(plan, activation=activation, bias=bias, changes=changes))

    @classmethod
    def pack(cls, plan: KernelPlan, weights: npt.NDArray[np.floating[Any]]) -> Packed:
        """Stages and work records."""
        return pack_plan(plan, weights)

    def arguments(self) -> list[int]:
        """The record, and C as the copy engine sees it."""
        return [*super().arguments(), 0]

    def place(self, b: Place, c: Place) -> None:
        """B, C and the map of C."""
        super().place(b, c)
        self._launch.point(1, self._maps.address(c))
