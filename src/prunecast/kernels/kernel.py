"""`Kernel`: the record that describes a kernel, with all properties that the rest of the project uses.

Code outside `prunecast.kernels` never compares names of kernels; it reads the attributes of this record.

`LaunchTraits` contains properties of a kernel's launches that are not in its plans. `ItemTimes` contains
estimated times of the work items of a config, by which configs are ranked before they are planned.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.hardware.costs import Costs, load_costs
from prunecast.hardware.spec import GpuSpec
from prunecast.patterns.element_map import ElementMap
from prunecast.patterns.pattern import Kept
from prunecast.patterns.tile_map import TileMap
from prunecast.plan.kernel_plan import DTYPE_BYTES, KernelPlan
from prunecast.plan.program import WarpProgram


class ItemTimes(NamedTuple):
    """Estimated cycles and bytes of the work items of one config. Each tile has one item per token range."""

    alone: npt.NDArray[np.float64]
    """(tiles,) SM cycles of an item if its block is the only one on the SM."""
    pipe: npt.NDArray[np.float64]
    """(tiles,) SM cycles for which an item occupies the bottleneck pipe of the SM."""
    ranges: int
    """Number of token ranges; each tile has one item per range."""
    slots: int
    """Maximum number of resident blocks per SM."""
    weight_bytes: float
    """Bytes of packed weights, each of which is read once from DRAM."""
    read_bytes: float
    """Bytes of weights and B that blocks read from L2 in a launch."""
    once: float = 0.0
    """SM cycles that a launch needs once, in addition to its items, such as the prologue of a persistent
    block; 0 if the items contain them."""
    prologue: float = 0.0
    """The part of `once`, in SM cycles, that overlaps with the preceding launch if that leaves SMs free."""
    fix_up: float | None = None
    """SM cycles to write, or to read, the partial sums of one split-K slice; None if tiles are not split."""
    co_resident: bool = False
    """True if, with programmatic dependent launch, blocks of this launch fit on an SM together with blocks of
    the preceding launch."""


class LaunchTraits(NamedTuple):
    """Properties of the launches of one plan on one GPU that are not in the plan."""

    co_resident: bool = False
    """True if each block has one item and lets the next launch start at once (programmatic dependent launch),
    so that blocks of the next launch start on free slots, and as blocks of this one end. How many do so early
    follows from the occupancy: none if the first launch fills all slots."""
    registers_per_thread: int = 0
    """Registers per thread as compiled for the GPU; 0 if the number in the plan is exact."""
    cycles_per_column: float = 0.0
    """Cycles of a block per kept column of its tile, from which the models compute how much later blocks with
    heavier tiles end; 0 if this is not modelled."""
    prologue: Callable[[float], tuple[WarpProgram, ...]] | None = None
    """Function that returns the plan's warp programs for a fraction (0 to 1) of blocks that run their
    prologue before the preceding launch ends; None if the programs do not depend on it."""
    prefetches_weights: bool = False
    """True if producer warps read indices and weights before `griddepcontrol.wait`, and B after it."""
    aligns_rows: bool = False
    """True if rows of B and C that are not aligned are copied to and from aligned rows by other launches, as
    every `Operator` does. Planners state it from compute capability 9.0, where these copies were measured;
    predictions of older GPUs omit their time."""
    weights_evict_first: bool = False
    """True if weights are read with an evict-first policy, so that B stays in L2 during the launch. What L2
    contains when the launch begins does not depend on it (`launch.context.gpu_as_found`)."""
    other_launches_s: float = 0.0
    """Seconds of the additional kernels that a library launches for the product."""


class Entry(NamedTuple):
    """Reference to a subclass of `device.operator.KernelOperator`, which is imported only when it is used."""

    module: str
    name: str
    least: int = 90
    """Minimum compute capability, times ten (90 for 9.0)."""
    dtypes: tuple[str, ...] = ("fp16", "bf16")

    def runs(self, dtype: str, gpu: GpuSpec) -> bool:
        """Return True if the class runs plans of a dtype on a GPU."""
        return dtype in self.dtypes and gpu.compute_capability >= self.least

    def load(self) -> Any:
        """Import and return the class."""
        return getattr(import_module(self.module), self.name)


class Sources(NamedTuple):
    """CUDA sources of a kernel. Recorded runs contain a hash of them, which identifies the build."""

    name: str
    """Name of the sources in the headers of recorded runs."""
    folders: tuple[str, ...]
    """Folders below `prunecast/kernels`: the kernel's own folder, and folders whose headers it includes."""


def _more_than_one_launch(*_: object, **__: object) -> KernelPlan:
    raise BadInput("more than one launch, so no plan of its own")


