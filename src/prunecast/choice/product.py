"""`Product`: a kernel, what it multiplies, tokens, format and GPU; all that its planner asks but a config."""

from dataclasses import dataclass, field
from typing import Any

from prunecast.choice.roofline import roofline_seconds
from prunecast.errors import BadInput, check_choice
from prunecast.hardware import GpuSpec
from prunecast.kernels import DTYPE_BYTES, KERNELS, Kernel, KernelPlan
from prunecast.patterns import ElementMap, NestedMap, TileMap, element_map_from_mask

__all__ = ["Product", "PrunedMap", "product_of"]

PrunedMap = TileMap | ElementMap | NestedMap
"""What is kept of a pruned layer."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Product:
    """C (M, N) = (A * mask) (M, K) @ B (K, N) by one kernel.

    Parameters
    ----------
    kernel : its record
    kept : what its planner multiplies
    n, dtype, gpu : tokens, format, GPU
    inside : keyword `tiles` of planner and configs where elements lie inside tiles, else empty
    """

    kernel: Kernel
    kept: TileMap | ElementMap
    n: int
    dtype: str
    gpu: GpuSpec
    inside: dict[str, TileMap] = field(default_factory=dict)

    def configs(self) -> tuple[Any, ...]:
        """Configs that the kernel has for it. BadInput: the kernel cannot run the format, or on the GPU."""
        return tuple(self.kernel.configs(self.kept, self.n, self.dtype, self.gpu, **self.inside))

    def plan(self, *config: Any, **options: Any) -> KernelPlan:
        """The plan in a config of `configs`, or in the one config there is; options are the planner's."""
        return self.kernel.plan(self.kept, self.n, self.dtype, self.gpu, *config, **self.inside, **options)

    def roofline_seconds(self, config: Any) -> float:
        """Seconds by which configs are ranked; 0 where there is one config."""
        if self.kernel.times is None:
            return 0.0
        times = self.kernel.times(config, self.kept, self.n, self.dtype, self.gpu, **self.inside)
        other_bytes = float((self.kept.k + self.kept.m) * self.n * DTYPE_BYTES[self.dtype])
        return roofline_seconds(times, other_bytes, self.gpu)


def product_of(kernel: str, kept: PrunedMap, n: int, dtype: str, gpu: GpuSpec) -> Product:
    """The product of what is kept of A with `n` tokens by a kernel of `KERNELS`.

    Raises
    ------
    BadInput : the kernel cannot run this kind of map
    """
    record = KERNELS[check_choice("kernel", kernel, KERNELS)]
    if record.parts:
        raise BadInput(f"{kernel} takes more than one launch: {' and '.join(record.parts)}")
    inside: dict[str, TileMap] = {}
    if isinstance(kept, NestedMap):
        if "elements in tiles" in record.keeps and not record.runs_any_mask:
            inside = {"tiles": kept.tiles}
        kept = kept.inner
    if record.runs_any_mask and isinstance(kept, TileMap):
        kept = element_map_from_mask(kept.mask(), kept.pattern)
    if record.takes is None or not isinstance(kept, record.takes):
        kinds = "no map" if record.takes is None else record.takes.__name__
        raise BadInput(f"{kernel} runs {kinds}, got {type(kept).__name__} of {kept.pattern}")
    return Product(kernel=record, kept=kept, n=n, dtype=dtype, gpu=gpu, inside=inside)
