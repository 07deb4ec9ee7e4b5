"""`compile(plan, weights)`: a plan of tiles as a callable on the GPU, `c = op(b)`."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from prunecast.kernels.device.arrays import check_device, check_weights
from prunecast.kernels.device.layer_operator import Images, LayerOperator, load_fill, load_kernel
from prunecast.kernels.device.places import Place
from prunecast.kernels.tile.cuda.forms import box_of, build_tile_kernel, tile_defines
from prunecast.kernels.tile.cuda.images import upload
from prunecast.kernels.tile.cuda.tensor_maps import BoxMaps
from prunecast.plan.kernel_plan import KernelPlan

__all__ = ["TileOperator", "compile"]


def compile(
    plan: KernelPlan,
    weights: npt.NDArray[np.floating[Any]],
    *,
    bias: npt.NDArray[np.floating[Any]] | None = None,
    activation: str = "none",
    overlap: bool = True,
    changes: Mapping[str, int] | None = None,
) -> "TileOperator":
    """Compile the kernel of `plan`, pack `weights` (M, K) and bring both to the current device.

    Parameters
    ----------
    weights : rounded to the plan's dtype; what the plan does not keep is not read
    bias : (M,), added to every column of C, in fp32
    activation : `none`, `relu` or `gelu`
    overlap : let a launch start while the kernel before it in the stream drains
    changes : preprocessor names that differ from the plan's form, for experiments and debugging

    Raises
    ------
    BadInput : the plan is for another kernel, a shape is wrong, or the device cannot run it
    KernelBuildError : the kernel cannot be built
    """
    check_device("the wgmma tile kernel", lambda capability: capability == 90, "compute capability 9.0")
    check_weights(plan, weights, bias)
    defines = tile_defines(plan, activation=activation, bias=bias is not None, changes=changes)
    cubin = build_tile_kernel(plan, defines).cubin
    kernel = load_kernel(cubin, "tile_sm90", plan.resources.shared_bytes)
    fill = load_fill(plan, activation, bias=bias is not None)
    return TileOperator(plan, upload(plan, weights, bias), kernel, fill, overlap=overlap)


class TileOperator(LayerOperator):
    """A plan of the wgmma tile kernel on one device."""

    def __init__(self, plan: KernelPlan, images: Images, kernel: Any, fill: Any, *, overlap: bool) -> None:
        super().__init__(plan, images, kernel, fill, overlap=overlap)
        self._maps = BoxMaps(rows=plan.m, tokens=self._wanted.padded_n, box=box_of(plan))

    def _arguments(self) -> list[int]:
        """The record, and C as the copy engine sees it."""
        return [*super()._arguments(), 0]

    def _place(self, b: Place, c: Place) -> None:
        super()._place(b, c)
        self._launch.point(1, self._maps.address(c))
