"""`Product`: a kernel, what it multiplies, tokens, format and GPU; all that its planner asks but a config.

Configs are ranked before they are planned, by a roofline of their busiest SM, L2 and DRAM. It is coarse on
purpose: `prunecast.models` says how long a plan takes. Left out are clocks under load, tails of
overlapping launches, and waits for other SMs.
"""

from dataclasses import dataclass, field
from typing import Any

from prunecast.errors import BadInput, check_choice
from prunecast.hardware import GpuSpec
from prunecast.kernels import DTYPE_BYTES, KERNELS, Kernel, KernelPlan
from prunecast.kernels.kernel import ItemTimes
from prunecast.launch.overlap import spread_cycles
from prunecast.patterns import ElementMap, NestedMap, TileMap, element_map_from_mask

PrunedMap = TileMap | ElementMap | NestedMap
"""What is kept of a pruned layer."""
MOST_PARTS = 8
"""Split-K slices of a tile that are tried."""
UNEVEN = 1.1
"""Longest item over the mean one from which waves of equal items say nothing."""
TAIL_SHARE = 0.5
"""Share of the longest item by which uneven blocks end late where the hardware places them."""


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


def roofline_seconds(times: ItemTimes, other_bytes: float, gpu: GpuSpec) -> float:
    """Seconds of a launch.

    Parameters
    ----------
    other_bytes : of B and C
    """
    cycles = times.once + (_sm_cycles(times, gpu) if times.alone.size else 0.0)
    dram = (times.weight_bytes + other_bytes) / gpu.dram_bytes_per_s
    l2 = times.read_bytes / gpu.l2_bytes_per_s
    return max(cycles / gpu.clock_burst_hz[0], dram, l2) + gpu.graph_launch_s


def _sm_cycles(times: ItemTimes, gpu: GpuSpec) -> float:
    """Until the last SM is done: with whole items in waves, or with heavy tiles split along K."""
    longest, alone = float(times.alone.max(initial=0.0)), float(times.alone.mean())
    items = times.alone.size * times.ranges
    even = items / gpu.sm_count * max(alone / times.slots, float(times.pipe.mean()))
    if times.co_resident or longest <= UNEVEN * alone:
        whole = _waves(times, items, gpu)
    else:
        whole = even if times.once else even + TAIL_SHARE * longest
    whole = max(whole, longest)
    if times.fix_up is None:
        return whole
    owner = min(longest / parts + (parts - 1) * times.fix_up for parts in range(1, MOST_PARTS + 1))
    return min(whole, max(even + 2 * times.fix_up, owner))


def _waves(times: ItemTimes, items: int, gpu: GpuSpec) -> float:
    """Waves of equal items."""
    full, rest = divmod(items, gpu.sm_count * times.slots)
    last = min(times.slots, rest) if times.co_resident else -(-rest // gpu.sm_count)
    early = spread_cycles(times.prologue, rest, gpu.sm_count - rest)
    return full * _together(times, times.slots) + (_together(times, last) if rest else 0.0) - early


def _together(times: ItemTimes, blocks: int) -> float:
    """Blocks of an SM hide each other's waits, unless they are so short that all wait at once."""
    alone, pipes = float(times.alone.mean()), blocks * float(times.pipe.mean())
    return pipes + alone - float(times.pipe.mean()) if times.co_resident else max(alone, pipes)