def of_each(times: Callable[..., ItemTimes]) -> Callable[..., list[ItemTimes]]:
    """Convert `times`, which returns the `ItemTimes` of one config, to a function of a sequence of
    configs.
    """
    return lambda configs, *product, **inside: [times(config, *product, **inside) for config in configs]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One kernel, or a sequence of two kernels that compute one product.

    Parameters
    ----------
    name : name in tables, on the command line and in `KernelPlan.kernel`
    meaning : one-line description for help texts and pages
    is_baseline : True for the dense product with which all kernels are compared
    takes : type of map that the planner accepts; None if it accepts (m, k), since it multiplies all weights
    natural_pattern : pattern string that the kernel is designed for, used if no pattern is given
    keeps : kinds of patterns that the kernel runs, as in `Pattern.keeps`
    families : names of further pattern families, or complete pattern strings, that the kernel runs
    not_families : pattern families that the kernel does not run although `keeps` contains their kind
    most_tokens : maximum number of tokens for which the kernel is predicted if the user requests `all`
        kernels; None for no limit
    opt_in : True if the kernel is predicted only if the user names the kernel, or a pattern of its `families`
    groups : True if one launch can run the tiles of all experts of a layer; the planner then has the keyword
        `loads` (tokens of each expert)
    splits : True if heavy tiles are split along K and the slices are distributed over the SMs
    plan : planner with the arguments `(map, n, dtype, gpu)`, followed by one of `configs` if the kernel has
        configs; `m, k` replace the map if `takes` is None. The keyword `tiles` is the tile map if the
        elements of the map are inside tiles
    configs : `(map, n, dtype, gpu)` -> configs that fit on the GPU; `str(config)` is its short name
    times : `(configs, map, n, dtype, gpu)` -> `ItemTimes` of each config, by which configs are ranked; None
        if there is only one config
    coarse_times : True if `times` omit so much that configs far from the least time are planned too
    other_plans : `(plan, config, gpu)` -> alternative plans of the same product in the config, split
        differently along K; the fastest by the closed-form model is used. None if the planner decides
    compilers : tensor instruction of a plan -> operator class; empty if the project has no CUDA kernel for it
    sources : CUDA sources of the kernel; None for libraries, and for a sequence of kernels
    library : True if the kernel is run by the GPU vendor's library, predicted and measured but not compiled
    in_torch : True if the kernel is available for models in torch: by cuBLAS, or by a kernel of
        `prunecast.torch.sparsify`
    fuses_in_torch : True if, in torch, a gated unit or a residual add after a product is fused into the
        product's epilogue
    parts : names of the kernels that are launched one after the other; empty for a single kernel
    writes_all_rows : True if the kernel also writes rows of C without kept weights; otherwise a second launch
        writes these rows
    weight_bits : bits of a packed weight if the kernel unpacks weights to the plan's dtype; None for the bits
        of the dtype
    unaligned_tokens : maximum number of tokens for which rows of B and C need no alignment; for more tokens,
        rows that are not aligned are copied to padded rows
    costs : package with the cost files `costs/sm_*.toml`; empty if the kernel has no cost files
    traits : `(plan, gpu)` -> `LaunchTraits` of the plan's launches; None for the default ones
    runs_any_mask : True if the kernel runs any mask, given as an `ElementMap`. Tile maps are converted to
        their kept elements. Some masks may be slow
    """

    name: str
    meaning: str
    is_baseline: bool = False
    takes: type[TileMap] | type[ElementMap] | None
    natural_pattern: str
    keeps: tuple[Kept, ...] = ()
    families: tuple[str, ...] = ()
    not_families: tuple[str, ...] = ("dense",)
    most_tokens: int | None = None
    opt_in: bool = False
    groups: bool = False
    splits: bool = False
    plan: Callable[..., KernelPlan] = _more_than_one_launch
    configs: Callable[..., Iterable[Any]] = lambda *_, **__: ()
    times: Callable[..., list[ItemTimes]] | None = None
    coarse_times: bool = False
    other_plans: Callable[[KernelPlan, Any, GpuSpec], list[KernelPlan]] | None = None
    compilers: Mapping[str, Entry] = field(default_factory=dict)
    sources: Sources | None = None
    library: bool = False
    in_torch: bool = False
    fuses_in_torch: bool = True
    parts: tuple[str, ...] = ()
    writes_all_rows: bool = False
    weight_bits: int | None = None
    unaligned_tokens: int = 0
    costs: str = ""
    traits: Callable[[KernelPlan, GpuSpec], LaunchTraits] | None = None
    runs_any_mask: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "runs_any_mask", self.takes is ElementMap and "tiles" in self.keeps)

    def weight_bytes(self, dtype: str) -> float:
        """Return the bytes of a packed weight, without indices, scales and padding."""
        return DTYPE_BYTES[dtype] if self.weight_bits is None else self.weight_bits / 8

    def read_bytes(self, plan: KernelPlan) -> float:
        """Return the bytes of packed weights that a launch of a plan of the kernel reads, without indices,
        scales and padding.
        """
        return self.weight_bytes(plan.dtype) * plan.packed_elements

    def why_predicted_only(self, plan: KernelPlan, gpu: GpuSpec) -> str | None:
        """Return the reason why no CUDA kernel runs the plan on the GPU. Return None if one does, or if a
        library does.
        """
        if self.library or not self.compilers:
            return None
        entry = self.compilers.get(plan.tensor)
        if entry is None or plan.dtype not in entry.dtypes:
            return f"predicted only: {self.name} has no kernel in {plan.dtype}"
        if gpu.compute_capability < entry.least:
            return f"predicted only: {self.name} has no kernel below compute capability {entry.least / 10}"
        return None

    def costs_on(self, gpu: GpuSpec) -> Costs | None:
        """Return the kernel's costs on the GPU's architecture; None if the kernel has no cost files (`costs`
        is empty).
        """
        return load_costs(self.costs, gpu.compute_capability) if self.costs else None

    def guessed_costs(self, gpu: GpuSpec) -> float:
        """Return the fraction (0 to 1) of the kernel's costs on the GPU that are guesses; 0 if the kernel has
        no costs. Costs carried over from another architecture count as guesses.
        """
        costs = self.costs_on(gpu)
        return costs.guessed_share if costs else 0.0

    def runs(self, pattern: str, keeps: Kept) -> bool:
        """Return True if the kernel runs the pattern with the canonical string `pattern`, whose attribute
        `Pattern.keeps` is `keeps`.
        """
        family = pattern.split(":")[0]
        named = pattern in self.families or family in self.families
        return named or (keeps in self.keeps and family not in self.not_families)
